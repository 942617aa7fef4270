"""Orders of samples: a function of the seed, each sample as often as it should."""

from __future__ import annotations

import itertools
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from continual_envs.randomness import Purpose, generator
from continual_envs.streams import DriftStream, Samples, Stream, TaskStream

laws = settings(deadline=None, derandomize=True, max_examples=100)
seeds = st.integers(0, 2**31 - 1)
sizes = st.lists(st.integers(0, 12), min_size=1, max_size=6)


def whole(stream: Stream) -> list[tuple[int, int]]:
    """Task and number of every sample."""
    return pairs(stream.take(0, len(stream)))


def pairs(samples: Samples) -> list[tuple[int, int]]:
    """Task and number of each sample."""
    numbers, tasks = samples
    if isinstance(tasks, int):
        return [(tasks, int(number)) for number in numbers]
    both = zip(tasks.tolist(), numbers.tolist(), strict=True)
    return [(int(task), int(number)) for task, number in both]


def make_tasks(lengths: list[int]) -> list[NDArray[np.int64]]:
    ends = np.cumsum(lengths)
    return [np.arange(end - n, end) for n, end in zip(lengths, ends, strict=True)]


@laws
@given(lengths=sizes, seed=seeds, data=st.data())
def test_a_task_stream_shows_each_sample_once_an_epoch_of_its_task(
    lengths: list[int], seed: int, data: st.DataObject
) -> None:
    count = len(lengths)
    epochs = data.draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    tasks = make_tasks(lengths)
    expected = Counter(
        (task, int(sample))
        for task, samples in enumerate(tasks)
        for sample in samples
        for _ in range(epochs[task])
    )
    stream = TaskStream(tasks, epochs, seed)
    shown = whole(stream)
    assert Counter(shown) == expected
    assert [task for task, _ in shown] == sorted(task for task, _ in shown)
    reached = 0
    for task, end in enumerate(stream.boundaries):
        reached += lengths[task] * epochs[task]
        assert end == reached
    # Not only in all: every epoch is a pass over the whole task.
    for task, samples in enumerate(tasks):
        mine = [sample for number, sample in shown if number == task]
        for epoch in range(epochs[task]):
            one = mine[epoch * len(samples) : (epoch + 1) * len(samples)]
            assert sorted(one) == samples.tolist()


@laws
@given(
    lengths=sizes.filter(any),
    seed=seeds,
    cuts=st.lists(st.integers(0, 200), max_size=10),
    drifts=st.booleans(),
)
def test_any_position_can_be_asked_for_in_any_order(
    lengths: list[int], seed: int, cuts: list[int], drifts: bool
) -> None:
    stream: Stream
    if drifts:
        labels = np.repeat(np.arange(len(lengths)), lengths)
        repeats = [2] * len(lengths)
        stream = DriftStream(np.arange(len(labels)), labels, repeats, seed, 0.5)
    else:
        stream = TaskStream(make_tasks(lengths), [2] * len(lengths), seed)
    expected = whole(stream)
    places = sorted(cut % (len(stream) + 1) for cut in cuts)
    pieces = list(pairwise([0, *places, len(stream)]))
    found = {}
    for start, stop in reversed(pieces):
        found[start, stop] = pairs(stream.take(start, stop))
    assert [one for piece in pieces for one in found[piece]] == expected


def test_each_epoch_has_an_order_of_its_own() -> None:
    stream = TaskStream([np.arange(50)], [3], seed=0)
    order = [sample for _, sample in whole(stream)]
    assert order[:50] != order[50:100]
    assert order[50:100] != order[100:]
    assert order[:50] != sorted(order[:50])


def test_the_first_place_of_an_epoch_is_taken_by_all_samples_equally_often() -> None:
    streams = [TaskStream([np.arange(5)], [1], seed) for seed in range(2000)]
    first = [stream.take(0, 1).numbers[0] for stream in streams]
    counts = np.bincount(first, minlength=5)
    # Five deviations of a binomial of 2000 tries at one fifth.
    assert np.abs(counts - 400).max() < 5 * np.sqrt(2000 * 0.2 * 0.8)


def test_random_numbers_for_other_purposes_are_others() -> None:
    drawn = {
        tuple(generator(*key).integers(2**60, size=2).tolist())
        for key in itertools.product((0, 1), Purpose, (0, 1))
    }
    assert len(drawn) == 4 * len(Purpose)


@laws
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    repeats=st.lists(st.integers(1, 4), min_size=5, max_size=5),
    seed=seeds,
    width=st.floats(1e-3, 1e3),
)
def test_a_drift_stream_shows_each_sample_as_often_as_its_class_is_repeated(
    labels: list[int], repeats: list[int], seed: int, width: float
) -> None:
    samples = np.arange(len(labels)) + 1000
    stream = DriftStream(samples, np.array(labels), repeats, seed, width)
    expected = Counter({1000 + row: repeats[label] for row, label in enumerate(labels)})
    assert Counter(sample for _, sample in whole(stream)) == expected
    assert stream.boundaries == [sum(expected.values())]


def drifting(
    width: float, seed: int = 0, repeats: tuple[int, ...] = (1,) * 10
) -> NDArray[np.int64]:
    """Labels along a stream of ten classes of 1,000 samples each."""
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 1000))
    stream = DriftStream(np.arange(10_000), labels, repeats, seed, width)
    return labels[stream.take(0, len(stream)).numbers]


def frequencies(labels: NDArray[np.int64], window: int) -> NDArray[np.float64]:
    """The share of each class in consecutive windows."""
    rows = labels[: len(labels) // window * window].reshape(-1, window)
    return np.stack([(rows == label).mean(1) for label in range(10)], axis=1)


def largest_jump(labels: NDArray[np.int64], window: int) -> float:
    """The largest distance in total variation between windows that follow."""
    return float(np.abs(np.diff(frequencies(labels, window), axis=0)).sum(1).max() / 2)


@pytest.mark.parametrize("seed", range(3))
def test_class_frequencies_drift_without_a_jump(seed: int) -> None:
    # A tenth of the time from one class to the next moves a tenth of the classes,
    # and a window of 100 samples has a noise of up to two tenths more.
    assert largest_jump(drifting(0.5, seed), 100) < 0.35
    assert largest_jump(np.repeat(np.arange(10), 1000), 100) == 1.0


@pytest.mark.parametrize("width", [0.2, 0.5, 1.0])
def test_each_class_comes_around_its_time(width: float) -> None:
    labels = drifting(width)
    means = [np.flatnonzero(labels == label).mean() for label in range(10)]
    assert means == sorted(means)
    # Away from the ends, which fold the bell back, its centre is that of the class.
    for label in range(3, 7):
        assert means[label] == pytest.approx(1000 * label + 500, abs=150 * width + 50)
    peaks = frequencies(labels, 1000).argmax(0)
    assert peaks.tolist() == list(range(10))


@pytest.mark.parametrize("width", [0.4, 0.6, 1.0])
def test_the_width_is_how_long_a_class_is_around(width: float) -> None:
    times = np.flatnonzero(drifting(width) == 5)
    assert times.std() == pytest.approx(1000 * width, rel=0.1)


def test_a_small_width_makes_tasks_of_single_classes() -> None:
    one_by_one = np.repeat(np.arange(10), 1000)
    assert np.count_nonzero(drifting(1e-2) != one_by_one) == 0
    assert np.count_nonzero(drifting(0.2) != one_by_one) > 0


def test_a_large_width_makes_a_shuffled_stream() -> None:
    shares = frequencies(drifting(1e3), 1000)
    assert np.abs(shares - 0.1).max() < 5 * np.sqrt(0.1 * 0.9 / 1000)


def test_a_frequent_class_is_around_for_longer() -> None:
    repeats = (1, 1, 1, 1, 1, 5, 1, 1, 1, 1)
    labels = drifting(0.5, repeats=repeats)
    times = np.flatnonzero(labels == 5)
    assert len(times) == 5000
    assert times.std() > 3 * np.flatnonzero(labels == 1).std()
    assert times.mean() == pytest.approx(7500, abs=500)
    assert largest_jump(labels, 100) < 0.35
