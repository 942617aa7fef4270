"""Reservoir sampling: a uniform sample of the stream."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from info_replay import ReservoirWriter

from . import reference
from .reference import chunkings, examples, extend_all, kept_ids, make_buffer


def numbered(count: int) -> TensorDict:
    return TensorDict({"id": torch.arange(count)}, batch_size=[count])


@given(
    capacity=st.integers(1, 30),
    count=st.integers(1, 200),
    seed=st.integers(0, 2**62),
    data=st.data(),
)
@examples(100)
def test_every_decision_is_that_of_the_algorithm(capacity, count, seed, data):
    sizes = data.draw(chunkings(count))
    writer = ReservoirWriter()
    buffer = make_buffer(writer, capacity, seed)
    slots = extend_all(buffer, numbered(count), sizes)
    draws = reference.random_numbers(writer.seed, count)
    run = reference.reservoir(count, capacity, draws)
    assert slots == reference.settled(run.slots, sizes)
    assert kept_ids(buffer) == run.memory
    assert writer.reservoir_count == count


def test_everything_is_kept_in_order_while_there_is_room():
    buffer = make_buffer(ReservoirWriter(), 10)
    assert buffer.extend(numbered(4)).tolist() == [0, 1, 2, 3]
    assert buffer.extend(numbered(6)).tolist() == [4, 5, 6, 7, 8, 9]
    assert kept_ids(buffer) == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]


def test_the_length_never_exceeds_the_capacity():
    buffer = make_buffer(ReservoirWriter(), 5)
    for length in (3, 5, 5, 5):
        buffer.extend(numbered(3))
        assert len(buffer) == length


def test_the_last_of_a_batch_to_be_given_a_slot_has_it():
    buffer = make_buffer(ReservoirWriter(), 1)
    slots = buffer.extend(numbered(50))
    run = reference.reservoir(50, 1, reference.random_numbers(buffer.writer.seed, 50))
    winners = [item for item, slot in enumerate(run.slots) if slot == 0]
    assert len(winners) > 1
    assert slots.nonzero().flatten().tolist() == [
        item for item in range(50) if item != winners[-1]
    ]
    assert set(slots.tolist()) == {-1, 0}
    assert kept_ids(buffer) == [winners[-1]]


def test_the_write_count_counts_what_was_offered():
    buffer = make_buffer(ReservoirWriter(), 3)
    buffer.extend(numbered(10))
    buffer.add(numbered(1)[0])
    assert buffer.write_count == 11
    assert buffer.writer.reservoir_count == 11


def test_add_returns_the_slot_or_minus_1():
    buffer = make_buffer(ReservoirWriter(), 2)
    slots = [buffer.add(item) for item in numbered(40).unbind(0)]
    assert {type(slot) for slot in slots} == {int}
    assert slots[:2] == [0, 1]
    assert set(slots) == {-1, 0, 1}


def test_add_decides_as_extend_does():
    one_by_one, at_once = (make_buffer(ReservoirWriter(), 4, seed=3) for _ in range(2))
    items = numbered(100)
    for item in items.unbind(0):
        one_by_one.add(item)
    at_once.extend(items)
    assert kept_ids(one_by_one) == kept_ids(at_once)


def test_seeds_decide():
    first, second, other = (
        make_buffer(ReservoirWriter(), 10, seed) for seed in (1, 1, 2)
    )
    for buffer in (first, second, other):
        buffer.extend(numbered(500))
    assert kept_ids(first) == kept_ids(second)
    assert kept_ids(first) != kept_ids(other)


def test_works_in_a_plain_buffer_without_a_generator():
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(8), writer=ReservoirWriter(), batch_size=16
    )
    buffer.extend(numbered(100))
    sample = buffer.sample()
    assert set(sample["id"].tolist()) <= set(kept_ids(buffer))
    assert len(set(kept_ids(buffer))) == 8


def test_all_entries_of_an_item_stay_together():
    buffer = make_buffer(ReservoirWriter(), 7)
    items = numbered(300)
    items["double"] = 2 * items["id"]
    items["nested", "half"] = items["id"][:, None] / torch.tensor([2.0, 4.0])
    for part in items.split(64):
        buffer.extend(part)
    kept = buffer[:]
    assert torch.equal(kept["double"], 2 * kept["id"])
    assert torch.equal(kept["nested", "half"][:, 1], kept["id"] / 4)


def test_items_that_a_storage_brings_along_are_the_first_of_the_stream():
    storage = LazyTensorStorage(10)
    storage.set(range(6), numbered(6))
    writer = ReservoirWriter()
    buffer = TensorDictReplayBuffer(storage=storage, writer=writer)
    assert writer.reservoir_count == 6
    assert buffer.extend(numbered(4)).tolist() == [6, 7, 8, 9]
    assert (writer.reservoir_count, buffer.write_count) == (10, 4)


def test_a_memory_that_another_writer_began_can_be_continued():
    storage = LazyTensorStorage(10)
    TensorDictReplayBuffer(storage=storage).extend(numbered(6))
    buffer = TensorDictReplayBuffer(storage=storage, writer=ReservoirWriter())
    assert buffer.extend(numbered(4)).tolist() == [6, 7, 8, 9]


def test_an_emptied_memory_starts_again():
    buffer = make_buffer(ReservoirWriter(), 5)
    buffer.extend(numbered(50))
    buffer.empty()
    assert (len(buffer), buffer.write_count, buffer.writer.reservoir_count) == (0, 0, 0)
    assert buffer.extend(numbered(5)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (TensorDict({}, batch_size=[0]), ValueError),
        (TensorDict({"id": torch.arange(3.0)}, batch_size=[3]), TypeError),
        (TensorDict({"id": torch.ones(3, 2).long()}, batch_size=[3]), ValueError),
        (TensorDict({"other": torch.arange(3)}, batch_size=[3]), KeyError),
    ],
    ids=["empty", "type", "shape", "entry"],
)
def test_a_refused_batch_leaves_no_trace(bad, error):
    buffer, twin = (make_buffer(ReservoirWriter(), 5, seed=1) for _ in range(2))
    for part in numbered(60).split(20):
        buffer.extend(part)
        twin.extend(part)
        with pytest.raises(error):
            buffer.writer.extend(bad)
    assert kept_ids(buffer) == kept_ids(twin)
    assert buffer.write_count == twin.write_count == 60
    assert buffer.writer.reservoir_count == 60
