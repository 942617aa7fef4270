"""A sequential algorithm at batch speed: :class:`SequentialScores`.

What an item scores depends on which items before it were written. Scores that presume
the wrong swaps tell which swaps to presume next, and whatever they say up to the first
wrong presumption is right. So a batch with some swaps takes two looks at its scores,
and one with many takes two for every ``MOST_SWAPS + 1`` of them, unless presumptions
fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from info_replay.model.candidates import MOST_POINTS, CandidateBatch, rounding_shows
from info_replay.model.criteria import Criterion
from info_replay.model.linear_algebra import row_products
from info_replay.model.scored_batch import Changes, ScoredBatch

__all__ = ["MOST_SWAPS", "Assignment", "SequentialScores"]

#: Swaps that scores are corrected for before the candidates are set up anew.
MOST_SWAPS = MOST_POINTS // 2

State = TypeVar("State")
#: Given the first item that is asked about, the scores from it on by each criterion,
#: and the algorithm's state before it: the items that enter the memory, their slots,
#: and the state after so many of the items.
Accept = Callable[
    [int, list[NDArray[np.float64]], State],
    tuple[NDArray[np.int64], NDArray[np.int64], Callable[[int], State]],
]


class SequentialScores:
    """Scores of items of which each meets the memory that the one before it left.

    Args:
        batch: the items, of which some will replace items of a full memory.
        *criteria: what to score with, at least one.

    Attributes:
        assignment: the swaps that are certain.
    """

    def __init__(self, batch: ScoredBatch, *criteria: Criterion) -> None:
        self.batch = batch
        self.criteria = criteria
        self.assignment = Assignment(batch.count)
        self._candidates = batch.candidates()
        self._certain: list[_Swap] = []  # since the candidates were set up
        self._presumed: list[_Swap] = []
        self._most_swaps = MOST_SWAPS

    def run(self, accept: Accept[State], state: State) -> State:
        """Let an algorithm decide about every item, given exactly what it scores.

        Args:
            accept: the algorithm; it is asked again about items whose scores turn out
                to be different.
            state: of the algorithm before the first item.

        Returns:
            Its state after the last item; the swaps are in :attr:`assignment`.
        """
        batch = self.batch
        start, count = 0, batch.count
        while start < count:
            leverage, errors, *changed = batch.fetch(*self._points(start))
            if changed and rounding_shows(changed[0], batch.memory.dtype):
                self._go_one_by_one()
                continue
            scores = [
                batch.score(criterion, leverage, errors, start)
                for criterion in self.criteria
            ]
            rows, slots, state_after = accept(start, scores, state)
            first = slice(0, self.look_ahead)
            found = [*zip(rows[first].tolist(), slots[first].tolist(), strict=True)]
            final = self._confirm(found) if found or self._presumed else count
            state = state_after(final - start)
            start = final
        return state

    @property
    def presumed(self) -> dict[int, int]:
        """Swaps that the scores presume and that are not certain: slots by item."""
        return {swap.row: swap.slot for swap in self._presumed}

    @property
    def look_ahead(self) -> int:
        """Swaps that a look can use; slots of later ones need not be found out."""
        return self._most_swaps + 1

    def leave_one_out(
        self, items: Sequence[int], slots: Sequence[NDArray[np.int64]]
    ) -> list[NDArray[np.float64]]:
        """What stored items would score if they were not in the memory (Sec. 2.4).

        To be asked by the algorithm while :meth:`run` asks it: the answer presumes the
        same swaps as the scores.

        Args:
            items: rows of the batch, ascending, at least one.
            slots: that may be of interest to each of them.

        Returns:
            For each item, the first criterion of what is in its slots when it comes.
        """
        batch, swaps = self.batch, self._certain + self._presumed
        cuts = np.cumsum([len(each) for each in slots])
        rows = self._rows_met(items, slots)
        stored = CandidateBatch(self._candidates.statistics, rows)
        leverage, residual = stored.leverage, stored.residual
        if swaps:
            join: Any = np.concatenate if isinstance(rows, np.ndarray) else torch.cat
            before = [sum(item <= swap.row for item in items) for swap in swaps]
            leverage, residual = stored.after_swaps_of_others(
                batch.rows[[swap.row for swap in swaps]],
                join([swap.leaving for swap in swaps]),
                [0 if not count else int(cuts[count - 1]) for count in before],
            )
        # 1 - v, whose least value an item far from all others has. There rounding would
        # show.
        statistics = stored.statistics
        features = rows[:, : statistics.feature_dim]
        least = 1 / (1 + row_products(features, features) / statistics.jitter)
        found = batch.fetch(leverage, batch.errors(residual), least)
        return [
            batch.score_left_out(self.criteria[0], v, errors, bound, item)
            for item, v, errors, bound in zip(
                items, *(np.split(each, cuts[:-1]) for each in found), strict=True
            )
        ]

    def _rows_met(
        self, items: Sequence[int], slots: Sequence[NDArray[np.int64]]
    ) -> Any:
        """Rows ``(n, d + K)`` of what is in slots when items come, item by item."""
        rows = self.batch.memory.rows(np.concatenate(slots))
        owner, presumed = dict(self.assignment.owner), [*self._presumed]
        place = 0
        for item, its in zip(items, slots, strict=True):
            while presumed and presumed[0].row < item:
                swap = presumed.pop(0)
                owner[swap.slot] = swap.row
            for slot in its.tolist():
                if slot in owner:
                    rows[place] = self.batch.rows[owner[slot]]
                place += 1
        return rows

    def _points(self, start: int) -> list[Any]:
        """Leverages ``(n,)`` and errors of the items from one on.

        With swaps also the leverages of what comes and goes: see
        :func:`~info_replay.model.candidates.rounding_shows`.
        """
        candidates, swaps = self._candidates, self._certain + self._presumed
        if not swaps:
            leverage = candidates.leverage[start:]
            if not self._most_swaps:
                leverage = leverage.clip(min=0)
            return [leverage, self.batch.errors(candidates.residual[start:])]
        rows, _, leaving = zip(*swaps, strict=True)
        join: Any = np.concatenate
        if isinstance(leaving[0], torch.Tensor):
            join = torch.cat
        leverages, residuals, changed = candidates.after_swaps(
            [*rows], join(leaving), start
        )
        return [leverages, self.batch.errors(residuals), changed]

    def _go_one_by_one(self) -> None:
        """Set up candidates after every swap from now on: rounding would show."""
        self._most_swaps = 0
        self._presumed = []
        if self._certain:
            self._set_up()

    def _set_up(self) -> None:
        """Hold the items against the memory as it is after all certain swaps."""
        changes = self.assignment.changes(self.batch.rows)
        self._candidates = self.batch.candidates(changes)
        self._certain = []

    def _confirm(self, found: list[tuple[int, int]]) -> int:
        """Compare presumptions with what they led to, and presume that from now on.

        Args:
            found: rows and slots of the first swaps among the items that were asked
                about, one more than may be presumed.

        Returns:
            The number of items of the batch for which everything is final.
        """
        count, presumed = self.batch.count, self._presumed
        agreed = 0
        for pair, presumption in zip(found, presumed, strict=False):
            if pair != presumption[:2]:
                break
            agreed += 1
        # From the first swap on that was not presumed, or that did not come, scores
        # must be looked at again.
        final = count
        if agreed < len(found):
            final = found[agreed][0] + 1
        if agreed < len(presumed):
            final = min(final, presumed[agreed].row + 1)
        swaps = presumed[:agreed]
        if agreed < len(found):
            swaps += self._swaps(found, agreed)
        sure = 0
        while sure < len(swaps) and swaps[sure].row < final:
            self.assignment.give(*swaps[sure])
            sure += 1
        self._certain += swaps[:sure]
        if final < count and len(self._certain) > self._most_swaps:
            self._set_up()
        self._presumed = swaps[sure:][: self._most_swaps - len(self._certain)]
        return final

    def _swaps(self, found: list[tuple[int, int]], agreed: int) -> list[_Swap]:
        """Those found that were not presumed, with what they replace; at least one."""
        owner = dict(self.assignment.owner)
        for row, slot in found[:agreed]:
            owner[slot] = row
        rows, slots = zip(*found[agreed:], strict=True)
        stored = self.batch.memory.rows([*slots])
        swaps = []
        for number, (row, slot) in enumerate(zip(rows, slots, strict=True)):
            holder = owner.get(slot)
            if holder is None:
                leaving = stored[number : number + 1]
            else:
                leaving = self.batch.rows[holder : holder + 1]
            owner[slot] = row
            swaps.append(_Swap(row, slot, leaving))
        return swaps


class Assignment:
    """Which items of a batch get which slots, while that is being decided.

    Args:
        count: number of items.

    Attributes:
        slots: the slot of each item, -1 for none.
        owner: the item that has a slot, by slot.
    """

    def __init__(self, count: int) -> None:
        self.slots = np.full(count, -1)
        self.owner: dict[int, int] = {}
        self._old: list[Any] = []

    def give(self, row: int, slot: int, old: Any) -> None:
        """Give an item a slot.

        Args:
            row: of the item.
            slot: that it gets.
            old: row ``(1, d + K)`` of what held the slot.
        """
        previous = self.owner.get(slot)
        if previous is None:
            self._old.append(old)
        else:
            self.slots[previous] = -1
        self.owner[slot] = row
        self.slots[row] = slot

    def changes(self, rows: Any) -> Changes:
        """What the memory loses and gains.

        Args:
            rows: of all items, shape ``(n, d + K)``.

        Returns:
            Old rows, new rows and their slots.
        """
        new = (self.slots >= 0).nonzero()[0]
        if isinstance(rows, np.ndarray):
            return np.concatenate(self._old), rows[new], self.slots[new]
        pick = torch.from_numpy(new).to(rows.device)
        return torch.cat(self._old), rows.index_select(0, pick), self.slots[new]


class _Swap(NamedTuple):
    """An item takes a slot.

    Attributes:
        row: of the item.
        slot: where it goes.
        leaving: row ``(1, d + K)`` of what was there.
    """

    row: int
    slot: int
    leaving: Any
