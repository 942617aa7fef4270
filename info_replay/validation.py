"""Checks of settings and of the entries of a batch: one clear error for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

__all__ = [
    "check_choice",
    "check_count",
    "check_finite",
    "check_finite_entry",
    "check_labels",
    "check_model",
    "check_positive",
    "check_range",
    "read_features",
    "read_labels",
    "read_regression_targets",
    "told",
]


def told(value: Any) -> str:
    """A value as one short line."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
    return " ".join(repr(value).split())[:80]


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")


def check_finite(name: str, value: float) -> None:
    """Refuse a setting that is not a finite number."""
    _check_number(name, value)
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")


def check_positive(name: str, value: float) -> None:
    """Refuse a setting that is not a finite number above 0."""
    _check_number(name, value)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")


def check_model(noise: float, jitter: float, dtype: torch.dtype) -> None:
    """Refuse settings of the Bayesian model that cannot be computed with."""
    check_positive("noise", noise)
    check_positive("jitter", jitter)
    # The square of the noise divides squared errors.
    if not 1e-9 <= noise <= 1e9:
        raise ValueError(f"noise must be from 1e-09 to 1e+09, got {noise!r}")
    # Beside features of the order of 1, less would be lost in rounding.
    least = 100 * torch.finfo(dtype).eps
    if not least <= jitter <= 1e9:
        raise ValueError(
            f"jitter must be from {least:.1e} to 1e+09 in {dtype}, got {jitter!r}"
        )


def check_count(name: str, value: int) -> None:
    """Refuse a setting that is not a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a setting that is not one of some words."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _read(data: TensorDictBase, key: NestedKey, what: str) -> Tensor:
    entry = data.get(key, None)
    if entry is None:
        raise KeyError(f"missing entry {key!r}: the {what} of the items")
    return entry


def read_features(data: TensorDictBase, key: NestedKey) -> Tensor:
    """Features of a batch, floating-point numbers of shape ``(n, d0)``, or an error."""
    features = _read(data, key, "features")
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
    """Targets, floating-point numbers of shape ``(n,)`` or ``(n, K)``, or an error."""
    targets = _read(data, key, "targets")
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
    """Labels of a batch, whole numbers of shape ``(n,)``, or an error."""
    labels = _read(data, key, "class labels")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(
            f"entry {key!r} must hold class labels as whole numbers, got {labels.dtype}"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(
            f"entry {key!r} must hold one label per item, shape (n,), got "
            f"{tuple(labels.shape)}"
        )
    return labels


def check_labels(labels: NDArray[Any], num_classes: int, key: NestedKey) -> None:
    """Refuse a label that is not one of the classes."""
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if wrong.size:
        raise ValueError(
            f"entry {key!r} must hold labels from 0 to {num_classes - 1}, got "
            f"{labels[wrong[0]]} for item {wrong[0]}"
        )


def check_finite_entry(values: Tensor, key: NestedKey) -> None:
    """Refuse values that are not finite, naming the first."""
    wrong = torch.nonzero(~torch.isfinite(values))
    if len(wrong):
        place = wrong[0].tolist()
        raise ValueError(
            f"entry {key!r} must be finite, got {values[tuple(place)].item()} for "
            f"item {place[0]}"
        )


def check_range(
    values: Tensor, key: NestedKey, low: float, high: float, *, largest: float
) -> None:
    """Refuse values from ``low`` to ``high`` that are not finite or exceed ``largest``.

    Both are NaN if a value is. The values are read only to name a bad one.
    """
    if -largest <= low and high <= largest and math.isfinite(high - low):
        return
    check_finite_entry(values, key)
    raise ValueError(
        f"entry {key!r} has values up to {max(-low, high):g}, too large to compute "
        f"with; expected at most {largest:g}, and best of the order of 1"
    )
