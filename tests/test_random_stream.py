"""Random numbers belong to items: they depend on the seed and the item alone."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from info_replay.random_stream import RandomStream, generator_of
from tests.writers.reference import chunkings

seeds = st.integers(0, 2**63 - 1)


@given(seed=seeds, first=st.integers(0, 2**40), data=st.data())
def test_numbers_do_not_depend_on_chunks(
    seed: int, first: int, data: st.DataObject
) -> None:
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


@given(seed=seeds, items=st.lists(st.integers(0, 3000), min_size=1, max_size=20))
def test_numbers_do_not_depend_on_the_order_in_which_they_are_asked_for(
    seed: int, items: list[int]
) -> None:
    stream = RandomStream()
    whole = RandomStream().uniforms(seed, 0, 3001)
    for item in items:
        assert np.array_equal(stream.uniforms(seed, item, 1)[0], whole[item])


@pytest.mark.parametrize("pair", [(0, 1), (2**63 - 2, 2**63 - 1)])
def test_seeds_have_numbers_of_their_own(pair: tuple[int, int]) -> None:
    stream = RandomStream()
    first, second = (stream.uniforms(seed, 0, 1000)[:, 0] for seed in pair)
    assert not np.isin(first, second).any()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1


def test_neighbors_share_no_numbers() -> None:
    numbers = RandomStream().uniforms(0, 0, 10_000)
    assert len(np.unique(numbers)) == numbers.size
    assert abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.05
    between = np.corrcoef(numbers.T) - np.eye(RandomStream.DRAWS)
    assert np.abs(between).max() < 0.05


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_numbers_are_uniform_from_0_to_1(seed: int) -> None:
    numbers = RandomStream().uniforms(seed, 0, 20_000)
    assert numbers.shape == (20_000, RandomStream.DRAWS)
    assert numbers.dtype == np.float64
    assert 0 <= numbers.min() < 1e-3
    assert 1 - 1e-3 < numbers.max() < 1
    for column in numbers.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3


def test_a_copied_stream_goes_on_alike() -> None:
    stream = RandomStream()
    stream.uniforms(3, 0, 7)
    twin = copy.deepcopy(stream)
    assert np.array_equal(twin.uniforms(3, 7, 5), stream.uniforms(3, 7, 5))


def test_generators_are_told_apart_by_seed_purpose_and_number() -> None:
    asked = list(itertools.product((0, 5, 2**63 - 1), (1, 2), (0, 1, 10**6)))
    drawn = [generator_of(*each).random(4).tolist() for each in asked]
    assert drawn == [generator_of(*each).random(4).tolist() for each in asked]
    drawn += [RandomStream().uniforms(seed, 0, 1)[0].tolist() for seed in (0, 5)]
    numbers = np.array(drawn).ravel()
    assert len(np.unique(numbers)) == numbers.size
