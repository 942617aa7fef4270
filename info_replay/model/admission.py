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
    # Groups only grow: no total is less than that of the numbers before, unless a group
    # is new, nor than if every group counted as the smallest of the items at the most.
    own = numbers[groups]
    smallest = own.min() if len(own) else 0
    may = (draws * np.minimum(numbers, smallest).sum() < 1).nonzero()[0]
    if smallest and may.size:
        may = may[draws[may] * _totals(admission, numbers, own[may]) < 1]
    if not may.size:
        return may
    found: list[int] = []
    for row in may.tolist():
        now = numbers + np.bincount(groups[: row + 1], minlength=len(numbers))
        if draws[row] * _totals(admission, now, now[groups[row]]) < 1:
            found.append(row)
            if len(found) == most:
                break
    return np.array(found, dtype=np.int64)


def _totals(admission: str, numbers: Places, own: Any) -> Any:
    """What items of groups of ``own`` items, shape ``(...)``, compete with."""
    seen = numbers[numbers > 0]
    count = len(seen)
    if admission == "balanced":
        return own * count
    seen.sort()
    cap = np.maximum(own, (seen[(count - 1) // 2] + seen[count // 2]) / 2)
    return np.minimum(seen, cap[..., None]).sum(-1)
