"""How settings name objects that were given in Python: :func:`object_name`."""

from __future__ import annotations

from typing import Any

__all__ = ["is_object", "object_name"]


def object_name(thing: Any) -> str:
    """What a setting says of an object that was given in Python.

    Args:
        thing: a name, which stays as it is, a class, a function or any other object.

    Returns:
        ``"module:Name"`` of what can be imported under that name, else ``"<Name>"``.

    Example:
        >>> import math
        >>> object_name(math.sqrt), object_name(lambda x: x), object_name([1, 2])
        ('math:sqrt', '<lambda>', '<list>')
    """
    if isinstance(thing, str):
        return thing
    name = getattr(thing, "__qualname__", None)
    module = getattr(thing, "__module__", None)
    if name is None or "<" in name or module in (None, "__main__", "builtins"):
        name = name or type(thing).__name__
        return f"<{name.rpartition('.')[2].strip('<>')}>"
    return f"{module}:{name}"


def is_object(name: str | None) -> bool:
    """Whether a setting stands for an object that cannot be imported."""
    return name is not None and name.startswith("<")
