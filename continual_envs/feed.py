"""What yields the samples of a live stream: :class:`Feed`."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["Feed", "is_function"]

_FIRST_SEED = 0  # to see what a function returns, before a seed is given


def is_function(data: Any) -> bool:
    """Whether something has to be called to get at its samples."""
    return callable(data) and not hasattr(data, "__iter__")


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
        self._waiting: Any = None  # opened already, for the first start

    def open(self) -> Any:
        """What yields the samples, before it is known with which seed to start.

        Returns:
            The data, or what the function returned; the first start goes on with it
            unless it was made for another seed.
        """
        if self._waiting is None:
            self._waiting = self._open(_FIRST_SEED)
        return self._waiting

    def peek(self) -> Any:
        """The first sample or batch, which a start gives again.

        Raises:
            ValueError: if there is none.
        """
        opened = self.open()
        keeps_place = hasattr(opened, "state_dict")
        state = opened.state_dict() if keeps_place else None
        iterator = iter(opened)
        try:
            first = next(iterator)
        except StopIteration:
            raise ValueError("the stream has no samples: it ended at once") from None
        if keeps_place:
            opened.load_state_dict(state)
        else:  # what starts only once, or at some cost, goes on from here
            self._waiting = itertools.chain([first], iterator)
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
        waiting, self._waiting = self._waiting, None
        if waiting is not None and (seed == _FIRST_SEED or not self._takes_seed()):
            return waiting
        del waiting  # closes it: a camera cannot be opened twice at once
        return self._open(seed)

    def _takes_seed(self) -> bool:
        return is_function(self._data) and _takes_seed(self._data)  # type: ignore[arg-type]

    def _open(self, seed: int) -> Any:
        data: Any = self._data
        if is_function(data):
            return data(seed=seed) if self._takes_seed() else data()
        if isinstance(data, Iterator):
            if self._has_started:
                raise ValueError(
                    f"this {type(data).__name__} has started and cannot start again: "
                    "give a function that returns a new one"
                )
            self._has_started = True
        return data


def _takes_seed(function: Callable[..., Any]) -> bool:
    """Whether a function has an argument ``seed``."""
    try:
        return "seed" in inspect.signature(function).parameters
    except ValueError:  # some functions written in C do not tell
        return False
