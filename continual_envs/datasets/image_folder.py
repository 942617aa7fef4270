"""A folder of images, one folder per class."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from continual_envs.datasets.arrays import Arrays, RawData
from continual_envs.datasets.base import DatasetError
from continual_envs.datasets.images import ImageSize, channels_of, to_pixels

__all__ = ["read_image_folder"]

_ENDINGS = tuple(".bmp .gif .jpeg .jpg .pgm .png .ppm .tif .tiff .webp".split())
_TEST_FOLDERS = ("test", "val")


def read_image_folder(path: Path, image_size: ImageSize) -> RawData:
    """Read all images below a folder.

    Args:
        path: a folder that has a folder per class, or ``train`` and maybe ``test`` (or
            ``val``) with a folder per class in each.
        image_size: height and width to resize the images to; else all must have one
            size.

    Returns:
        The images; the classes have the order of their names.

    Raises:
        DatasetError: if there are no images, or one cannot be read.
        ValueError: if images have different sizes, or a class is only in ``test``.
    """
    train, test = path, None
    if (path / "train").is_dir() and _folders(path / "train"):
        train = path / "train"
        test = next((path / n for n in _TEST_FOLDERS if (path / n).is_dir()), None)
    classes = [folder.name for folder in _folders(train)]
    if not classes:
        raise DatasetError(
            f"{train} has no folders: put the images of each class into a folder of it"
        )
    files = _files(train, classes)
    tests = []
    if test is not None:
        found = [folder.name for folder in _folders(test)]
        for name in found:
            if name not in classes:
                raise ValueError(
                    f"class {name!r} appears only in {test}: add training images of it "
                    "or remove that folder"
                )
        tests = _files(test, found)
    size, channels = _common(files + tests, image_size)

    def read(chosen: list[tuple[Path, str]]) -> Arrays:
        images = np.empty((len(chosen), channels, *size), dtype=np.uint8)
        for row, (file, _) in enumerate(chosen):
            with _opened(file) as image:
                images[row] = to_pixels(image, channels, size)
        labels = np.array([classes.index(name) for _, name in chosen], dtype=np.int64)
        return Arrays(images, labels)

    return RawData(
        path.resolve().name, read(files), read(tests) if tests else None, classes
    )


def _folders(path: Path) -> list[Path]:
    """The folders in a folder by name, hidden ones left out."""
    return sorted(
        entry
        for entry in path.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    )


def _files(path: Path, classes: list[str]) -> list[tuple[Path, str]]:
    """The images of each class by name, and their classes."""
    found: list[tuple[Path, str]] = []
    for name in classes:
        mine = sorted(
            Path(folder) / file
            for folder, _, files in os.walk(path / name)
            for file in files
            if file.lower().endswith(_ENDINGS) and not file.startswith(".")
        )
        if not mine:
            raise DatasetError(
                f"the class folder {path / name} has no images, files that end in "
                f"{', '.join(_ENDINGS)}: add some or remove it"
            )
        found += [(file, name) for file in mine]
    return found


def _common(
    files: list[tuple[Path, str]], size: ImageSize
) -> tuple[tuple[int, int], int]:
    """The size and the channels that all images have, from their headers."""
    channels, first = 1, None
    for file, _ in files:
        with _opened(file) as image:
            channels = max(channels, channels_of(image, str(file)))
            width, height = image.size
        if first is None:
            first = (file, (height, width))
        elif size is None and first[1] != (height, width):
            raise ValueError(
                f"images have different sizes, {first[0]} {first[1]} and {file} "
                f"{(height, width)}: image_size=(H, W) resizes them"
            )
    assert first is not None
    return (first[1] if size is None else (size[0], size[1])), channels


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """An image file; whatever goes wrong with it names the file."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            yield image
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise DatasetError(
            f"{file} cannot be read as an image: {' '.join(str(error).split())}. Copy "
            "the file anew or remove it"
        ) from error
