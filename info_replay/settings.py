"""Checks of settings: one clear error that names the value and what was expected."""

from __future__ import annotations

import math

__all__ = ["check_finite", "check_num_classes", "check_positive"]


def check_finite(name: str, value: float) -> None:
    """Refuse a setting that is not a finite number."""
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")


def check_positive(name: str, value: float) -> None:
    """Refuse a setting that is not a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")


def check_num_classes(num_classes: int) -> None:
    """Refuse a number of classes that is not a whole number above 0."""
    if isinstance(num_classes, bool) or not isinstance(num_classes, int):
        raise TypeError(f"num_classes must be a whole number, got {num_classes!r}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
