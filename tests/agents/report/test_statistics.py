"""Numbers of a report are those of a slow reference."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.report.statistics import (
    bootstrap_interval,
    difference_in_errors,
    estimate,
    joint_error,
    mean_curve,
)

numbers = st.floats(-100, 100)


@given(st.lists(numbers, min_size=2, max_size=12))
def test_mean_and_error_are_those_of_the_standard_library(values: list[float]) -> None:
    found = estimate(values)
    assert found.mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    expected = statistics.stdev(values) / math.sqrt(len(values))
    assert found.error == pytest.approx(expected, abs=1e-9)
    assert found.seeds == len(values)
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9


@given(st.lists(numbers, min_size=1, max_size=6), st.integers(0, 5))
def test_the_interval_is_that_of_means_drawn_one_by_one(
    values: list[float], seed: int
) -> None:
    generator = np.random.default_rng(seed)
    drawn = generator.integers(len(values), size=(200, len(values)))
    means = sorted(statistics.fmean(values[i] for i in row) for row in drawn.tolist())

    def quantile(share: float) -> float:
        place = share * (len(means) - 1)
        below = math.floor(place)
        above = min(below + 1, len(means) - 1)
        return means[below] + (place - below) * (means[above] - means[below])

    low, high = bootstrap_interval(values, resamples=200, seed=seed)
    assert float(low) == pytest.approx(quantile(0.025), abs=1e-9)
    assert float(high) == pytest.approx(quantile(0.975), abs=1e-9)


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        low, high = bootstrap_interval(generator.normal(size=30), resamples=500)
        hits += low <= 0 <= high
    assert 0.9 <= hits / 300 <= 0.98


def test_the_same_values_have_the_same_interval() -> None:
    assert estimate([1.0, 2.0, 5.0]) == estimate([1.0, 2.0, 5.0])


def test_a_single_seed_has_no_error() -> None:
    assert estimate([3.0]) == (3.0, None, 3.0, 3.0, 1)
    assert joint_error(None, 1.0) is None
    assert difference_in_errors(1.0, None, 2.0, 1.0) is None
    assert difference_in_errors(1.0, 0.0, 2.0, 0.0) is None


def test_differences_count_in_joint_errors() -> None:
    assert difference_in_errors(78.0, 0.6, 80.0, 0.8) == pytest.approx(-2.0)


def test_seeds_with_the_same_steps_are_averaged_there() -> None:
    curve = mean_curve([([0, 5, 7], [1.0, 2.0, 3.0]), ([0, 5, 7], [3.0, 2.0, 1.0])])
    assert curve is not None
    assert curve.steps.tolist() == [0, 5, 7]
    assert curve.mean.tolist() == [2.0, 2.0, 2.0]
    assert (curve.low <= curve.mean).all()
    assert (curve.mean <= curve.high).all()


def test_seeds_with_other_steps_are_joined_by_straight_lines() -> None:
    first, second = ([0, 4, 10], [0.0, 8.0, 2.0]), ([0, 5, 10], [0.0, 0.0, 10.0])
    curve = mean_curve([first, second])
    assert curve is not None

    def line(steps: list[int], values: list[float], step: float) -> float:
        for place in range(len(steps) - 1):
            start, end = steps[place], steps[place + 1]
            if start <= step <= end:
                share = (step - start) / (end - start)
                return (1 - share) * values[place] + share * values[place + 1]
        raise AssertionError(step)

    for step, mean in zip(curve.steps, curve.mean, strict=True):
        expected = (line(*first, step) + line(*second, step)) / 2
        assert mean == pytest.approx(expected)


def test_values_that_nobody_knows_are_left_out() -> None:
    assert mean_curve([([0, 1], [None, None])]) is None
    assert mean_curve([]) is None
    curve = mean_curve([([0, 1, 2], [None, 1.0, 2.0])])
    assert curve is not None
    assert curve.steps.tolist() == [1, 2]
