"""Class-balanced reservoir sampling: every class has an equal share of the memory."""

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from info_replay import ClassBalancedReservoirWriter, ReservoirWriter

from . import reference
from .reference import chunkings, examples, extend_all, kept_ids, make_buffer


def labeled(labels: Sequence[int]) -> TensorDict:
    return TensorDict(
        {"id": torch.arange(len(labels)), "target": torch.tensor(labels)},
        batch_size=[len(labels)],
    )


#: Streams in which classes come in runs, as tasks do, so that some of them are late.
class_streams = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 30)), min_size=1, max_size=8
).map(lambda runs: [label for label, length in runs for _ in range(length)])


@given(
    capacity=st.integers(1, 30),
    labels=st.one_of(
        class_streams, st.lists(st.integers(0, 4), min_size=30, max_size=120)
    ),
    seed=st.integers(0, 2**62),
    data=st.data(),
)
@examples(40)
def test_every_decision_is_that_of_the_algorithm(capacity, labels, seed, data):
    sizes = data.draw(chunkings(len(labels)))
    writer = ClassBalancedReservoirWriter(5)
    buffer = make_buffer(writer, capacity, seed)
    slots = extend_all(buffer, labeled(labels), sizes)
    draws = reference.random_numbers(writer.seed, len(labels))
    run = reference.class_balanced_reservoir(labels, 5, capacity, draws)
    assert slots == reference.settled(run.slots, sizes)
    assert kept_ids(buffer) == run.memory
    assert writer.reservoir_count == len(labels)


@given(capacity=st.integers(1, 30), labels=class_streams, data=st.data())
@examples(25)
def test_a_class_has_all_of_its_items_or_as_many_as_the_largest(capacity, labels, data):
    writer = ClassBalancedReservoirWriter(5)
    buffer = make_buffer(writer, capacity)
    seen = 0
    for size in data.draw(chunkings(len(labels))):
        buffer.extend(labeled(labels[seen : seen + size]))
        seen += size
        offered = np.bincount(labels[:seen], minlength=5)
        held = buffer[:]["target"].bincount(minlength=5).numpy()
        assert writer.stream_counts.tolist() == offered.tolist()
        assert writer.memory_counts.tolist() == held.tolist()
        assert held.sum() == min(seen, capacity)
        if seen > capacity:
            assert ((held == offered) | (held >= held.max() - 1)).all()
        else:
            assert np.array_equal(held, offered)


@pytest.mark.parametrize("batch", [10, 1000])
def test_one_class_is_reservoir_sampling(batch):
    items = labeled([2] * 2000)
    balanced = make_buffer(ClassBalancedReservoirWriter(3), 25, seed=9)
    plain = make_buffer(ReservoirWriter(), 25, seed=9)
    for part in items.split(batch):
        assert torch.equal(balanced.extend(part.clone()), plain.extend(part.clone()))
    assert kept_ids(balanced) == kept_ids(plain)


def test_a_late_class_takes_its_share_from_the_largest():
    buffer = make_buffer(ClassBalancedReservoirWriter(3), 12)
    buffer.extend(labeled([0] * 100 + [1] * 3))
    assert buffer[:]["target"].bincount(minlength=3).tolist() == [9, 3, 0]
    buffer.extend(labeled([2] * 3))
    assert buffer[:]["target"].bincount(minlength=3).tolist() == [6, 3, 3]
    buffer.extend(labeled([2] * 50))
    held = buffer[:]["target"].bincount(minlength=3).tolist()
    assert sorted(held) == [3, 4, 5]


def test_an_item_of_a_full_class_takes_a_slot_of_its_own_class():
    buffer = make_buffer(ClassBalancedReservoirWriter(2), 20)
    buffer.extend(labeled([0, 1] * 200))
    before = buffer[:]["target"]
    kept = 0
    for label, item in zip([0, 1] * 100, labeled([0, 1] * 100).unbind(0), strict=True):
        slot = buffer.add(item)
        kept += slot >= 0
        assert slot == -1 or before[slot] == label
    assert kept > 5
    assert torch.equal(buffer[:]["target"], before)


def test_labels_may_be_a_column_and_go_by_another_name():
    items = TensorDict(
        {"y": {"label": torch.tensor([[0], [1]]).repeat(50, 1)}}, batch_size=[100]
    )
    writer = ClassBalancedReservoirWriter(2, target_key=("y", "label"))
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10), writer=writer)
    buffer.extend(items)
    assert buffer.sample(4)["y", "label"].shape == (4, 1)
    assert writer.memory_counts.tolist() == [5, 5]


def test_items_that_a_storage_brings_along_belong_to_their_classes():
    storage = LazyTensorStorage(6)
    storage.set(range(6), labeled([0] * 6))
    writer = ClassBalancedReservoirWriter(2)
    buffer = TensorDictReplayBuffer(storage=storage, writer=writer)
    assert (buffer.extend(labeled([1] * 3)) >= 0).all()
    assert writer.stream_counts.tolist() == [6, 3]
    assert buffer[:]["target"].bincount().tolist() == [3, 3]


@given(capacity=st.integers(1, 20), labels=class_streams, more=class_streams)
@examples(15)
def test_a_copy_decides_alike(capacity, labels, more):
    buffer = make_buffer(ClassBalancedReservoirWriter(5), capacity)
    buffer.extend(labeled(labels))
    twin = copy.deepcopy(buffer)
    assert buffer.extend(labeled(more)).tolist() == twin.extend(labeled(more)).tolist()
    assert kept_ids(buffer) == kept_ids(twin)


def test_a_saved_state_replaces_the_classes_of_a_memory_one_batch_older():
    saved, used = (make_buffer(ClassBalancedReservoirWriter(2), 4) for _ in range(2))
    saved.extend(labeled([0, 0, 1, 1]))
    for _ in range(2):
        used.extend(labeled([0, 0]))
    _ = used.writer.memory_counts
    used.load_state_dict(saved.state_dict())
    assert used.writer.memory_counts.tolist() == [2, 2]
