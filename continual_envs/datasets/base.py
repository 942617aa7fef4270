"""What all data sets are to the streams: :class:`Dataset`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dataset", "DatasetError", "Part"]


class DatasetError(RuntimeError):
    """A data set is missing or damaged; the message says what to do."""


@dataclass(frozen=True)
class Part:
    """The training or the test part of a data set.

    Args:
        inputs: shape ``(n, ...)``; images are uint8 of shape ``(n, C, H, W)``.
        targets: labels ``(n,)`` int64, or numbers ``(n,)`` float32.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]

    def __post_init__(self) -> None:
        """Make the arrays read-only: all streams of a process share them."""
        if len(self.inputs) != len(self.targets):
            raise ValueError(
                f"{len(self.inputs)} inputs do not go with {len(self.targets)} targets"
            )
        self.inputs.setflags(write=False)
        self.targets.setflags(write=False)

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
    """

    name: str
    train: Part
    test: Part
    num_classes: int | None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(np.shape(self.train.inputs)[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of all inputs and targets."""
        return sum(
            part.inputs.nbytes + part.targets.nbytes for part in (self.train, self.test)
        )
