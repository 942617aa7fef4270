"""The data sets that have a name, each held in memory once per process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from continual_envs.datasets.base import Dataset
from continual_envs.datasets.bundled import load_diabetes, load_digits
from continual_envs.datasets.cifar10 import load_cifar10
from continual_envs.datasets.files import data_root
from continual_envs.datasets.mini_imagenet import load_mini_imagenet
from continual_envs.datasets.mnist import load_mnist

__all__ = ["DATASETS", "load_dataset"]

#: How each data set is read from the data folder.
DATASETS: dict[str, Callable[[Path], Dataset]] = {
    "MNIST": load_mnist,
    "CIFAR10": load_cifar10,
    "MiniImageNet": load_mini_imagenet,
    "Digits": load_digits,
    "Diabetes": load_diabetes,
}

_loaded: dict[tuple[str, Path], Dataset] = {}
_lock = threading.Lock()


def load_dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """A data set by name; all callers of a process share one copy.

    Args:
        name: one of :data:`DATASETS`.
        data_dir: folder of the data sets; else the environment variable
            ``CONTINUAL_ENVS_DATA``, else the user's cache folder.

    Returns:
        The data set.

    Raises:
        ValueError: if there is no data set of that name.
        DatasetError: if it is missing or damaged.

    Example:
        >>> digits = load_dataset("Digits")
        >>> len(digits.train), len(digits.test), digits.input_shape
        (1500, 297, (1, 8, 8))
    """
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}, expected one of {list(DATASETS)}")
    place = (name, data_root(data_dir))
    with _lock:
        if place not in _loaded:
            try:
                _loaded[place] = DATASETS[name](place[1])
            except ModuleNotFoundError as error:
                raise ImportError(
                    f"{name} needs {error.name}: pip install 'info-replay[streams]'"
                ) from error
        return _loaded[place]
