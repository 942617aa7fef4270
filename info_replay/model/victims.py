"""Which stored items may leave for a new one: :func:`draw_victims`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["VICTIMS", "draw_victims", "first_of_least"]

Places = NDArray[np.int64]

#: Where items are drawn from of which one leaves: see :func:`draw_victims`.
VICTIMS = ("all", "largest", "own")


def draw_victims(
    victims: str,
    count: int,
    held: Places,
    items: list[tuple[int, int]],
    generator: Callable[[int], np.random.Generator],
    presumed: dict[int, int],
) -> list[Places]:
    """Slots at random, of which one is for a new item, for several items in turn.

    How many items of each group there are follows from the items that are stored; which
    slot each of them gets is presumed, as scores presume it.

    Args:
        victims: ``"all"`` slots; those of the ``"largest"`` groups, or of the item's
            own group if that is one of them; or those of its ``"own"`` group, or of the
            largest ones as long as it has none.
        count: how many slots are drawn for an item, or all of these if they are fewer.
        held: group of what is in each slot.
        items: number and group of each item that is stored, oldest first.
        generator: of random numbers, by number of the item.
        presumed: slots that items get, by number.

    Returns:
        The slots for each item.

    Example:
        >>> held = np.array([0, 0, 1, 0])
        >>> draw = np.random.default_rng
        >>> (slots,) = draw_victims("largest", 2, held, [(7, 1)], draw, {})
        >>> held[slots]
        array([0, 0])
    """
    held = held.copy()
    groups = 1 + max([held.max(), *(group for _, group in items)])
    sizes = np.bincount(held, minlength=groups)
    all_slots = np.arange(len(held))
    drawn = []
    for item, group in items:
        members = all_slots
        if victims != "all":
            largest = sizes == sizes.max()
            if largest[group] or (victims == "own" and sizes[group]):
                its = (held == group).nonzero()[0]
            else:
                its = largest[held].nonzero()[0]
            # None may be there where a slot that was got is not presumed yet.
            members = its if its.size else all_slots
        slots = generator(item).choice(members, min(count, len(members)), replace=False)
        drawn.append(slots)
        if item in presumed:
            slot = presumed[item]
            sizes[held[slot]] -= 1
            sizes[group] += 1
            held[slot] = group
    return drawn


def first_of_least(scores: NDArray[np.float64], eps: float) -> int:
    """The first of the least scores; rounding must not decide between equal ones.

    Args:
        scores: shape ``(n,)``.
        eps: relative rounding of what they were computed in.
    """
    least = scores.min()
    return int((scores <= least + eps**0.5 * (1 + abs(least))).argmax())
