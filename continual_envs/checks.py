"""Checks of single options, with the words of their errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["check_count", "check_share", "check_switch", "is_number", "is_whole"]


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, of Python or numpy; ``True`` is none.

    Args:
        value: anything.

    Returns:
        Whether it is.
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is a finite number, of Python or numpy; ``True`` is none.

    Args:
        value: anything.

    Returns:
        Whether it is.
    """
    if isinstance(value, bool) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        return False
    return math.isfinite(value)


def check_count(name: str, value: Any, otherwise: str = "") -> None:
    """Refuse what is not a whole number of at least 1.

    Args:
        name: of the option.
        value: of the option.
        otherwise: what else is allowed, for the message.
    """
    if not is_whole(value) or value < 1:
        raise ValueError(
            f"{name} must be a whole number of at least 1{otherwise}, got {value!r}"
        )


def check_share(name: str, value: Any) -> None:
    """Refuse what is not a number from 0 to 1.

    Args:
        name: of the option.
        value: of the option.
    """
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")


def check_switch(name: str, value: Any) -> None:
    """Refuse what is neither ``True`` nor ``False``.

    Args:
        name: of the option.
        value: of the option.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
