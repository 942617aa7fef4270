"""Where the items are drawn from of which one leaves."""

from __future__ import annotations

import numpy as np
import pytest

from info_replay.model.victims import VICTIMS, draw_victims, first_of_least

HELD = np.array([0, 0, 0, 1, 1, 2])


def drawn_groups(victims: str, group: int, held: np.ndarray = HELD) -> set[int]:
    """Groups of what is drawn for an item of a group, over many draws."""
    return {
        int(held[slot])
        for seed in range(50)
        for slot in draw_victims(
            victims, 2, held, [(seed, group)], np.random.default_rng, {}
        )[0]
    }


@pytest.mark.parametrize(
    ("victims", "group", "expected"),
    [
        ("all", 1, {0, 1, 2}),
        ("largest", 1, {0}),
        ("largest", 3, {0}),
        ("own", 1, {1}),
        ("own", 3, {0}),  # it has none yet
    ],
)
def test_slots_are_of_the_groups_that_are_asked_for(
    victims: str, group: int, expected: set[int]
) -> None:
    assert drawn_groups(victims, group) == expected


def test_of_several_largest_groups_an_item_takes_its_own() -> None:
    held = np.array([0, 0, 1, 1, 2])
    assert drawn_groups("largest", 1, held) == {1}
    assert drawn_groups("largest", 2, held) == {0, 1}


@pytest.mark.parametrize("victims", VICTIMS)
def test_slots_are_different_and_as_many_as_there_are(victims: str) -> None:
    (slots,) = draw_victims(victims, 9, HELD, [(0, 1)], np.random.default_rng, {})
    assert len(set(slots.tolist())) == len(slots)
    assert len(slots) == {"all": 6, "largest": 3, "own": 2}[victims]


def test_later_items_meet_the_swaps_that_are_presumed() -> None:
    """Item 4 takes slot 0 of the largest group; then group 1 is the largest."""
    items = [(4, 1), (5, 2), (6, 3)]
    _, now, later = draw_victims(
        "largest", 9, HELD, items, np.random.default_rng, {4: 0, 5: 3}
    )
    assert sorted(now.tolist()) == [0, 3, 4]
    assert sorted(later.tolist()) == [0, 1, 2, 3, 4, 5]  # two of each group
    assert HELD.tolist() == [0, 0, 0, 1, 1, 2]


def test_rounding_does_not_choose_among_equal_scores() -> None:
    scores = np.array([2.0, 1.0 + 1e-12, 1.0])
    assert first_of_least(scores, np.finfo(np.float64).eps) == 1
    assert first_of_least(scores, 0.0) == 2
