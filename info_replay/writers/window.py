"""The last slots of a storage, managed by a writer of their own: :class:`Window`.

A writer that works on a window numbers its slots from 0 and never sees the slots before
them, nor what is written there on behalf of the writer that owns both parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.writers.generations import Generations
from info_replay.writers.host import Counters
from info_replay.writers.slots import Slots

__all__ = ["Window", "WindowGenerations"]


class Window(Slots):
    """The slots of a storage from one of them on.

    Args:
        whole: all slots of the storage.
        first: the slot that is slot 0 of the window.
    """

    def __init__(self, whole: Slots, first: int) -> None:
        self.whole = whole
        self.storage = whole.storage
        self.first = first
        self._counters = Counters("overlooked")  # revisions
        self._views: dict[NestedKey, tuple[Tensor, Tensor]] = {}

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return self.whole.capacity - self.first

    def __len__(self) -> int:
        """Number of slots in use, always the first ones."""
        return max(0, super().__len__() - self.first)

    @property
    def revision(self) -> int:
        """A number that moves with every write that is not overlooked."""
        return self.whole.revision - self._counters["overlooked"]

    @contextlib.contextmanager
    def overlook(self) -> Iterator[None]:
        """Let what is written meanwhile leave no trace; it must be to other slots.

        Without it, statistics of the window would start again with every write beside
        it.
        """
        whole = self.whole
        revision = whole.revision
        yield
        self._counters["overlooked"] += whole.revision - revision

    def leaf(self, key: NestedKey) -> Tensor:
        """A view of one of the stored tensors, the same one until that is replaced."""
        source = self.whole.leaf(key)
        known = self._views.get(key)
        if known is None or known[0] is not source:
            known = self._views[key] = source, source[self.first :]
        return known[1]

    def read(self, where: slice | Tensor) -> TensorDictBase:
        """The items of some slots in use; of a slice, a view."""
        if isinstance(where, slice):
            start, stop, step = where.indices(len(self))
            return super().read(slice(self.first + start, self.first + stop, step))
        return super().read(where + self.first)

    def share_memory_(self) -> None:
        """Let child processes overlook what this one does, and the other way round."""
        self._counters.share_memory_()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the views out: the twin has a storage of its own."""
        return {**self.__dict__, "_views": {}}


class WindowGenerations(Generations):
    """The stamps of a window, kept, saved and shared with those of all slots.

    Args:
        whole: the stamps of all slots.
        window: the slots that these are of.
    """

    def __init__(self, whole: Generations, window: Window) -> None:
        super().__init__()
        self._whole = whole
        self._window = window

    @property
    def stamps(self) -> Tensor | None:
        """A view of the stamps of all slots."""
        stamps = self._whole.stamps
        return None if stamps is None else stamps[self._window.first :]

    def prepare(self, slots: Slots) -> Tensor:
        """The stamps; see :meth:`Generations.prepare`."""
        return self._whole.prepare(self._window.whole)[self._window.first :]

    def load_state(self, slots: Slots, state: Tensor | None) -> None:
        """Nothing: the stamps of all slots are loaded together."""
