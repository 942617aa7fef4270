"""Which items of a batch replace which in the memory: :class:`Swaps`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from info_replay.candidates import MOST_POINTS
from info_replay.writers.offer import Offer, Plan

__all__ = ["MOST_SWAPS", "Swaps"]

#: Swaps that scores are corrected for before the candidates are set up anew.
MOST_SWAPS = MOST_POINTS // 2


class Swaps:
    """The swaps of a sequential algorithm: presumed at first, then certain.

    What an item meets depends on which items before it were written. Scores that
    presume the wrong swaps tell which swaps to presume next, and whatever they say up
    to the first wrong presumption is right. So a batch with some swaps takes two looks
    at its scores, and one with many two for every ``MOST_SWAPS + 1`` of them, unless it
    is a close run thing.

    Args:
        offer: the batch.
        stored: gives the row of what was in a slot before the batch, of the kind of
            the batch's rows.

    Attributes:
        plan: what is certain.
    """

    def __init__(self, offer: Offer, stored: Callable[[int], Any]) -> None:
        self._count = len(offer)
        self.plan = Plan.empty(self._count)
        self._offer = offer
        self._stored = stored
        self._batch = offer.candidates()
        self._certain: list[_Swap] = []  # since the candidates were set up
        self._presumed: list[_Swap] = []

    def points(self, start: int) -> tuple[Any, Any]:
        """What the items from one on meet: leverages ``(n,)``, residuals ``(n, K)``."""
        batch = self._batch
        swaps = [*self._certain, *self._presumed]
        if not swaps:
            return batch.leverage[start:], batch.residual[start:]
        return batch.after_swaps([(row, holder) for row, _, holder in swaps], start)

    def confirm(self, found: list[tuple[int, int]]) -> int:
        """Compare presumptions with what they led to, and presume that from now on.

        Args:
            found: the first ``MOST_SWAPS + 1`` swaps among the items whose
                :meth:`points` were asked for, rows and slots.

        Returns:
            The number of items of the batch for which everything is final.
        """
        presumed, self._presumed = self._presumed, []
        if not (found or presumed):
            return self._count
        agreed = 0
        for swap, presumption in zip(found, presumed, strict=False):
            if swap != presumption[:2]:
                break
            agreed += 1
        doubtful = [row for row, _ in found[agreed:]]
        doubtful += [swap.row for swap in presumed[agreed:]]
        final = 1 + min(doubtful, default=self._count - 1)
        sure = [swap for swap in found if swap[0] < final]
        for number, (row, slot) in enumerate(sure):
            holder = presumed[number].holder if number < agreed else self._holder(slot)
            if not isinstance(holder, int):
                self.plan.old.append(holder)
            self.plan.put(row, slot)
            self._certain.append(_Swap(row, slot, holder))
        if final < self._count:
            if len(self._certain) > MOST_SWAPS:
                self._batch, self._certain = self._offer.candidates(self.plan), []
            self._presume(found[len(sure) :])
        return final

    def _presume(self, swaps: list[tuple[int, int]]) -> None:
        owners: dict[int, int] = {}
        for row, slot in swaps[: MOST_SWAPS - len(self._certain)]:
            holder = owners[slot] if slot in owners else self._holder(slot)
            self._presumed.append(_Swap(row, slot, holder))
            owners[slot] = row

    def _holder(self, slot: int) -> Any:
        """What holds a slot for certain."""
        row = self.plan.owner(slot)
        return self._stored(slot) if row is None else row


class _Swap(NamedTuple):
    """An item takes a slot.

    Attributes:
        row: of the item.
        slot: where it goes.
        holder: what was there: an item of the same batch, or a row ``(1, d + K)``.
    """

    row: int
    slot: int
    holder: Any
