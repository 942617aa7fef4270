"""Reservoir sampling: a uniform sample of the stream."""

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
    count=st.integers(1, 120),
    seed=st.integers(0, 2**62),
    data=st.data(),
)
@examples(40)
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
