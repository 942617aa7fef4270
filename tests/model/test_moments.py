"""Running moments are those of the whole history, however it arrives."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from info_replay import RunningMoments
from tests import reference

Array = NDArray[np.float64]

decays = st.none() | st.floats(0.01, 0.9999)
streams = st.lists(
    st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1.0, -7.5]), min_size=1, max_size=60
)


def feed(moments: RunningMoments, values: Array, cuts: list[int]) -> None:
    """Update with a stream that is cut into chunks, some of them empty."""
    places = sorted(cut % (len(values) + 1) for cut in cuts)
    for start, stop in pairwise([0, *places, len(values)]):
        moments.update(values[start:stop])


def history(values: Array, decay: float | None) -> tuple[Array, Array, Array]:
    """Weights, means and deviations before each item and after the last one."""
    rows = [reference.moments(values[:n], decay) for n in range(len(values) + 1)]
    weights, means, deviations = np.array(rows).T
    return weights, means, deviations


def assert_means(actual: ArrayLike, expected: ArrayLike, stream: Array) -> None:
    """Equal up to rounding of the items."""
    atol = 1e-14 * np.abs(stream).max()
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=atol)


def assert_deviations(actual: ArrayLike, expected: ArrayLike, stream: Array) -> None:
    """Equal up to rounding of the squared distances between items."""
    atol = 1e-12 * np.ptp(stream) ** 2 + (1e-14 * np.abs(stream).max()) ** 2
    np.testing.assert_allclose(
        np.square(actual), np.square(expected), rtol=1e-9, atol=atol
    )


@given(values=streams, decay=decays, cuts=st.lists(st.integers(0, 60), max_size=8))
def test_any_chunking_gives_the_moments_of_the_history(
    values: list[float], decay: float | None, cuts: list[int]
) -> None:
    stream = np.array(values)
    moments = RunningMoments(decay)
    feed(moments, stream, cuts)
    weights, means, deviations = history(stream, decay)
    assert moments.weight == pytest.approx(weights[-1], rel=1e-9)
    assert_means(moments.mean, means[-1], stream)
    assert_deviations(moments.deviation, deviations[-1], stream)


@given(values=streams, decay=decays, split=st.integers(0, 60))
def test_before_is_the_moments_of_everything_before(
    values: list[float], decay: float | None, split: int
) -> None:
    stream = np.array(values)
    first, rest = np.split(stream, [split % len(stream)])
    moments = RunningMoments(decay)
    moments.update(first)
    state = moments.state
    actual_means, actual_deviations = moments.before(rest)
    assert moments.state.tolist() == state.tolist()
    _, means, deviations = history(stream, decay)
    met = slice(len(first), len(stream))
    assert_means(actual_means, means[met], stream)
    assert_deviations(actual_deviations, deviations[met], stream)


def test_nothing_seen_has_no_weight_no_mean_and_no_deviation() -> None:
    moments = RunningMoments()
    moments.update([])
    assert (moments.weight, moments.mean, moments.deviation) == (0.0, 0.0, 0.0)
    means, deviations = moments.before([5.0])
    assert means.tolist() == [0.0]
    assert deviations.tolist() == [0.0]


@given(
    value=st.floats(1e-6, 1e9) | st.floats(-1e9, -1e-6),
    decay=decays,
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=6),
)
def test_a_constant_stream_has_no_deviation(
    value: float, decay: float | None, sizes: list[int]
) -> None:
    moments = RunningMoments(decay)
    for size in sizes:
        deviations = moments.before(np.full(size, value))[1]
        assert deviations.max() <= 1e-12 * abs(value)
        moments.update(np.full(size, value))
    assert moments.mean == pytest.approx(value, rel=1e-14)
    assert moments.deviation <= 1e-12 * abs(value)


@pytest.mark.parametrize("decay", [None, 0.9, 0.999])
@pytest.mark.parametrize("chunk", [7, 3000])
def test_a_large_offset_does_not_destroy_the_deviation(
    decay: float | None, chunk: int
) -> None:
    noise = np.random.default_rng(1).integers(-512, 512, 3000) / 512  # exact in sums
    centered, shifted = RunningMoments(decay), RunningMoments(decay)
    for start in range(0, len(noise), chunk):
        centered.update(noise[start : start + chunk])
        shifted.update(1e6 + noise[start : start + chunk])
    assert shifted.mean - 1e6 == pytest.approx(centered.mean, abs=1e-8)
    assert shifted.deviation == pytest.approx(centered.deviation, rel=1e-9)


@pytest.mark.parametrize("decay", [0.01, 0.5, 0.9])
def test_decay_survives_streams_whose_weights_leave_the_numeric_range(
    decay: float,
) -> None:
    values = np.random.default_rng(2).normal(3.0, 1.0, 20_000)
    assert decay ** len(values) == 0.0
    moments = RunningMoments(decay)
    means, deviations = moments.before(values)
    assert np.isfinite(means).all()
    assert np.isfinite(deviations).all()
    moments.update(values)
    for actual, count in [
        ((moments.mean, moments.deviation), len(values)),
        *(((means[n], deviations[n]), n) for n in (64, 700, 1999, 12_345)),
    ]:
        recent = reference.moments(values[max(0, count - 500) : count], decay)
        assert actual == pytest.approx(recent[1:], rel=1e-9)


@pytest.mark.parametrize("decay", [0.9, 0.99])
def test_decay_forgets_the_level_that_a_stream_came_from(decay: float) -> None:
    values = 1e6 + np.random.default_rng(3).normal(size=2000)
    stream = np.concatenate([[0.0], values])
    at_once, one_by_one = RunningMoments(decay), RunningMoments(decay)
    at_once.update(stream)
    for value in stream:
        one_by_one.update(value)
    assert at_once.deviation == pytest.approx(one_by_one.deviation, rel=1e-8)


@pytest.mark.parametrize("decay", [None, 0.7])
def test_a_walk_from_a_state_passes_through_what_updates_would_reach(
    decay: float | None,
) -> None:
    moments, walker = RunningMoments(decay), RunningMoments(decay)
    moments.update([5.0, 9.0])
    items = np.array([1.0, 2.0, 4.0])
    walk = walker.walk(items, moments.state)
    assert walk.means.shape == walk.deviations.shape == (4,)
    for step in range(4):
        np.testing.assert_allclose(walk.after(step), moments.state, rtol=1e-12)
        assert walk.means[step] == pytest.approx(moments.mean)
        assert walk.deviations[step] == pytest.approx(moments.deviation)
        moments.update(items[step : step + 1])
    assert walker.weight == 0.0


# -- thresholds ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gamma", [0.0, -0.5, 2.0])
@given(values=streams, decay=decays)
def test_a_threshold_is_gamma_deviations_above_the_mean_less_rounding(
    gamma: float, dtype: torch.dtype, values: list[float], decay: float | None
) -> None:
    moments = RunningMoments(decay)
    walk = moments.walk(np.array(values))
    moments.update(values)
    exact = walk.means + gamma * walk.deviations
    expected = exact - torch.finfo(dtype).eps ** 0.5 * (1 + np.abs(exact))
    thresholds = walk.thresholds(gamma, dtype)
    np.testing.assert_allclose(thresholds, expected[:-1], rtol=1e-14)
    exact = moments.mean + gamma * moments.deviation
    expected = exact - torch.finfo(dtype).eps ** 0.5 * (1 + np.abs(exact))
    assert moments.threshold(gamma, dtype) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("decay", [None, 0.5])
def test_a_value_that_repeats_itself_always_reaches_the_threshold(
    decay: float | None,
) -> None:
    moments = RunningMoments(decay)
    for count in (1, 10, 1000):
        values = np.full(count, 0.1)
        moments.update(values)
        assert moments.threshold(0.0) <= 0.1
        assert (moments.walk(values).thresholds(0.3, torch.float64) <= 0.1).all()


# -- state -----------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [None, 0.7])
def test_a_saved_state_is_continued_bit_for_bit(decay: float | None) -> None:
    moments, restored = RunningMoments(decay), RunningMoments(decay)
    moments.update([5.0, 9.0, 1.5])
    saved = moments.state_dict()
    moments.update([2.0, 2.5])
    restored.load_state_dict(saved)
    restored.update([2.0, 2.5])
    assert restored.state.tolist() == moments.state.tolist()
    moments.clear()
    assert (moments.weight, moments.mean, moments.deviation) == (0.0, 0.0, 0.0)


def test_a_state_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected a tensor .* shape \(3,\)"):
        RunningMoments().check_state({"state": torch.zeros(4)})


def test_it_says_what_it_knows() -> None:
    moments = RunningMoments(0.5)
    moments.update([0.0, 3.0])
    assert repr(moments) == (
        "RunningMoments(decay=0.5, weight=1.5, mean=2, deviation=1.41421)"
    )


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda moments: pickle.loads(pickle.dumps(moments))]
)
def test_a_copy_goes_its_own_way(
    duplicate: Callable[[RunningMoments], RunningMoments],
) -> None:
    moments = RunningMoments(0.5)
    moments.update([1.0, 2.0])
    twin = duplicate(moments)
    assert (twin.decay, twin.weight, twin.mean) == (0.5, moments.weight, moments.mean)
    twin.update([50.0])
    assert moments.mean == pytest.approx(5 / 3)


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.5, 1.5, float("nan"), float("inf")])
def test_decay_must_lie_between_0_and_1(decay: float) -> None:
    with pytest.raises(ValueError, match="decay must be None or a number between"):
        RunningMoments(decay)
