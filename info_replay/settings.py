"""Checks of settings: one clear error that names the value and what was expected."""

from __future__ import annotations

import math

__all__ = ["check_count", "check_finite", "check_positive"]


def check_finite(name: str, value: float) -> None:
    """Refuse a setting that is not a finite number."""
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")


def check_positive(name: str, value: float) -> None:
    """Refuse a setting that is not a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")


def check_count(name: str, value: int) -> None:
    """Refuse a setting that is not a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
