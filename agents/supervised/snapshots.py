"""What was in a memory along a run: :func:`read_snapshots`."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torchrl.data import TensorDictReplayBuffer

from agents.runs.files import remove_partial_files, replace_file
from agents.runs.folder import RunError, RunFolder

__all__ = ["read_snapshots", "write_snapshot"]

_FOLDER = "memories"
_KEYS = ("observation", "target")
# What numpy and zipfile raise for files of other bytes.
_DAMAGES = (
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


def write_snapshot(
    folder: RunFolder, step: int, memory: TensorDictReplayBuffer
) -> None:
    """Keep the inputs and targets that are in memory now.

    A resumed run writes the same files again.

    Args:
        folder: of the run.
        step: of the run.
        memory: not empty.

    Raises:
        RunError: if the file cannot be written.
    """
    items = memory[:]
    content = io.BytesIO()
    np.savez(content, **{key: items[key].cpu().numpy() for key in _KEYS})
    path = folder.path / _FOLDER / f"{step}.npz"
    try:
        path.parent.mkdir(exist_ok=True)
        remove_partial_files(path.parent)  # of a process that was killed here
        with replace_file(path) as file:
            file.write(content.getbuffer())
    except OSError as error:
        raise RunError(f"cannot write {path} ({error})") from error


def read_snapshots(folder: str | Path) -> dict[int, dict[str, NDArray[Any]]]:
    """The inputs and targets that were in memory at each evaluation of a run.

    Args:
        folder: of a run with ``--snapshots``, or of one in the folder ``runs`` of a
            sweep with ``--keep``.

    Returns:
        By step, in order: ``observation`` and ``target`` of all items. Nothing if the
        run kept none.

    Raises:
        RunError: if a file is damaged, or the folder is in the home folder of nobody.

    Example:
        >>> import tempfile
        >>> from agents import train
        >>> folder = tempfile.mkdtemp()
        >>> run = train("SplitDigits", policy="rs", steps=4, evaluations=2,
        ...             snapshots=True, folder=folder)
        >>> {step: items["target"].shape
        ...  for step, items in read_snapshots(folder).items()}
        {2: (50,), 4: (50,)}
    """
    found = {}
    for path in (RunFolder(folder).path / _FOLDER).glob("*.npz"):
        try:
            with np.load(path, allow_pickle=False) as content:
                found[int(path.stem)] = {key: content[key] for key in _KEYS}
        except _DAMAGES as error:
            raise RunError(f"{path} is damaged: delete it to go without") from error
    return dict(sorted(found.items()))
