"""Reading the entries of a batch, and saying clearly what is wrong with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

__all__ = [
    "get_entry",
    "read_features",
    "read_labels",
    "read_regression_targets",
    "refuse_infinite",
    "refuse_labels",
]


def get_entry(data: TensorDictBase, key: NestedKey) -> Any:
    """An entry of a batch, ``None`` if it has none of that name.

    The same as ``data.get(key)``, of which the form of the key takes most of the time.
    """
    return data._get_str(key, None) if type(key) is str else data.get(key, None)


def read_features(data: TensorDictBase, key: NestedKey) -> Tensor:
    """Features of a batch, shape ``(n, d0)``.

    Raises:
        KeyError: if there are none.
        TypeError: if they are not floating-point numbers.
        ValueError: if they have another shape.
    """
    features: Tensor | None = get_entry(data, key)
    if features is None:
        raise KeyError(f"missing entry {key!r}: the features of the items")
    if not features.is_floating_point():
        raise TypeError(
            f"entry {key!r} must hold floating-point features, got {features.dtype}"
        )
    if features.ndim != 2 or not features.shape[1]:
        raise ValueError(
            f"entry {key!r} must have the shape (n, d), got {tuple(features.shape)}; "
            "a batch of trajectories can be flattened with reshape(-1)"
        )
    return features


def read_regression_targets(data: TensorDictBase, key: NestedKey) -> Tensor:
    """Targets of a batch, shape ``(n,)`` or ``(n, K)``.

    Raises:
        KeyError: if there are none.
        TypeError: if they are not floating-point numbers.
        ValueError: if they have another shape.
    """
    targets: Tensor | None = get_entry(data, key)
    if targets is None:
        raise KeyError(f"missing entry {key!r}: the targets of the items")
    if not targets.is_floating_point():
        raise TypeError(
            f"entry {key!r} must hold floating-point regression targets, got "
            f"{targets.dtype}; give num_classes if they are labels"
        )
    if targets.ndim not in (1, 2):
        raise ValueError(
            f"entry {key!r} must have the shape (n,) or (n, K), got "
            f"{tuple(targets.shape)}"
        )
    return targets


def read_labels(data: TensorDictBase, key: NestedKey) -> Tensor:
    """Labels of a batch, shape ``(n,)``.

    Raises:
        KeyError: if there are none.
        TypeError: if they are not whole numbers.
        ValueError: if there is not one an item.
    """
    labels = get_entry(data, key)
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


def refuse_infinite(values: Tensor, key: NestedKey) -> None:
    """Raise, naming the first value that is not finite."""
    wrong = torch.nonzero(~torch.isfinite(values))
    if len(wrong):
        place = wrong[0].tolist()
        raise ValueError(
            f"entry {key!r} must be finite, got {values[tuple(place)].item()} for "
            f"item {place[0]}"
        )
