"""Any sequential algorithm gets exactly the scores that it would see item by item."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from info_replay import MIC, EntropyReduction
from info_replay.model.scored_batch import ScoredBatch
from info_replay.model.sequential_scores import (
    MOST_SWAPS,
    Assignment,
    SequentialScores,
)
from tests.reference import Criterion, Memory, mic

from .helpers import Array, Stored, make_memory, tensor

#: Slots and features of memories that have a posterior of the primal or kernel form.
SHAPES = {"primal": (12, 3), "kernel": (5, 20)}
Scores = NDArray[np.float64]
Places = NDArray[np.int64]


class Rule:
    """Stores an item in a slot that depends on all scores so far.

    Args:
        capacity: number of slots.
        least: items that score less stay out.
    """

    def __init__(self, capacity: int, least: float) -> None:
        self.capacity = capacity
        self.least = least

    def slot(self, row: Any, count: Any) -> Any:
        return (7 * row + 3 * count) % self.capacity

    def accept(
        self, first: int, by_criterion: list[Scores], count: int
    ) -> tuple[Places, Places, Callable[[int], int]]:
        """All items from one on, as :class:`SequentialScores` asks."""
        passes = by_criterion[0] >= self.least
        counts = count + passes.cumsum()
        rows = first + np.flatnonzero(passes)
        slots = self.slot(rows, counts[passes])
        return rows, slots, lambda n: int(counts[n - 1]) if n else count

    def one_by_one(
        self, memory: Memory, features: Array, targets: Array, criterion: Criterion
    ) -> tuple[list[int], int, list[float]]:
        """Slots at the end, the count and the scores, from the definition."""
        owner: dict[int, int] = {}
        kept, kept_targets = memory.features.copy(), memory.targets.copy()
        scores, count = [], 0
        for row, point in enumerate(zip(features, targets, strict=True)):
            now = Memory(kept, kept_targets, memory.noise, memory.jitter)
            scores.append(criterion(now, *point))
            if scores[-1] >= self.least:
                count += 1
                slot = self.slot(row, count)
                owner[slot] = row
                kept, kept_targets = kept.copy(), kept_targets.copy()
                kept[slot], kept_targets[slot] = point
        slots = [-1] * len(features)
        for slot, row in owner.items():
            slots[row] = slot
        return slots, count, scores


def draw(form: str, count: int, seed: int) -> tuple[Stored, Array, Array]:
    """A full memory and a batch."""
    capacity, width = SHAPES[form]
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(capacity + count, width))
    targets = rng.normal(size=(capacity + count, 2))
    stored = Stored(tensor(features[:capacity]), tensor(targets[:capacity]))
    return stored, features[capacity:], targets[capacity:]


@pytest.mark.parametrize("form", SHAPES)
@given(
    count=st.integers(1, 40),
    share=st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0]),
    eta=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_an_algorithm_decides_as_it_would_item_by_item(
    form: str, count: int, share: float, eta: float, seed: int
) -> None:
    stored, features, targets = draw(form, count, seed)
    memory = make_memory(stored)
    assert memory.posterior is not None
    assert memory.posterior.form == form
    batch = ScoredBatch(memory, tensor(features), tensor(targets))
    candidates = batch.candidates()
    first = MIC(eta)(candidates.leverage, candidates.squared_error, noise=0.3)
    least = -math.inf if share == 1 else float(np.quantile(first, 1 - share)) + 1e-6
    rule = Rule(stored.capacity, least)
    expected = rule.one_by_one(stored.memory(), features, targets, mic(eta))
    sequence = SequentialScores(batch, MIC(eta))
    assert sequence.run(rule.accept, 0) == expected[1]
    assert sequence.assignment.slots.tolist() == expected[0]


@pytest.mark.parametrize("swaps", [0, 1, 3, MOST_SWAPS, 2 * (MOST_SWAPS + 1), 30])
def test_a_batch_is_looked_at_twice_for_so_many_swaps(swaps: int) -> None:
    stored, features, targets = draw("primal", 60, 0)
    batch = ScoredBatch(make_memory(stored), tensor(features), tensor(targets))
    looks = []

    def accept(
        first: int, by_criterion: list[Scores], state: None
    ) -> tuple[Places, Places, Callable[[int], None]]:
        """Every other item, whatever it scores."""
        looks.append(first)
        rows = np.arange(1, 2 * swaps, 2)
        rows = rows[rows >= first]
        return rows, rows % stored.capacity, lambda n: None

    sequence = SequentialScores(batch, EntropyReduction())
    sequence.run(accept, None)
    assert len(looks) <= 1 + 2 * math.ceil(swaps / (MOST_SWAPS + 1))
    assert looks[0] == 0
    assert sorted(looks) == looks  # what is certain is not asked about again
    assert set(sequence.assignment.owner.values()) <= set(range(1, 2 * swaps, 2))


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_an_assignment_knows_what_the_memory_loses_and_gains(kind: Any) -> None:
    rows, stored = kind(np.arange(12.0).reshape(6, 2)), kind(-np.ones((2, 2)))
    assignment = Assignment(6)
    assignment.give(1, 7, stored[:1])
    assignment.give(3, 2, 2 * stored[:1])
    assignment.give(4, 7, rows[1:2])  # from an item that had it for a while
    assert assignment.slots.tolist() == [-1, -1, -1, 2, 7, -1]
    assert assignment.owner == {7: 4, 2: 3}
    old, new, slots = assignment.changes(rows)
    assert old.tolist() == [[-1, -1], [-2, -2]]
    assert new.tolist() == [[6, 7], [8, 9]]
    assert slots.tolist() == [2, 7]
