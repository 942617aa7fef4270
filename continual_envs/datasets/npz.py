"""Data of one's own in a file: ``np.savez("mine.npz", X=X, y=y)``."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.datasets.arrays import Arrays, RawData
from continual_envs.datasets.base import DatasetError

__all__ = ["read_npz"]

_NAMES = "X and y, maybe X_test and y_test, maybe task (and task_test): ids of tasks"


def read_npz(path: Path) -> RawData:
    """Read arrays from a file without ever running code in it.

    Args:
        path: of a file with ``X``, ``y``, maybe ``X_test``, ``y_test``, maybe ``task``,
            ``task_test``.

    Returns:
        The arrays.

    Raises:
        DatasetError: if the file is damaged or lacks an array.
    """
    try:
        with path.open("rb") as opened:
            file = np.load(opened, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise DatasetError(
                    f"{path} is no .npz file: save {_NAMES} with np.savez"
                )
            return _read_all(file, path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        if "pickle" in reason:  # numpy tells how to run the code in it nevertheless
            reason = "it is neither an archive nor an array"
        raise DatasetError(
            f"{path} is damaged or no .npz file: {reason}. Save {_NAMES} with np.savez"
        ) from error


def _read_all(file: Any, path: Path) -> RawData:
    names = file.files
    for name in ("X", "y"):
        if name not in names:
            raise DatasetError(
                f"{path} has no array {name}, only {', '.join(names) or 'none'}: save "
                f"{_NAMES}"
            )
    if ("X_test" in names) != ("y_test" in names):
        raise DatasetError(f"{path} has only one of X_test and y_test")
    train = Arrays(*(_read(file, path, name) for name in ("X", "y", "task")))
    test = None
    if "X_test" in names:
        of_test = ("X_test", "y_test", "task_test")
        test = Arrays(*(_read(file, path, name) for name in of_test))
    return RawData(path.stem, train, test)


def _read(file: Any, path: Path, name: str) -> NDArray[Any] | None:
    if name not in file.files:
        return None
    try:
        return np.asarray(file[name])
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        raise DatasetError(
            f"{name} in {path} is an array of objects, which is a pickle and could run "
            f"code: it is not opened. Save numbers, {name}.astype('float32') say"
        ) from error
