"""What all data sets are to the streams: :class:`Dataset`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.datasets.standardization import Standardization

__all__ = ["Dataset", "DatasetError", "Part", "SampleError"]


class DatasetError(RuntimeError):
    """A data set is missing or damaged; the message says what to do."""


class SampleError(DatasetError, ValueError):
    """A sample of a live stream is not what it should be."""


@dataclass(frozen=True)
class Part:
    """The training or the test part of a data set.

    Args:
        inputs: shape ``(n, ...)``; images are uint8 of shape ``(n, C, H, W)``.
        targets: labels ``(n,)`` int64, or numbers ``(n,)`` or ``(n, K)`` float32.
        task_ids: a whole number per sample, for streams whose tasks are given.

    Example:
        >>> part = Part(np.zeros((3, 4), dtype=np.float32), np.array([0, 1, 1]))
        >>> len(part)
        3
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    task_ids: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        """Make the arrays read-only: all streams of a process share them."""
        if len(self.inputs) != len(self.targets):
            raise ValueError(
                f"{len(self.inputs)} inputs do not go with {len(self.targets)} targets"
            )
        if self.task_ids is not None and len(self.task_ids) != len(self.targets):
            raise ValueError(
                f"{len(self.task_ids)} task_ids do not go with {len(self.targets)} "
                "targets"
            )
        for name in ("inputs", "targets", "task_ids"):
            array = getattr(self, name)
            if array is None:
                continue
            # numpy's take copies the whole of an array that is not contiguous.
            array = np.ascontiguousarray(array)
            if array.flags.writeable:
                array = array.view()  # the array of the caller has to stay writable
                array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.targets)


@dataclass(frozen=True)
class Dataset:
    """A data set in memory, images as bytes.

    Args:
        name: for messages.
        train: what streams are made of.
        test: what learners are judged by.
        num_classes: number of classes, ``None`` if the targets are numbers.
        standardization: what was done to the user's own units, if anything.
        key: stands for the content of a published data set, so that its fingerprint
            needs no reading.

    Example:
        >>> from continual_envs.datasets import load_dataset
        >>> digits = load_dataset("Digits")
        >>> digits.input_shape, digits.num_classes, digits.num_outputs
        ((1, 8, 8), 10, 10)
    """

    name: str
    train: Part
    test: Part
    num_classes: int | None
    standardization: Standardization | None = None
    key: str | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(np.shape(self.train.inputs)[1:])

    @property
    def num_outputs(self) -> int:
        """What a network has to put out: the classes, or the numbers to predict."""
        if self.num_classes is not None:
            return self.num_classes
        targets = self.train.targets
        return 1 if targets.ndim == 1 else int(targets.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of all inputs and targets."""
        return sum(
            part.inputs.nbytes + part.targets.nbytes for part in (self.train, self.test)
        )

    @cached_property
    def fingerprint(self) -> str:
        """Differs if the data differ: 32 hexadecimal digits."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.train, self.test):
            for array in (part.inputs, part.targets, part.task_ids):
                if array is None:
                    continue
                digest.update(f"{array.dtype} {array.shape} ".encode())
                if self.key is None or array is part.task_ids:
                    digest.update(array.reshape(-1).view(np.uint8).data)
        digest.update(f"{self.num_classes} {self.key}".encode())
        return digest.hexdigest()
