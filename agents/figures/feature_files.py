"""Fixed features from a file: :func:`read_features`."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs import DatasetError

__all__ = ["Features", "read_features"]

# What arrays may be called: training features and labels, test features and labels.
# The first names are those that ``info-replay features`` writes.
_NAMES = (
    ("X", "y", "X_test", "y_test"),
    ("train", "train_labels", "test", "test_labels"),
    ("features", "labels", "test_features", "test_labels"),
)
_HOW = "save X, y, X_test and y_test with np.savez"
_TEST_SHARE = 5  # one item of so many is a test item if the file has none


@dataclass(frozen=True)
class Features:
    """Features and labels of a training and a test set.

    Attributes:
        train: training features, shape ``(n, width)``.
        train_labels: classes from 0, shape ``(n,)``.
        test: test features, shape ``(m, width)``.
        test_labels: classes from 0, shape ``(m,)``.
        names: the label of each class in the file.
        digest: of the content of the file.
    """

    train: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test: NDArray[np.float32]
    test_labels: NDArray[np.int64]
    names: list[int]
    digest: str


def read_features(path: str | None) -> Features:
    """Read features of images, say, from a file, without ever running code in it.

    If the file has no test set, every fifth item is a test item.

    Args:
        path: of an ``.npz`` file with ``X``, ``y``, ``X_test`` and ``y_test``; also
            with ``train``, ``train_labels``, ``test``, ``test_labels``, or with
            ``features``, ``labels``, ``test_features``, ``test_labels``.

    Raises:
        DatasetError: if the file is missing or damaged or its arrays do not fit.
    """
    if path is None:
        raise DatasetError(f"--features must be given: an .npz file; {_HOW}")
    file = Path(path).expanduser()
    if not file.is_file():
        raise DatasetError(f"there is no file {path}: --features is an .npz file")
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        with file.open("rb") as opened:
            arrays = np.load(opened, allow_pickle=False)
            if not hasattr(arrays, "files"):  # a single array
                raise DatasetError(f"{path} is not an .npz file: {_HOW}")
            train, labels, test, test_labels = _find(arrays, path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(
            f"{path} is damaged or not an .npz file of numbers: {_HOW}"
        ) from error
    if test is None or test_labels is None:
        _check(path, "training", train, labels)
        held_out = np.arange(len(train)) % _TEST_SHARE == _TEST_SHARE - 1
        test, test_labels = train[held_out], labels[held_out]
        train, labels = train[~held_out], labels[~held_out]
    _check(path, "training", train, labels)
    _check(path, "test", test, test_labels)
    if train.shape[1] != test.shape[1]:
        raise DatasetError(
            f"{path}: test features must be {train.shape[1]} wide like those for "
            f"training, got {test.shape[1]}"
        )
    names = np.unique(labels)
    if len(names) < 2 or not np.isin(test_labels, names).all():
        raise DatasetError(
            f"{path}: training labels must have at least two classes, and all of the "
            f"test labels', got {len(names)}"
        )
    return Features(
        train.astype(np.float32),
        np.searchsorted(names, labels),
        test.astype(np.float32),
        np.searchsorted(names, test_labels),
        [int(name) for name in names],
        digest,
    )


def _find(arrays: Any, path: str) -> list[Any]:
    """The four arrays; those of the test set are ``None`` if there are none."""
    for names in _NAMES:
        if names[0] in arrays.files and names[1] in arrays.files:
            if (names[2] in arrays.files) != (names[3] in arrays.files):
                raise DatasetError(f"{path} has only one of {names[2]} and {names[3]}")
            return [arrays[name] if name in arrays.files else None for name in names]
    raise DatasetError(
        f"{path} has no arrays X and y, only {', '.join(arrays.files) or 'none'}: "
        f"{_HOW}"
    )


def _check(path: str, part: str, features: NDArray[Any], labels: NDArray[Any]) -> None:
    """Refuse arrays that are not features and labels of the same items."""
    fits = features.ndim == 2 and labels.shape == features.shape[:1] and features.size
    if not fits:
        raise DatasetError(
            f"{path}: {part} features must have the shape (n, width) and labels (n,), "
            f"got {features.shape} and {labels.shape}"
        )
    if features.dtype.kind not in "fiu" or labels.dtype.kind not in "iu":
        raise DatasetError(
            f"{path}: {part} features must be numbers and labels whole numbers, got "
            f"{features.dtype} and {labels.dtype}"
        )
    if not np.isfinite(features).all():
        raise DatasetError(f"{path}: {part} features must be finite")
