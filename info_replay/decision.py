"""What a policy decides about a batch: :class:`Decision`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Decision", "Places"]

#: Slots, or rows of a batch.
Places = NDArray[np.int64]


def _nothing() -> None:
    """What is to be done where nothing is kept."""


@dataclass
class Decision:
    """Where the items of a batch go; nothing is changed until it is carried out.

    A memory has no gaps: its items are always in the first slots. So items that are
    stored while there is room get the next free slots, and where items leave without
    others in their places the rest must close the gaps: see :meth:`compacting`.

    Args:
        slots: the slot of each item, int64 of shape ``(n,)``, -1 where it is not kept.
        commit: called once all is written. What the policy keeps is changed there and
            nowhere else, so a refused batch leaves no trace.
        moves: slots whose items are copied to other slots before items are written,
            and the slots that they are copied to.
        size: number of slots in use afterwards, if it is to be smaller than before.

    Example:
        >>> import numpy as np
        >>> Decision(np.array([0, -1, 1])).slots
        array([ 0, -1,  1])
    """

    slots: Places
    commit: Callable[[], None] = _nothing
    moves: tuple[Places, Places] | None = None
    size: int | None = None

    @classmethod
    def compacting(
        cls, kept: Places, rows: Places, count: int, commit: Callable[[], None]
    ) -> Decision:
        """From now on the memory is some of its items and some of the batch.

        Items stay where they are unless they have to close a gap.

        Args:
            kept: slots whose items stay, all different.
            rows: rows of the batch that come in, all different.
            count: number of items in the batch.
            commit: called once all is written; declared per-slot numbers have moved
                with their items by then.

        Returns:
            The decision.

        Example:
            >>> import numpy as np
            >>> kept, rows = np.array([0, 2, 5]), np.array([7])
            >>> decision = Decision.compacting(kept, rows, 8, lambda: None)
            >>> decision.moves, decision.slots[7]
            ((array([5]), array([1])), np.int64(3))
        """
        size = len(kept) + len(rows)
        free = np.setdiff1d(np.arange(size), kept)
        sources = np.sort(kept[kept >= size])
        slots = np.full(count, -1)
        slots[rows] = free[len(sources) :]
        return cls(slots, commit, (sources, free[: len(sources)]), size)

    def follow(self, slots: Places) -> Places:
        """Where items are after this decision, -1 for those that are gone.

        Args:
            slots: where they were before, -1 for those that were gone.
        """
        none = np.empty(0, dtype=np.int64)
        sources, destinations = (none, none) if self.moves is None else self.moves
        gone = np.isin(slots, np.concatenate([self.slots, destinations]))
        if self.size is not None:
            gone |= slots >= self.size
        after = np.where(gone, -1, slots)
        if sources.size:
            order = sources.argsort()
            ordered = sources[order]
            place = ordered.searchsorted(slots).clip(max=ordered.size - 1)
            moved = ordered[place] == slots
            after[moved] = destinations[order][place[moved]]
        return after
