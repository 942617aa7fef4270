"""Classes and functions that are found by name: :class:`Registry`."""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

__all__ = [
    "CRITERIA",
    "POLICIES",
    "Registry",
    "installed_points",
    "register_criterion",
    "register_policy",
]

Entry = TypeVar("Entry", bound=Callable[..., Any])
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@functools.cache
def installed_points(group: str) -> tuple[EntryPoint, ...]:
    """Entry points of installed packages, looked for once per process.

    A look reads a file of every package, which takes 10 ms.

    Args:
        group: of the entry points.
    """
    return tuple(entry_points(group=group))


class Registry(Generic[Entry]):
    """Finds entries by name: registered here, in other packages, or anywhere.

    A name means, in this order: an entry that was registered in this process, an entry
    point of an installed package, or ``"module:Name"``, which needs no registration.

    Args:
        kind: what an entry is called in messages, such as ``"policy"``.
        group: the entry points of other packages that count as entries.

    Example:
        >>> colors = Registry("color", "my_package.colors")
        >>> @colors.register("red")
        ... def make_red():
        ...     return (255, 0, 0)
        >>> colors.get("red")(), colors.names()
        ((255, 0, 0), ['red'])
        >>> colors.get("collections:OrderedDict")
        <class 'collections.OrderedDict'>
        >>> colors.get("rde")
        Traceback (most recent call last):
            ...
        ValueError: color must be 'red' or 'module:Name', got 'rde'; did you mean 'red'?
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._entries: dict[str, Entry] = {}

    def register(self, name: str) -> Callable[[Decorated], Decorated]:
        """Register the decorated class or function.

        Args:
            name: to find it by.

        Returns:
            A decorator that returns what it is given.

        Raises:
            ValueError: if the name is taken by another entry.
        """
        if not name or ":" in name:
            raise ValueError(
                f"a {self.kind} needs a name without a colon, got {name!r}"
            )

        def decorate(entry: Decorated) -> Decorated:
            known = self._entries.get(name)
            if known is not None and _place(known) != _place(entry):
                raise ValueError(
                    f"the {self.kind} {name!r} is {_place(known)} already, got "
                    f"{_place(entry)}"
                )
            self._entries[name] = entry  # type: ignore[assignment]
            return entry

        return decorate

    def names(self) -> list[str]:
        """All names but those of the form ``"module:Name"``."""
        return [*self]

    def __iter__(self) -> Iterator[str]:
        """Registered names first, then those of other packages."""
        others = {point.name for point in installed_points(self.group)}
        return iter([*self._entries, *sorted(others - self._entries.keys())])

    def get(self, name: str) -> Entry:
        """The entry of a name.

        Args:
            name: registered, of an entry point, or ``"module:Name"``.

        Raises:
            ValueError: if there is none; the message lists the names.
        """
        if name in self._entries:
            return self._entries[name]
        if isinstance(name, str) and ":" in name:
            return self._import(name)
        for point in installed_points(self.group):
            if point.name == name:
                return self._checked(name, point.load())
        known = [*self]
        close = difflib.get_close_matches(str(name), known, 1)
        raise ValueError(
            f"{self.kind} must be {', '.join(map(repr, known))} or 'module:Name', got "
            f"{name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
        )

    def _import(self, name: str) -> Entry:
        """What ``"module:Name"`` stands for."""
        module_name, _, path = name.partition(":")
        try:
            entry: Any = importlib.import_module(module_name)
            for part in path.split("."):
                entry = getattr(entry, part)
        except (ImportError, AttributeError, ValueError) as error:
            message = f"cannot import the {self.kind} {name!r}: {error}"
            raise ValueError(message) from error
        return self._checked(name, entry)

    def _checked(self, name: str, entry: Any) -> Entry:
        if not callable(entry):
            raise ValueError(
                f"the {self.kind} {name!r} must be a class or function, got {entry!r}"
            )
        return entry


def _place(entry: Callable[..., Any]) -> str:
    """Where a class or function is defined; the same after a module is reloaded."""
    name = getattr(entry, "__qualname__", entry)
    return f"{getattr(entry, '__module__', '?')}:{name}"


#: Selection policies: each entry makes a :class:`~info_replay.SelectionWriter`.
POLICIES: Registry[Callable[..., Any]] = Registry("policy", "info_replay.policies")
#: Criteria: each entry makes a :class:`~info_replay.Criterion`.
CRITERIA: Registry[Callable[..., Any]] = Registry("criterion", "info_replay.criteria")


def register_policy(name: str) -> Callable[[Decorated], Decorated]:
    """Give a selection policy a name for :func:`~info_replay.make_replay_buffer`.

    Args:
        name: of the policy.

    Returns:
        A class decorator.

    Example:
        >>> from info_replay import ReservoirWriter, make_replay_buffer
        >>> @register_policy("my-rs")
        ... class MyReservoirWriter(ReservoirWriter):
        ...     pass
        >>> make_replay_buffer("my-rs", 10).writer
        MyReservoirWriter(write_count=0, reservoir_count=0)
    """
    return POLICIES.register(name)


def register_criterion(name: str) -> Callable[[Decorated], Decorated]:
    """Give a criterion a name for :func:`~info_replay.make_criterion`.

    Args:
        name: of the criterion.

    Returns:
        A class decorator.

    Example:
        >>> from info_replay import EntropyReduction, make_criterion
        >>> @register_criterion("my-er")
        ... class MyCriterion(EntropyReduction):
        ...     pass
        >>> make_criterion("my-er")
        MyCriterion()
    """
    return CRITERIA.register(name)
