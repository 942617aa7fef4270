"""Modes of classes: found where a class surprises anew, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from info_replay.model.modes import ModeDetector
from tests.writers.reference import modes


def stream(
    seed: int, count: int, classes: int, jumps: dict[int, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and surprises, which rise for good at some items."""
    random = np.random.default_rng(seed)
    surprises = random.exponential(size=count)
    for item, height in jumps.items():
        surprises[item:] += height
    return random.integers(classes, size=count), surprises


def walk(
    detector: ModeDetector, labels: np.ndarray, surprises: np.ndarray, size: int
) -> list[int]:
    """The mode of each item, looked at in batches."""
    found: list[int] = []
    for start in range(0, len(labels), size):
        part = slice(start, start + size)
        steps = detector.walk(labels[part], surprises[part])
        groups = steps.groups
        assert (groups % detector.num_classes == labels[part]).all()
        found += (groups // detector.num_classes).tolist()
        middle = detector.walk(labels[part][:7], surprises[part][:7])
        np.testing.assert_allclose(
            steps.after(min(7, len(groups))), middle.after(len(middle.groups)), 1e-9
        )
        detector.state = steps.after(len(groups))
    return found


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 300),
    classes=st.integers(1, 4),
    heights=st.lists(st.floats(-3, 9), max_size=4),
    size=st.integers(1, 300),
)
def test_modes_are_those_of_the_items_one_by_one(
    seed: int, count: int, classes: int, heights: list[float], size: int
) -> None:
    jumps = {(place + 1) * 60: height for place, height in enumerate(heights)}
    labels, surprises = stream(seed, count, classes, jumps)
    found = walk(ModeDetector(classes), labels, surprises, size)
    assert found == modes(labels.tolist(), surprises.tolist())


def test_each_class_begins_its_own_mode_within_a_few_items_of_a_jump() -> None:
    labels, surprises = stream(0, 4000, 4, {1000: 4.0, 2500: 4.0})
    found = np.array(walk(ModeDetector(4), labels, surprises, 128))
    assert (found[:1000] == 0).all()
    assert (found[1100:2500] == 1).all()
    assert (found[2600:] == 2).all()


@pytest.mark.parametrize(
    "surprises",
    [
        np.random.default_rng(0).exponential(size=20_000),
        np.linspace(9, 0, 20_000) + np.random.default_rng(1).exponential(size=20_000),
        np.full(20_000, 0.1) + 1e-13 * np.random.default_rng(2).normal(size=20_000),
        np.random.default_rng(3).exponential(size=20_000)
        + 9 * (np.random.default_rng(4).random(20_000) < 0.02),
    ],
    ids=["steady", "learned", "constant", "outliers"],
)
def test_what_is_no_jump_begins_no_mode(surprises: np.ndarray) -> None:
    labels = np.zeros(len(surprises), dtype=np.int64)
    assert max(walk(ModeDetector(1), labels, surprises, 500)) == 0


def test_a_class_that_comes_late_begins_no_mode_of_others() -> None:
    labels, surprises = stream(0, 2000, 2, {})
    labels[:1000] = 0
    surprises[(labels == 1)] += 9
    assert max(walk(ModeDetector(2), labels, surprises, 100)) == 0


def test_the_last_mode_of_a_class_does_not_end() -> None:
    detector = ModeDetector(500)  # with 10 modes each
    surprises = 100.0 * (np.arange(2000) // 100)
    surprises += np.random.default_rng(0).normal(size=2000)
    found = walk(detector, np.full(2000, 499), surprises, 100)
    assert found[-1] == 9
    assert detector.groups_of(np.array([499, 0])).tolist() == [499 + 9 * 500, 0]
    assert detector.num_groups == 5000


def test_a_saved_state_continues_where_it_was() -> None:
    labels, surprises = stream(5, 600, 3, {200: 4.0, 450: 4.0})
    whole = walk(ModeDetector(3), labels, surprises, 50)
    first, second = ModeDetector(3), ModeDetector(3)
    assert walk(first, labels[:300], surprises[:300], 50) == whole[:300]
    state = first.state_dict()
    second.check_state(state)
    second.load_state_dict(state)
    groups = second.walk(labels[300:], surprises[300:]).groups
    assert (groups // 3).tolist() == whole[300:]
    second.clear()
    assert walk(second, labels, surprises, 50) == whole


@pytest.mark.parametrize(
    ("column", "value"), [(0, -1.0), (2, -0.1), (3, -1.0), (4, 0.5), (4, 333.0)]
)
def test_a_state_that_cannot_be_is_refused(column: int, value: float) -> None:
    detector = ModeDetector(3)  # with 333 modes each
    state = detector.state_dict()
    state["state"][1, column] = value
    with pytest.raises(ValueError, match="modes below 333"):
        detector.check_state(state)
