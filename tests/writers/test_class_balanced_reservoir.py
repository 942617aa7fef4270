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


def labelled(labels: Sequence[int]) -> TensorDict:
    return TensorDict(
        {"id": torch.arange(len(labels)), "target": torch.tensor(labels)},
        batch_size=[len(labels)],
    )


#: Streams in which classes come in runs, as tasks do, so that some of them are late.
class_streams = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 40)), min_size=1, max_size=12
).map(lambda runs: [label for label, length in runs for _ in range(length)])


@given(
    capacity=st.integers(1, 30),
    labels=st.one_of(
        class_streams, st.lists(st.integers(0, 4), min_size=30, max_size=200)
    ),
    seed=st.integers(0, 2**62),
    data=st.data(),
)
@examples(150)
def test_every_decision_is_that_of_the_algorithm(capacity, labels, seed, data):
    sizes = data.draw(chunkings(len(labels)))
    writer = ClassBalancedReservoirWriter(5)
    buffer = make_buffer(writer, capacity, seed)
    slots = extend_all(buffer, labelled(labels), sizes)
    draws = reference.random_numbers(writer.seed, len(labels))
    run = reference.class_balanced_reservoir(labels, 5, capacity, draws)
    assert slots == reference.settled(run.slots, sizes)
    assert kept_ids(buffer) == run.memory
    assert writer.reservoir_count == len(labels)


@given(capacity=st.integers(1, 30), labels=class_streams, data=st.data())
@examples(100)
def test_a_class_has_all_of_its_items_or_as_many_as_the_largest(capacity, labels, data):
    writer = ClassBalancedReservoirWriter(5)
    buffer = make_buffer(writer, capacity)
    seen = 0
    for size in data.draw(chunkings(len(labels))):
        buffer.extend(labelled(labels[seen : seen + size]))
        seen += size
        offered = np.bincount(labels[:seen], minlength=5)
        held = buffer[:]["target"].bincount(minlength=5).numpy()
        assert held.sum() == min(seen, capacity)
        if seen > capacity:
            assert ((held == offered) | (held >= held.max() - 1)).all()
        else:
            assert np.array_equal(held, offered)


@given(labels=class_streams, capacity=st.integers(1, 30), data=st.data())
@examples(50)
def test_counts_say_what_was_offered_and_what_is_held(labels, capacity, data):
    writer = ClassBalancedReservoirWriter(5)
    buffer = make_buffer(writer, capacity)
    extend_all(buffer, labelled(labels), data.draw(chunkings(len(labels))))
    assert np.array_equal(writer.stream_counts, np.bincount(labels, minlength=5))
    held = buffer[:]["target"].bincount(minlength=5).numpy()
    assert np.array_equal(writer.memory_counts, held)


@pytest.mark.parametrize("batch", [1, 10, 128, 1000])
def test_one_class_is_reservoir_sampling(batch):
    items = labelled([2] * 2000)
    balanced = make_buffer(ClassBalancedReservoirWriter(3), 25, seed=9)
    plain = make_buffer(ReservoirWriter(), 25, seed=9)
    for part in items.split(batch):
        assert torch.equal(balanced.extend(part.clone()), plain.extend(part.clone()))
    assert kept_ids(balanced) == kept_ids(plain)


def test_a_late_class_takes_its_share_from_the_largest():
    buffer = make_buffer(ClassBalancedReservoirWriter(3), 12)
    buffer.extend(labelled([0] * 100 + [1] * 3))
    assert buffer[:]["target"].bincount(minlength=3).tolist() == [9, 3, 0]
    buffer.extend(labelled([2] * 3))
    assert buffer[:]["target"].bincount(minlength=3).tolist() == [6, 3, 3]
    buffer.extend(labelled([2] * 50))
    held = buffer[:]["target"].bincount(minlength=3).tolist()
    assert sorted(held) == [3, 4, 5]


def test_every_item_of_a_growing_class_is_kept():
    buffer = make_buffer(ClassBalancedReservoirWriter(2), 20)
    buffer.extend(labelled([0] * 500))
    slots = [buffer.add(item) for item in labelled([1] * 10).unbind(0)]
    assert min(slots) >= 0
    assert len(set(slots)) == 10
    assert (buffer[:]["target"] == 1).sum() == 10


def test_an_item_of_a_full_class_takes_a_slot_of_its_own_class():
    buffer = make_buffer(ClassBalancedReservoirWriter(2), 20)
    buffer.extend(labelled([0, 1] * 200))
    before = buffer[:]["target"]
    kept = 0
    for label, item in zip([0, 1] * 100, labelled([0, 1] * 100).unbind(0), strict=True):
        slot = buffer.add(item)
        kept += slot >= 0
        assert slot == -1 or before[slot] == label
    assert kept > 5
    assert torch.equal(buffer[:]["target"], before)


def test_the_last_of_a_batch_to_be_given_a_slot_has_it():
    buffer = make_buffer(ClassBalancedReservoirWriter(2), 1)
    slots = buffer.extend(labelled([0, 1] * 30))
    (kept,) = slots.add(1).nonzero().flatten().tolist()
    assert slots[kept] == 0
    assert kept_ids(buffer) == [kept]


def test_counts_are_of_what_was_offered():
    buffer = make_buffer(ClassBalancedReservoirWriter(2), 3)
    buffer.extend(labelled([0] * 30))
    slots = [buffer.add(item) for item in labelled([0] * 30).unbind(0)]
    assert {type(slot) for slot in slots} == {int}
    assert min(slots) == -1
    assert buffer.write_count == buffer.writer.reservoir_count == 60


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
    storage.set(range(6), labelled([0] * 6))
    writer = ClassBalancedReservoirWriter(2)
    buffer = TensorDictReplayBuffer(storage=storage, writer=writer)
    assert (buffer.extend(labelled([1] * 3)) >= 0).all()
    assert writer.stream_counts.tolist() == [6, 3]
    assert buffer[:]["target"].bincount().tolist() == [3, 3]


@given(capacity=st.integers(1, 20), labels=class_streams, more=class_streams)
@examples(50)
def test_a_copy_decides_alike(capacity, labels, more):
    buffer = make_buffer(ClassBalancedReservoirWriter(5), capacity)
    buffer.extend(labelled(labels))
    twin = copy.deepcopy(buffer)
    assert (
        buffer.extend(labelled(more)).tolist() == twin.extend(labelled(more)).tolist()
    )
    assert kept_ids(buffer) == kept_ids(twin)


def test_a_saved_state_replaces_the_classes_of_a_memory_one_batch_older():
    saved, used = (make_buffer(ClassBalancedReservoirWriter(2), 4) for _ in range(2))
    saved.extend(labelled([0, 0, 1, 1]))
    for _ in range(2):
        used.extend(labelled([0, 0]))
    _ = used.writer.memory_counts
    used.load_state_dict(saved.state_dict())
    assert used.writer.memory_counts.tolist() == [2, 2]


def test_an_emptied_memory_forgets_its_classes():
    writer = ClassBalancedReservoirWriter(2)
    buffer = make_buffer(writer, 4)
    buffer.extend(labelled([0] * 30))
    buffer.empty()
    assert writer.stream_counts.tolist() == writer.memory_counts.tolist() == [0, 0]
    assert buffer.extend(labelled([1] * 4)).tolist() == [0, 1, 2, 3]
    buffer.extend(labelled([0] * 2))
    assert writer.memory_counts.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (torch.tensor([0, 1, 3]), ValueError, "3 for item 2"),
        (torch.tensor([0, -1, 1]), ValueError, "-1 for item 1"),
        (torch.tensor([0.0, 1.0, 2.0]), TypeError, "whole numbers"),
        (torch.tensor([True, False, True]), TypeError, "whole numbers"),
        (torch.zeros(3, 2).long(), ValueError, "one label an item"),
    ],
    ids=["too large", "negative", "real", "truth", "two"],
)
def test_bad_labels_are_refused_from_the_first(labels, error, message):
    writer = ClassBalancedReservoirWriter(3)
    buffer = make_buffer(writer, 5)
    with pytest.raises(error, match=message):
        buffer.extend(TensorDict({"target": labels}, batch_size=[3]))
    assert (len(buffer), buffer.write_count, writer.reservoir_count) == (0, 0, 0)
    assert writer.stream_counts.tolist() == [0, 0, 0]


def test_missing_labels_are_named():
    items = TensorDict({"label": torch.zeros(3).long()}, batch_size=[3])
    with pytest.raises(KeyError, match="target"):
        make_buffer(ClassBalancedReservoirWriter(3), 5).extend(items)


def test_a_refused_batch_leaves_no_trace():
    buffer, twin = (
        make_buffer(ClassBalancedReservoirWriter(3), 6, seed=2) for _ in range(2)
    )
    for part in labelled([0, 1, 2, 0, 0] * 30).split(10):
        with pytest.raises(ValueError, match="7 for item 3"):
            buffer.extend(labelled([0, 1, 2, 7]))
        buffer.extend(part)
        twin.extend(part)
    assert kept_ids(buffer) == kept_ids(twin)
    assert buffer.write_count == 150


@pytest.mark.parametrize("number", [0, -1])
def test_there_is_at_least_one_class(number):
    with pytest.raises(ValueError, match="num_classes"):
        ClassBalancedReservoirWriter(number)


@pytest.mark.parametrize("number", [2.0, "3", True, None])
def test_the_number_of_classes_is_a_whole_number(number):
    with pytest.raises(TypeError, match="num_classes"):
        ClassBalancedReservoirWriter(number)
