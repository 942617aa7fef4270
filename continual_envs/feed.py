"""What yields the samples of a live stream: :class:`Feed`."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Feed", "is_function", "takes_seed"]


def is_function(data: Any) -> bool:
    """Whether something has to be called to get at its samples."""
    return callable(data) and not hasattr(data, "__iter__")


def takes_seed(function: Callable[..., Any]) -> bool:
    """Whether a function has an argument ``seed``."""
    try:
        return "seed" in inspect.signature(function).parameters
    except ValueError:  # some functions written in C do not tell
        return False


class Feed:
    """Something that yields samples and can be started, if possible more than once.

    Args:
        data: an iterator (which starts once), an iterable, or a function that returns
            one of these; a function that takes ``seed`` is given the seed of the
            stream.

    Example:
        >>> def count(seed):
        ...     return itertools.count(seed)
        >>> next(Feed(count).start(seed=7))
        7
    """

    def __init__(self, data: Iterable[Any] | Callable[..., Iterable[Any]]) -> None:
        self._data = data
        self._has_started = False
        self._peeked: Iterable[Any] | None = None

    def peek(self) -> Any:
        """The first sample or batch, which a start gives again.

        Raises:
            ValueError: if there is none.
        """
        opened = self._open(seed=0)
        iterator = iter(opened)
        try:
            first = next(iterator)
        except StopIteration:
            raise ValueError("the stream has no samples: it ended at once") from None
        # What starts only once, or at some cost, goes on from here.
        if iterator is opened and not self._takes_seed():
            self._peeked = itertools.chain([first], iterator)
        return first

    def start(self, seed: int) -> Any:
        """The samples from the beginning.

        Args:
            seed: for a function that takes one.

        Returns:
            Something to iterate over once.

        Raises:
            ValueError: if this is an iterator that has started already.
        """
        if self._peeked is not None:
            peeked, self._peeked = self._peeked, None
            return peeked
        return self._open(seed)

    def _takes_seed(self) -> bool:
        return is_function(self._data) and takes_seed(self._data)  # type: ignore[arg-type]

    def _open(self, seed: int) -> Any:
        data: Any = self._data
        if is_function(data):
            return data(seed=seed) if takes_seed(data) else data()
        if iter(data) is data:
            if self._has_started:
                raise ValueError(
                    f"this {type(data).__name__} has started and cannot start again: "
                    "give a function that returns a new one"
                )
            self._has_started = True
        return data
