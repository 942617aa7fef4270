"""Fields of typed settings, and the checks that they share."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

import threadpoolctl
import torch

__all__ = [
    "check_choice",
    "check_device",
    "check_least",
    "check_type",
    "choose_device",
    "option",
    "prepare_machine",
]


def option(default: Any, text: str) -> Any:
    """A field with a default and a line of help."""
    return field(default=default, metadata={"help": text})


def choose_device(name: str) -> torch.device:
    """The device of that name; for ``"auto"`` the best there is."""
    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def check_device(name: str) -> None:
    """Refuse what is no device to compute on."""
    try:
        kind = torch.device("cpu" if name == "auto" else name).type
    except RuntimeError:
        kind = "meta"
    if kind == "meta":
        raise ValueError(
            f"device must be 'auto', 'cpu', 'cuda' or one of torch's, got {name!r}"
        )


def prepare_machine(device: str, threads: int | None) -> None:
    """Refuse a device that is not here, and limit the threads of this process.

    Raises:
        ValueError: naming the device.
    """
    try:
        torch.empty(0, device=choose_device(device))
    except (RuntimeError, AssertionError):
        raise ValueError(
            f"device {device!r} is not available here; give 'cpu'"
        ) from None
    if threads is not None:
        torch.set_num_threads(threads)
        threadpoolctl.threadpool_limits(threads, user_api="blas")


def check_choice(name: str, value: str, choices: list[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_type(name: str, value: object, annotation: str) -> None:
    """Refuse a value of another type than its field's, or one that is not finite."""
    if value is None and "None" in annotation:
        return
    kind = annotation.split(" ")[0]
    fits = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value),
        "str": isinstance(value, str),
        "bool": isinstance(value, bool),
    }[kind]
    if not fits:
        words = {
            "int": "a whole number",
            "float": "a finite number",
            "str": "text",
            "bool": "True or False",
        }
        raise ValueError(f"{name} must be {words[kind]}, got {value!r}")


def check_least(name: str, value: float, least: float) -> None:
    """Refuse a value that is too small."""
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}")
