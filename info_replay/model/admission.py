"""Which items of a stream of groups a reservoir stores: :func:`admitted`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ADMISSION", "admitted"]

Places = NDArray[np.int64]

#: How the items of groups count: see :func:`admitted`.
ADMISSION = ("reservoir", "capped", "balanced")


def admitted(
    admission: str, numbers: Places, groups: Places, draws: Any, most: int
) -> Places:
    """Which items that take part are stored, up to the first ``most`` of them.

    An item is stored with probability ``M / N``, where ``N`` counts it and all before
    it that took part:

    * ``"reservoir"``: all of them, as in reservoir sampling;
    * ``"capped"``: of each group no more than the item's own group or the median of all
      groups has;
    * ``"balanced"``: of each group as many as of the item's own.

    Args:
        admission: how groups count.
        numbers: items of each group that took part before.
        groups: of the items.
        draws: random numbers in [0, 1 / M) of the items.
        most: how many are asked for.

    Returns:
        Their numbers, ascending.

    Example:
        >>> groups = np.array([0] * 8 + [1])
        >>> draws = np.full(9, 0.3)
        >>> admitted("reservoir", np.zeros(2, dtype=int), groups, draws, most=9)
        array([0, 1, 2])
        >>> admitted("balanced", np.zeros(2, dtype=int), groups, draws, most=9)
        array([0, 1, 2, 8])
    """
    if admission == "reservoir":
        totals = numbers.sum() + 1 + np.arange(len(groups))
        return (draws * totals < 1).nonzero()[0][:most]
    # Without a new group, no total is less than that of the numbers before.
    own = numbers[groups]
    may = np.arange(len(groups))
    if own.all():
        may = (draws * _totals(admission, numbers, own) < 1).nonzero()[0]
    found: list[int] = []
    for row in may.tolist():
        now = numbers + np.bincount(groups[: row + 1], minlength=len(numbers))
        if draws[row] * _totals(admission, now, now[groups[row]]) < 1:
            found.append(row)
            if len(found) == most:
                break
    return np.array(found, dtype=np.int64)


def _totals(admission: str, numbers: Places, own: Any) -> Any:
    """What an item of a group of ``own`` items competes with."""
    seen = np.sort(numbers[numbers > 0])
    count = len(seen)
    if admission == "balanced":
        return own * count
    cap = np.maximum(own, (seen[(count - 1) // 2] + seen[count // 2]) / 2)
    below = seen.searchsorted(cap)
    return np.concatenate([[0], seen.cumsum()])[below] + cap * (count - below)
