"""Names of a package that are imported when they are asked for: :func:`lazy_names`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, modules: dict[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose names take long to import.

    Args:
        package: its name.
        modules: where each of its names is defined.

    Returns:
        A function for the package's ``__init__.py``.

    Example:
        >>> get = lazy_names("mine", {"sqrt": "math"})
        >>> get("sqrt")(9.0)
        3.0
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return get
