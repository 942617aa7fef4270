"""Reading class labels from a batch, and saying clearly what is wrong with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

__all__ = ["check_num_classes", "read_labels", "refuse_labels"]


def check_num_classes(num_classes: int) -> None:
    """Refuse a number of classes that is not a whole number above 0."""
    if isinstance(num_classes, bool) or not isinstance(num_classes, int):
        raise TypeError(f"num_classes must be a whole number, got {num_classes!r}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")


def read_labels(data: TensorDictBase, key: NestedKey) -> Tensor:
    """Labels of a batch, shape ``(n,)``.

    Raises:
        KeyError: if there are none.
        TypeError: if they are not whole numbers.
        ValueError: if there is not one an item.
    """
    labels = data.get(key, None)
    if labels is None:
        raise KeyError(f"missing entry {key!r}: the class labels of the items")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(
            f"entry {key!r} must hold class labels as whole numbers, got {labels.dtype}"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(
            f"entry {key!r} must hold one label an item, shape (n,), got "
            f"{tuple(labels.shape)}"
        )
    result: Tensor = labels
    return result


def refuse_labels(labels: NDArray[Any], num_classes: int, key: NestedKey) -> None:
    """Raise if a label is not one of the classes."""
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if wrong.size:
        raise ValueError(
            f"entry {key!r} must hold labels from 0 to {num_classes - 1}, got "
            f"{labels[wrong[0]]} for item {wrong[0]}"
        )
