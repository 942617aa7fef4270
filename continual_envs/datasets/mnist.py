"""MNIST: 60,000 + 10,000 handwritten digits of 28 x 28 pixels."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.datasets.base import Dataset, DatasetError, Part
from continual_envs.datasets.files import check_file, download, staging

__all__ = ["load_mnist"]


def load_mnist(root: Path) -> Dataset:
    """Read MNIST from torchvision's layout, downloading it if it is not there.

    The archives are read as they are, so nothing is extracted on disk.

    Args:
        root: folder of the data sets; the archives lie in ``MNIST/raw``.

    Returns:
        The data set.
    """
    from torchvision.datasets import MNIST  # seconds to import

    folder = root / "MNIST" / "raw"
    if not folder.exists():
        with staging(folder) as partial:
            for name, md5 in MNIST.resources:
                urls = [mirror + name for mirror in MNIST.mirrors]
                download(urls, partial, name, md5, folder)
    checksums = dict(MNIST.resources)
    train, test = (_part(folder, name, checksums) for name in ("train", "t10k"))
    return Dataset("MNIST", train, test, 10, key="MNIST")


def _part(folder: Path, name: str, checksums: dict[str, str]) -> Part:
    images, labels = (
        _read(folder, file, checksums[file])
        for file in (f"{name}-images-idx3-ubyte.gz", f"{name}-labels-idx1-ubyte.gz")
    )
    return Part(images[:, None], labels.astype(np.int64))


def _read(folder: Path, name: str, md5: str) -> NDArray[Any]:
    """An array in the IDX format: 2 zeros, type, dimensions, sizes, bytes."""
    path = folder / name
    if not path.exists():
        raise DatasetError(
            f"{path} is missing. Delete {folder} to download MNIST anew, or copy the "
            "file there"
        )
    try:
        content = gzip.decompress(check_file(path, md5))
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, offset=4)
    data = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
    return data.reshape(tuple(shape))
