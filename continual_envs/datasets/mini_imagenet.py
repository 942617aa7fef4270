"""mini-ImageNet: photographs of 84 x 84 pixels in 100 classes, from a folder."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from continual_envs.datasets.base import Dataset, DatasetError, Part
from continual_envs.datasets.files import data_root, staging

__all__ = ["load_mini_imagenet"]

_SIZE = 84
_CLASSES = 100
_TABLES = ("train.csv", "val.csv", "test.csv")
_PARTS = ("train", "test")


def load_mini_imagenet(root: Path) -> Dataset:
    """Read mini-ImageNet from a folder in the usual layout.

    The three tables split classes; here all 100 classes are used, and the images of
    each are split instead: of the complete set's 600, the first 500 by name are for
    training and the last 100 for testing, and in that proportion of a part of it.

    Args:
        root: folder of the data sets, which holds ``mini-imagenet``, or that folder
            itself: ``images/`` and ``train.csv``, ``val.csv``, ``test.csv``.

    Returns:
        The data set; the images are decoded once, then mapped from a cache on disk.

    Raises:
        DatasetError: if the folder or an image is missing or cannot be read.
    """
    folder = _find(root)
    classes = _list(folder)
    names: dict[str, list[str]] = {part: [] for part in _PARTS}
    labels: dict[str, list[int]] = {part: [] for part in _PARTS}
    for label, name in enumerate(sorted(classes)):
        images = sorted(classes[name])
        cut = round(len(images) * 5 / 6)
        for part, chosen in zip(_PARTS, (images[:cut], images[cut:]), strict=True):
            names[part] += chosen
            labels[part] += [label] * len(chosen)
    cache = _decoded(root, folder, names)
    try:
        train, test = (
            Part(
                np.asarray(np.load(cache / f"{part}.npy", mmap_mode="r")),
                np.array(labels[part], dtype=np.int64),
            )
            for part in _PARTS
        )
    except (OSError, ValueError, EOFError) as error:
        raise DatasetError(
            f"{cache} is damaged: {error}. Delete the folder to decode the images anew"
        ) from error
    return Dataset("mini-ImageNet", train, test, _CLASSES, key=cache.name)


def _find(root: Path) -> Path:
    for folder in (root / "mini-imagenet", root):
        if (folder / "images").is_dir():
            return folder
    raise DatasetError(
        f"mini-ImageNet is not in {root / 'mini-imagenet'}. It has no official "
        "download: put images/ and train.csv, val.csv, test.csv there, or give their "
        "folder as data_dir"
    )


def _list(folder: Path) -> dict[str, list[str]]:
    """The file names of each class, from the three tables."""
    classes: dict[str, list[str]] = {}
    for table in _TABLES:
        path = folder / table
        if not path.exists():
            raise DatasetError(
                f"{path} is missing: mini-ImageNet has {', '.join(_TABLES)}"
            )
        for label, name in _read_table(path):
            classes.setdefault(label, []).append(name)
    if len(classes) != _CLASSES:
        raise DatasetError(
            f"the tables in {folder} name {len(classes)} classes, expected {_CLASSES}"
        )
    return classes


def _read_table(path: Path) -> Iterator[tuple[str, str]]:
    """Label and file name of each line of a table."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if rows.fieldnames != ["filename", "label"]:
                raise DatasetError(
                    f"{path} must have the columns filename,label, got "
                    f"{','.join(rows.fieldnames or ())}"
                )
            for row in rows:
                if not row["filename"] or not row["label"]:
                    raise DatasetError(
                        f"{path}, line {rows.line_num}: expected filename,label"
                    )
                yield row["label"], row["filename"]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read: {error}. Copy it anew") from error


def _decoded(root: Path, folder: Path, names: dict[str, list[str]]) -> Path:
    """The folder of the decoded images, which is made if it is not there."""
    stamp = _fingerprint(folder, names)
    places = [root, data_root(None)]
    for place in places:
        cache = place / "mini-imagenet-decoded" / stamp
        if cache.is_dir():
            return cache
    # Beside the images if that is allowed, else in the user's own folder.
    place = next((p for p in places if _is_writable(p)), places[-1])
    cache = place / "mini-imagenet-decoded" / stamp
    with staging(cache) as partial:
        for part, files in names.items():
            np.save(partial / f"{part}.npy", _decode(folder / "images", files))
    return cache


def _fingerprint(folder: Path, names: dict[str, list[str]]) -> str:
    """Changes when an image is added, removed or replaced."""
    digest = hashlib.sha256()
    for part, files in names.items():
        for name in files:
            try:
                status = (folder / "images" / name).stat()
            except OSError as error:
                raise DatasetError(
                    f"{folder / 'images' / name} is missing, but a table names it"
                ) from error
            digest.update(
                f"{part}/{name}/{status.st_size}/{status.st_mtime_ns}\n".encode()
            )
    return digest.hexdigest()[:16]


def _is_writable(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


def _decode(folder: Path, names: list[str]) -> NDArray[Any]:
    images = np.empty((len(names), 3, _SIZE, _SIZE), dtype=np.uint8)
    for row, name in enumerate(names):
        try:
            with Image.open(folder / name) as image:
                pixels = image.convert("RGB")
                if pixels.size != (_SIZE, _SIZE):
                    pixels = pixels.resize((_SIZE, _SIZE), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise DatasetError(
                f"{folder / name} cannot be read as an image: {error}. Copy the file "
                "anew"
            ) from error
        images[row] = np.asarray(pixels).transpose(2, 0, 1)
    return images
