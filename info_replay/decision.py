"""What a policy decides about a batch: :class:`Decision`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Decision", "Places", "check_decision", "keep_last", "last_rows"]

_INT64 = np.dtype(np.int64)

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


def check_decision(
    decision: Decision,
    count: int,
    *,
    size: int,
    capacity: int,
    policy: str,
    may_move: bool,
) -> Places:
    """Raise if a decision about some items cannot be carried out.

    Args:
        decision: what a policy returned.
        count: number of items that it is about.
        size: number of slots in use.
        capacity: number of slots.
        policy: name of the writer that decided.
        may_move: whether it may move items and give up slots.

    Returns:
        The rows of the items that are kept.

    Raises:
        TypeError: if it is not a decision, or slots are not an array of int64.
        ValueError: if there are too few or too many slots, or they are out of range,
            given twice, or would leave a gap.
    """
    who = f"{policy}.decide()"
    if not isinstance(decision, Decision) or not callable(decision.commit):
        raise TypeError(
            f"{who} must return a Decision with a commit() to call, got {decision!r}"
        )
    slots = decision.slots
    if not isinstance(slots, np.ndarray) or slots.dtype != _INT64:
        found = f"{type(slots).__name__} {getattr(slots, 'dtype', '')}".strip()
        raise TypeError(f"{who} must give a NumPy array of int64, got a {found}")
    if slots.shape != (count,):
        raise ValueError(
            f"{who} must give one slot per item, shape ({count},), got {slots.shape}"
        )
    rows: Places = (slots >= 0).nonzero()[0]
    none = np.count_nonzero(slots == -1)
    if none == count and decision.moves is None and decision.size is None:
        return rows
    used = slots[rows]
    if decision.moves is not None:
        used = np.concatenate([used, _check_moves(decision, size, who)])
    used.sort()
    most = capacity if decision.size is None else decision.size
    if type(most) is not int or not 0 <= most <= capacity:
        raise ValueError(f"{who} must give a size from 0 to {capacity}, got {most!r}")
    given = decision.moves is not None or decision.size is not None
    if given and not may_move:
        raise ValueError(f"{who} may move items only if {policy}.compacts")
    if rows.size + none != count or (used.size and not 0 <= used[0] <= used[-1] < most):
        wrong = [*slots[(slots < -1) | (slots >= most)], *used[used < 0], *used[-1:]]
        raise ValueError(
            f"{who} must give slots from 0 to {most - 1}, or -1, got {wrong[0]}"
        )
    twice = used[1:] == used[:-1]
    if np.count_nonzero(twice):
        raise ValueError(
            f"{who} gave slot {used[1:][twice][0]} to several items; keep_last() lets "
            "the last one have it"
        )
    new = used[used.searchsorted(size) :]
    if new.size and new[-1] != size + new.size - 1:
        raise ValueError(
            f"{who} must use free slots from slot {size} on without a gap, got "
            f"{new.tolist()}"
        )
    return rows


def _check_moves(decision: Decision, size: int, who: str) -> Places:
    """The slots that items are moved to."""
    assert decision.moves is not None
    sources, destinations = decision.moves
    if {getattr(part, "dtype", None) for part in decision.moves} != {_INT64}:
        raise TypeError(f"{who} must move arrays of int64, got {decision}")
    if len(sources) != len(destinations) or (
        len(sources) and not 0 <= sources.min() <= sources.max() < size
    ):
        raise ValueError(
            f"{who} must move items of the {size} slots in use, each to one slot, got "
            f"moves from {sources.tolist()} to {destinations.tolist()}"
        )
    return destinations


def keep_last(places: Places) -> Places:
    """Let the last item that was given a slot have it; earlier ones get -1.

    Args:
        places: the slot of each item in order of arrival, -1 for none.

    Returns:
        The slots that hold after the whole batch.

    Example:
        >>> keep_last(np.array([2, 0, -1, 2]))
        array([-1,  0, -1,  2])
    """
    return np.where(_is_last(places), places, -1)


def last_rows(places: Places) -> Places:
    """The rows that hold a slot after the whole batch; see :func:`keep_last`."""
    return _is_last(places).nonzero()[0]


def _is_last(places: Places) -> NDArray[np.bool_]:
    """Whether each item is the last that was given its slot."""
    # The last assignment to a slot stands. The last place is for items without one.
    rows = np.arange(len(places))
    owner = np.empty(int(places.max()) + 2, dtype=np.int64)
    owner[places] = rows
    owner[-1] = -1
    held: NDArray[np.bool_] = owner[places] == rows
    return held
