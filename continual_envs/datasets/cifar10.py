"""CIFAR-10: 50,000 + 10,000 photographs of 32 x 32 pixels in ten classes."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path

import numpy as np

from continual_envs.datasets.base import Dataset, DatasetError, Part
from continual_envs.datasets.files import check_file, download, staging

__all__ = ["load_cifar10"]


def load_cifar10(root: Path) -> Dataset:
    """Read CIFAR-10 from torchvision's layout, downloading it if it is not there.

    Args:
        root: folder of the data sets; the batches lie in ``cifar-10-batches-py``.

    Returns:
        The data set.
    """
    from torchvision.datasets import CIFAR10  # seconds to import

    folder = root / CIFAR10.base_folder
    if not folder.exists():
        with staging(folder) as partial:
            download([CIFAR10.url], partial, CIFAR10.filename, CIFAR10.tgz_md5, folder)
            archive = partial / CIFAR10.filename
            with tarfile.open(archive) as tar:
                for name, _ in (*CIFAR10.train_list, *CIFAR10.test_list):
                    member = tar.extractfile(f"{CIFAR10.base_folder}/{name}")
                    assert member is not None
                    (partial / name).write_bytes(member.read())
            archive.unlink()
    return Dataset(
        "CIFAR-10",
        _part(folder, CIFAR10.train_list),
        _part(folder, CIFAR10.test_list),
        10,
        key="CIFAR10",
    )


def _part(folder: Path, files: list[list[str]]) -> Part:
    images = np.empty((10_000 * len(files), 3, 32, 32), dtype=np.uint8)
    labels = np.empty(len(images), dtype=np.int64)
    for number, (name, md5) in enumerate(files):
        path = folder / name
        if not path.exists():
            raise DatasetError(
                f"{path} is missing. Delete {folder} to download CIFAR-10 anew, or "
                "copy the file there"
            )
        # A pickle can run code; one with the published checksum does not.
        content = check_file(path, md5)
        batch = pickle.load(io.BytesIO(content), encoding="latin1")
        where = slice(10_000 * number, 10_000 * (number + 1))
        images[where] = batch["data"].reshape(-1, 3, 32, 32)
        labels[where] = batch["labels"]
    return Part(images, labels)
