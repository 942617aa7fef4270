"""Memories that a sceptic asks for do what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from benchmarks.control_writers import (
    TerminalKeepingReservoirWriter,
    ThinnedReservoirWriter,
)
from info_replay import ReservoirWriter
from info_replay.random_stream import RandomStream
from tests.writers import reference
from tests.writers.reference import chunkings, examples, extend_all, make_buffer


def transitions(ends: list[bool]) -> TensorDict:
    """Numbered transitions, some of them terminal."""
    count = len(ends)
    over = torch.tensor(ends, dtype=torch.bool)[:, None]
    following = TensorDict(terminated=over, batch_size=[count])
    return TensorDict(id=torch.arange(count), next=following, batch_size=[count])


def numbered(count: int) -> TensorDict:
    return transitions([False] * count)


kept_ids = reference.kept_ids
some_ends = st.lists(st.sampled_from([False, False, False, True]), min_size=1)
all_seeds = st.integers(0, 2**62)


# -- a random part of the stream ------------------------------------------------------


@given(
    capacity=st.integers(1, 20),
    count=st.integers(1, 120),
    seed=all_seeds,
    data=st.data(),
)
@examples(30)
def test_all_of_the_stream_is_plain_reservoir_sampling(
    capacity: int, count: int, seed: int, data: st.DataObject
) -> None:
    sizes = data.draw(chunkings(count))
    thinned = make_buffer(ThinnedReservoirWriter(1.0), capacity, seed)
    plain = make_buffer(ReservoirWriter(), capacity, seed)
    stream = numbered(count)
    assert extend_all(thinned, stream, sizes) == extend_all(plain, stream, sizes)
    assert kept_ids(thinned) == kept_ids(plain)
    assert thinned.writer.reservoir_count == plain.writer.reservoir_count == count


@given(
    share=st.floats(0.01, 1),
    capacity=st.integers(1, 20),
    count=st.integers(1, 120),
    seed=all_seeds,
    data=st.data(),
)
@examples(30)
def test_what_passes_the_toss_enters_reservoir_sampling(
    share: float, capacity: int, count: int, seed: int, data: st.DataObject
) -> None:
    sizes = data.draw(chunkings(count))
    writer = ThinnedReservoirWriter(share)
    buffer = make_buffer(writer, capacity, seed)
    slots = extend_all(buffer, numbered(count), sizes)
    draws = RandomStream().uniforms(writer.seed, 0, count)
    memory: list[int] = []
    expected: list[int] = []
    passed = 0
    for item, (place, toss, *_) in enumerate(draws):
        slot = -1
        if len(memory) < capacity:
            slot = len(memory)
            memory.append(item)
            passed += 1
        elif toss < share:
            passed += 1
            if int(place * passed) < capacity:
                slot = int(place * passed)
                memory[slot] = item
        expected.append(slot)
    assert slots == reference.settled(expected, sizes)
    assert kept_ids(buffer) == memory
    assert writer.reservoir_count == passed
    assert buffer.write_count == count


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_about_that_share_passes(share: float) -> None:
    buffer = make_buffer(ThinnedReservoirWriter(share), 10, seed=1)
    count = 20_000
    buffer.extend(numbered(count))
    passed = buffer.writer.reservoir_count - 10
    deviation = (share * (1 - share) * count) ** 0.5
    assert abs(passed - share * (count - 10)) < 4 * deviation


def test_every_part_of_the_stream_is_kept_alike() -> None:
    """The toss leaves the sample uniform over what came after the memory was full."""
    kept = []
    for seed in range(200):
        buffer = make_buffer(ThinnedReservoirWriter(0.5), 10, seed)
        buffer.extend(numbered(500))
        kept += [item for item in kept_ids(buffer) if item >= 10]
    halves = np.histogram(kept, [10, 255, 500])[0]
    assert abs(halves[0] - halves[1]) < 4 * len(kept) ** 0.5


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=f"share must be above 0.*got {share}"):
        ThinnedReservoirWriter(share)


# -- terminal transitions -------------------------------------------------------------


@given(capacity=st.integers(1, 12), ends=some_ends, seed=all_seeds, data=st.data())
@examples(50)
def test_no_terminal_transition_is_given_up_for_another(
    capacity: int, ends: list[bool], seed: int, data: st.DataObject
) -> None:
    buffer = make_buffer(TerminalKeepingReservoirWriter(), capacity, seed)
    stop, stream = 0, transitions(ends)
    for size in data.draw(chunkings(len(ends))):
        buffer.extend(stream[stop : stop + size])
        stop += size
        held = int(buffer[:]["next", "terminated"].sum())
        # While the memory fills, each finds a free slot.
        assert held == min(sum(ends[:stop]), capacity)
        assert len(buffer) == min(stop, capacity)
        assert len(set(kept_ids(buffer))) == len(buffer)


@given(capacity=st.integers(1, 12), ends=some_ends, seed=all_seeds, data=st.data())
@examples(50)
def test_chunks_of_any_size_are_as_transitions_one_by_one(
    capacity: int, ends: list[bool], seed: int, data: st.DataObject
) -> None:
    chunked, single = (
        make_buffer(TerminalKeepingReservoirWriter(), capacity, seed) for _ in range(2)
    )
    stream = transitions(ends)
    sizes = data.draw(chunkings(len(ends)))
    slots = extend_all(chunked, stream, sizes)
    one_by_one = [single.add(item) for item in stream.unbind(0)]
    assert slots == reference.settled(one_by_one, sizes)
    assert kept_ids(chunked) == kept_ids(single)
    assert chunked.writer.reservoir_count == len(ends)
    assert single.writer.reservoir_count == len(ends)


def test_without_terminal_transitions_it_is_a_reservoir() -> None:
    """Every transition is kept with the same probability."""
    counts = np.zeros(24)
    for seed in range(200):
        buffer = make_buffer(TerminalKeepingReservoirWriter(), 6, seed)
        buffer.extend(numbered(24))
        counts[kept_ids(buffer)] += 1
    expected = 200 * 6 / 24
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < 23 + 4 * (2 * 23) ** 0.5


def test_a_memory_full_of_terminal_transitions_lets_only_these_in() -> None:
    buffer = make_buffer(TerminalKeepingReservoirWriter(), 4)
    buffer.extend(transitions([True] * 4))
    slots = buffer.extend(numbered(200))
    assert set(slots.tolist()) == {-1}
    assert kept_ids(buffer) == [0, 1, 2, 3]
    assert (buffer.extend(transitions([True])) >= 0).all()
