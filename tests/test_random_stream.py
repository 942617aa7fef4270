"""Random numbers that belong to items, and counters."""

import copy
import itertools
import multiprocessing

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from info_replay.writers.host import (
    Counters,
    RandomStream,
    surely_within,
)

from .reference import chunkings, examples

seeds = st.integers(0, 2**63 - 1)


@given(seed=seeds, first=st.integers(0, 2**40), data=st.data())
@examples(100)
def test_numbers_do_not_depend_on_chunks(seed, first, data):
    count = data.draw(st.integers(1, 200))
    sizes = data.draw(chunkings(count))
    stream = RandomStream()
    starts = [first, *(first + end for end in itertools.accumulate(sizes))]
    parts = [
        stream.uniforms(seed, start, size)
        for start, size in zip(starts, sizes, strict=False)
    ]
    whole = RandomStream().uniforms(seed, first, count)
    assert np.array_equal(np.concatenate(parts), whole)


@given(seed=seeds, items=st.lists(st.integers(0, 300), min_size=1, max_size=20))
@examples(50)
def test_numbers_do_not_depend_on_the_order_in_which_they_are_asked_for(seed, items):
    stream = RandomStream()
    whole = RandomStream().uniforms(seed, 0, 301)
    for item in items:
        assert np.array_equal(stream.uniforms(seed, item, 1)[0], whole[item])


def test_numbers_are_the_same_if_asked_for_twice():
    stream = RandomStream()
    first = stream.uniforms(5, 10, 20)
    assert np.array_equal(stream.uniforms(5, 10, 20), first)


@pytest.mark.parametrize("pair", [(0, 1), (1, 2), (2**63 - 2, 2**63 - 1)])
def test_seeds_have_numbers_of_their_own(pair):
    stream = RandomStream()
    first, second = (stream.uniforms(seed, 0, 1000)[:, 0] for seed in pair)
    assert not np.isin(first, second).any()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1


def test_neighbours_share_no_numbers():
    numbers = RandomStream().uniforms(0, 0, 10_000)
    assert len(np.unique(numbers)) == numbers.size
    assert abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.05
    between = np.corrcoef(numbers.T) - np.eye(RandomStream.DRAWS)
    assert np.abs(between).max() < 0.05


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_numbers_are_uniform_from_0_to_1(seed):
    numbers = RandomStream().uniforms(seed, 0, 20_000)
    assert numbers.shape == (20_000, RandomStream.DRAWS)
    assert numbers.dtype == np.float64
    assert 0 <= numbers.min() < 1e-3
    assert 1 - 1e-3 < numbers.max() < 1
    for column in numbers.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3


def test_a_copied_stream_goes_on_alike():
    stream = RandomStream()
    stream.uniforms(3, 0, 7)
    twin = copy.deepcopy(stream)
    assert np.array_equal(twin.uniforms(3, 7, 5), stream.uniforms(3, 7, 5))


def test_counters_start_at_0_and_count_apart():
    counters = Counters("a", "b")
    assert counters.as_dict() == {"a": 0, "b": 0}
    counters["a"] += 3
    assert counters.as_dict() == {"a": 3, "b": 0}


def test_counters_hold_seeds():
    counters = Counters("seed")
    counters["seed"] = 2**63 - 1
    assert counters["seed"] == 2**63 - 1


def test_counters_are_restored_from_their_values():
    counters = Counters("a", "b")
    counters.update({"a": 1, "b": -1})
    twin = Counters("b", "a")
    twin.update(counters.as_dict())
    assert (twin["a"], twin["b"]) == (1, -1)


def test_an_unknown_counter_is_an_error():
    counters = Counters("a")
    with pytest.raises(KeyError):
        counters["b"]
    with pytest.raises(KeyError):
        counters["b"] = 1


def _count(counters: Counters) -> None:
    counters["a"] += 1


@pytest.mark.parametrize("shared", [False, True])
def test_processes_share_counters_that_were_shared(shared):
    counters = Counters("a")
    counters["a"] = 5
    if shared:
        counters.share_memory_()
    child = multiprocessing.get_context("fork").Process(target=_count, args=(counters,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert counters["a"] == (6 if shared else 5)


# -- a first look at values ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_ordinary_features_are_known_to_be_fine(dtype):
    assert surely_within(torch.ones(100, 10, dtype=dtype), 1e6)
    assert surely_within(torch.ones(10, 100, dtype=dtype).T, 1e6)
    assert surely_within(-torch.ones(100, 10, dtype=dtype).double().numpy(), 1e6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e7, -1e7])
@pytest.mark.parametrize("largest", [1e6, np.inf])
def test_nothing_is_said_of_features_that_may_be_bad(value, largest):
    features = torch.ones(100, 10)
    features[3, 4] = value
    assert surely_within(features, largest) == (np.isfinite(value) and largest > 1e7)


@given(
    values=st.lists(st.floats(-100, 100), min_size=1, max_size=20),
    largest=st.floats(0.1, 200),
)
@examples(100)
def test_what_is_known_to_be_fine_is_fine(values, largest):
    if surely_within(torch.tensor(values), largest):
        assert np.abs(np.float32(values)).max() <= largest * (1 + 1e-6)


def test_nothing_is_said_of_what_cannot_be_looked_at_at_once():
    assert not surely_within(torch.ones(3, device="meta"), 10.0)
    assert not surely_within(torch.zeros(3, dtype=torch.float16), 10.0)
    assert not surely_within(torch.zeros(100_000), 10.0)
