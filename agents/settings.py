"""Typed settings whose fields carry their help, ranges, choices and groups.

Nothing heavy is imported before a value is checked, so that the command line can show
its help at once.
"""

from __future__ import annotations

import dataclasses
import importlib
import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Settings", "check_choice", "option"]

#: How a value compares with each kind of bound, and how a message says so.
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "min": (operator.ge, "at least"),
    "above": (operator.gt, "above"),
    "max": (operator.le, "at most"),
    "below": (operator.lt, "below"),
}
_LARGEST = sys.float_info.max  # a whole number of JSON's may be larger
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a finite number"),
    "str": ((str,), "text"),
    "bool": ((bool,), "True or False"),
}


def option(
    default: Any,
    help: str,
    *,
    group: str = "run",
    matters: bool = True,
    choices: Iterable[str] | str | None = None,
    check: Callable[[Any], object] | None = None,
    **bounds: float,
) -> Any:
    """A field of :class:`Settings`.

    Args:
        default: its value unless given.
        help: one line for the command line.
        group: under which the help lists it.
        matters: whether results depend on it; if not, a run may be continued with
            another value.
        choices: the values that there are; of a :class:`~info_replay.registry.Registry`
            also those that it finds. ``"module:NAME"`` is imported when it is needed.
        check: called with a value, to raise a ``ValueError`` that says what is wrong.
        **bounds: any of ``min``, ``above``, ``max`` and ``below``.
    """
    if unknown := bounds.keys() - _BOUNDS.keys():
        raise TypeError(f"bounds must be of {[*_BOUNDS]}, got {sorted(unknown)}")
    metadata = {
        "help": help,
        "group": group,
        "matters": matters,
        "choices": choices,
        "check": check,
        "bounds": bounds,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """Settings of a run; a value that is not what its field allows is refused.

    Example:
        >>> @dataclass(frozen=True)
        ... class Cooking(Settings):
        ...     minutes: int = option(5, "how long to cook", min=1, max=60)
        ...     salt: float | None = option(None, "grams of it", above=0)
        >>> Cooking(salt=3.5).as_dict()
        {'minutes': 5, 'salt': 3.5}
        >>> Cooking(minutes=0)
        Traceback (most recent call last):
            ...
        ValueError: minutes must be at least 1 and at most 60, got 0
    """

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            ValueError: naming the field, what it must be, and the value.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if type(value).__module__ == "numpy" and not getattr(value, "ndim", 1):
                value = value.item()  # a number of NumPy's
                object.__setattr__(self, field.name, value)
            if value is None and "None" in str(field.type):
                continue
            _check_type(field.name, value, str(field.type))
            _check_bounds(field.name, value, field.metadata["bounds"])
            if field.metadata["choices"] is not None:
                check_choice(field.name, value, field.metadata["choices"])
            if field.metadata["check"] is not None:
                field.metadata["check"](value)
            if type(value) is int and str(field.type).startswith("float"):
                # The same run, whether a file or the command line says it.
                object.__setattr__(self, field.name, float(value))

    def as_dict(self) -> dict[str, Any]:
        """The settings by name."""
        return dataclasses.asdict(self)

    def what_matters(self) -> dict[str, Any]:
        """The settings that results depend on, by name."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.metadata["matters"]
        }


def check_choice(name: str, value: str, choices: Iterable[str] | str) -> None:
    """Refuse a value that is none of the choices.

    Args:
        name: of the setting.
        value: its value.
        choices: the values that there are, or ``"module:NAME"`` of them.

    Raises:
        ValueError: with the choices.
    """
    if isinstance(choices, str):
        module, _, attribute = choices.partition(":")
        choices = getattr(importlib.import_module(module), attribute)
    find = getattr(choices, "get", None)  # of a registry
    if find is not None and not isinstance(choices, dict):
        find(value)
    elif value not in [*choices]:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _check_type(name: str, value: object, annotation: str) -> None:
    """Refuse a value of another type than its field's, or one that is not finite."""
    kind = annotation.split(" ")[0]
    types, words = _TYPES[kind]
    fits = isinstance(value, types) and isinstance(value, bool) == (kind == "bool")
    if not fits or (kind == "float" and not abs(value) <= _LARGEST):  # type: ignore[arg-type]
        raise ValueError(f"{name} must be {words}, got {value!r}")


def _check_bounds(name: str, value: Any, bounds: dict[str, float]) -> None:
    """Refuse a value that is too small or too large."""
    if not all(_BOUNDS[kind][0](value, bound) for kind, bound in bounds.items()):
        words = [f"{_BOUNDS[kind][1]} {bound}" for kind, bound in bounds.items()]
        raise ValueError(f"{name} must be {' and '.join(words)}, got {value!r}")
