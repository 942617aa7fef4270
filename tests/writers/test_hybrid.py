"""A ring of recent items before a policy: a queue, and a memory of what left it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    TensorDictReplayBuffer,
    TensorStorage,
)
from torchrl.data.replay_buffers.samplers import PrioritizedSampler

from info_replay import (
    ClassBalancedReservoirWriter,
    CoresetWriter,
    FeatureClusterWriter,
    GradientGreedyWriter,
    HybridWriter,
    InfoGreedyWriter,
    InfoReservoirReplayBuffer,
    InfoReservoirWriter,
    ReservoirWriter,
    SelectionWriter,
    SelectiveReplayBuffer,
    WeightedReservoirWriter,
    make_replay_buffer,
)
from info_replay.model.memory_posterior import MemoryPosterior

from .reference import chunkings, examples, kept_ids, make_stream

CLASSES, SEED = 4, 11


def gradients(items: Any) -> torch.Tensor:
    """Those of a squared error, which disagree."""
    errors = items["feature"].sum(-1) - items["target"]
    return (errors.unsqueeze(-1) * items["feature"]).mean(1)


SELECTIONS: dict[str, Callable[[], SelectionWriter]] = {
    "RS": ReservoirWriter,
    "WRS": WeightedReservoirWriter,
    "CBRS": lambda: ClassBalancedReservoirWriter(CLASSES),
    "GSS": lambda: GradientGreedyWriter(gradients, group_size=2, groups=2),
    "InfoGS": lambda: InfoGreedyWriter(
        num_classes=CLASSES, gamma=-1.0, gamma_learnability=-2.0
    ),
    "InfoRS": lambda: InfoReservoirWriter(num_classes=CLASSES, gamma=-0.3),
}
for_each_selection = pytest.mark.parametrize("name", SELECTIONS)


def stream_of(count: int, seed: int = 0, **options: Any) -> TensorDict:
    stream = make_stream(seed, count, num_classes=CLASSES, **options)
    return stream.set("logits", 2 * stream["feature"][:, :3])


def buffer_of(
    writer: SelectionWriter, capacity: int, storage: Any = LazyTensorStorage
) -> SelectiveReplayBuffer:
    writer.seed = SEED
    return SelectiveReplayBuffer(storage=storage(capacity), writer=writer, batch_size=5)


def hybrid_of(
    name: str, capacity: int, recent: int | float, storage: Any = LazyTensorStorage
) -> SelectiveReplayBuffer:
    return buffer_of(HybridWriter(SELECTIONS[name](), recent), capacity, storage)


def sample_of(buffer: TensorDictReplayBuffer, slots: Sequence[int]) -> TensorDict:
    """What sampling these slots would give."""
    sample = buffer[torch.tensor(slots)].clone()
    sample["index"] = torch.tensor(slots)
    sample["index_generation"] = buffer.writer.generations_of(sample["index"])
    return sample


class Reference:
    """A Python list as the queue, and a memory of its own for what leaves it."""

    def __init__(self, name: str, capacity: int, recent: int) -> None:
        self.recent = recent
        self.queue: list[tuple[int, TensorDict]] = []  # with their place in the stream
        self.memory = buffer_of(SELECTIONS[name](), capacity - recent)
        self.count = 0

    def extend(self, batch: TensorDict) -> list[int]:
        """Slots of the items, as a hybrid memory numbers them."""
        first = self.count
        for item in batch.unbind(0):
            self.queue.append((self.count, item.clone()))
            self.count += 1
        leaving = self.queue[: -self.recent]
        self.queue = self.queue[-self.recent :]
        slots = [-1] * len(batch)
        if leaving:
            items = torch.stack([item for _, item in leaving])
            outcomes = self.memory.extend(items).tolist()
            for (number, _), slot in zip(leaving, outcomes, strict=True):
                if number >= first and slot >= 0:
                    slots[number - first] = self.recent + slot
        for number, _ in self.queue:
            if number >= first:
                slots[number - first] = number % self.recent
        return slots

    def ids(self) -> list[int]:
        """The items by slot."""
        ring = {number % self.recent: int(item["id"]) for number, item in self.queue}
        return [ring[slot] for slot in sorted(ring)] + kept_ids(self.memory)

    def features(self) -> torch.Tensor:
        """Their features by slot."""
        ring = sorted((n % self.recent, item["feature"]) for n, item in self.queue)
        rows = [feature for _, feature in ring]
        if len(self.memory):
            rows += list(self.memory[:]["feature"])
        return torch.stack(rows)

    def write_back(self, slots: Sequence[int], features: torch.Tensor) -> None:
        """New features of some slots, all different."""
        items = {number % self.recent: item for number, item in self.queue}
        rows = [row for row, slot in enumerate(slots) if slot >= self.recent]
        for slot, feature in zip(slots, features, strict=True):
            if slot < self.recent:
                items[slot]["feature"] = feature.clone()
        if rows:
            sample = sample_of(self.memory, [slots[row] - self.recent for row in rows])
            sample["feature"] = features[rows]
            self.memory.update_tensordict_priority(sample)


# -- the law --------------------------------------------------------------------------


@for_each_selection
@given(
    recent=st.integers(1, 12),
    selected=st.integers(1, 12),
    count=st.integers(1, 60),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
@examples(8)
def test_it_is_a_queue_and_a_memory_of_what_left_it(
    name, recent, selected, count, seed, data
):
    stream = stream_of(count, seed)
    hybrid = hybrid_of(name, recent + selected, recent)
    reference = Reference(name, recent + selected, recent)
    for batch in stream.split(data.draw(chunkings(count))):
        slots = hybrid.extend(batch.clone()).tolist()
        assert slots == reference.extend(batch)
        assert kept_ids(hybrid) == reference.ids()
    assert hybrid.write_count == count
    assert hybrid.reservoir_count == reference.memory.reservoir_count


@pytest.mark.parametrize(
    ("feature_dim", "storage"),
    [(5, LazyTensorStorage), (30, LazyMemmapStorage)],
    ids=["primal", "kernel"],
)
@pytest.mark.parametrize("name", ["InfoGS", "InfoRS"])
def test_items_leave_the_ring_with_the_features_that_replay_gave_them(
    name, feature_dim, storage
):
    recent, capacity = 5, 16
    hybrid = hybrid_of(name, capacity, recent, storage)
    reference = Reference(name, capacity, recent)
    generator = torch.Generator().manual_seed(0)
    stream = stream_of(120, feature_dim=feature_dim)
    for batch in stream.split([1, 3, 20, 7, 1, 9, 2, 3, 4, 30, 5, 5, 8, 3, 19]):
        assert hybrid.extend(batch.clone()).tolist() == reference.extend(batch)
        slots = torch.randperm(len(hybrid), generator=generator)[:6].tolist()
        sample = sample_of(hybrid, slots)
        sample["feature"] = 0.5 * sample["feature"] + 0.1
        hybrid.update_tensordict_priority(sample)
        reference.write_back(slots, sample["feature"])
        assert torch.equal(hybrid[:]["feature"], reference.features())
    assert kept_ids(hybrid) == reference.ids()
    probe = stream_of(9, 3, feature_dim=feature_dim)
    torch.testing.assert_close(hybrid.score(probe), reference.memory.score(probe))
    assert hybrid.moments.mean == pytest.approx(reference.memory.moments.mean)


@for_each_selection
def test_the_first_slots_are_used_first(name):
    buffer = hybrid_of(name, 9, 4)
    for number, item in enumerate(stream_of(9).unbind(0)):
        slot = buffer.add(item)
        assert slot == number % 4  # a new item is in the ring
        assert len(buffer) == number + 1


@pytest.mark.parametrize(
    ("recent", "capacity", "slots"),
    [(3, 10, 3), (0.25, 8, 2), (0.25, 10, 2), (0.01, 10, 1), (0.99, 10, 9), (9, 10, 9)],
)
def test_recent_is_a_number_of_slots_or_a_share(recent, capacity, slots):
    buffer = hybrid_of("RS", capacity, recent)
    buffer.extend(stream_of(100))
    newest = set(range(100 - slots, 100))
    assert set(kept_ids(buffer)[:slots]) == newest
    assert not set(kept_ids(buffer)[slots:]) & newest
    assert (buffer.writer.recent, len(buffer)) == (recent, capacity)


def test_what_leaves_the_ring_side_by_side_is_offered_without_a_copy():
    offered = []

    class Watching(ReservoirWriter):
        def decide(self, data):
            offered.append(data["id"].clone())
            pointers.append(data["id"].untyped_storage().data_ptr())
            return super().decide(data)

    pointers: list[int] = []
    buffer = buffer_of(HybridWriter(Watching(), 6), 10)
    for batch in stream_of(18).split(3):
        buffer.extend(batch)
    assert torch.cat(offered).tolist() == list(range(12))
    memory = buffer.storage._storage["id"].untyped_storage().data_ptr()
    assert set(pointers) == {memory}


# -- what the policy notices ----------------------------------------------------------


@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
def test_writes_to_the_ring_do_not_make_the_posterior_start_again(storage, monkeypatch):
    buffer = hybrid_of("InfoRS", 40, 8, storage)
    stream = stream_of(200, feature_dim=8)
    buffer.extend(stream[:100])
    _ = buffer.posterior
    restarts = []
    rebuild = MemoryPosterior.rebuild
    monkeypatch.setattr(
        MemoryPosterior,
        "rebuild",
        lambda self: restarts.append(1) or rebuild(self),
    )
    for batch in stream[100:].split(3):
        buffer.extend(batch)
        buffer.update_tensordict_priority(sample_of(buffer, [0, 5, 9]))
    _ = buffer.posterior
    assert restarts == []


def check_posterior(buffer: SelectiveReplayBuffer, recent: int) -> None:
    """It is that of the selected items as they are in the storage."""
    memory = buffer.storage[:][recent:]
    twin = buffer_of(SELECTIONS["InfoRS"](), len(memory))
    twin.extend(memory.clone())
    probe = stream_of(9, 3, feature_dim=memory["feature"].shape[1])
    torch.testing.assert_close(buffer.score(probe), twin.score(probe))


@pytest.mark.parametrize("slot", [1, 6], ids=["in-the-ring", "selected"])
@pytest.mark.parametrize("age", [100, 103])
def test_items_that_others_write_are_noticed(age, slot):
    buffer = hybrid_of("InfoRS", 12, 4)
    stream = stream_of(200, feature_dim=8)
    buffer.extend(stream[:age])
    check_posterior(buffer, 4)
    buffer[slot] = stream_of(200, seed=5, feature_dim=8)[150]
    check_posterior(buffer, 4)
    for batch in stream[age : age + 15].split(3):
        buffer.extend(batch)
        buffer[slot] = stream_of(200, seed=5, feature_dim=8)[150]
        check_posterior(buffer, 4)


# -- generations ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["InfoGS", "InfoRS"])
def test_features_of_items_that_moved_are_left_alone(name):
    buffer = hybrid_of(name, 10, 4)
    stream = stream_of(80)
    buffer.extend(stream[:60])
    sample = sample_of(buffer, list(range(10)))
    buffer.extend(stream[60:62])
    expected = buffer[:]["feature"].clone()
    stay = torch.tensor(
        [one == other for one, other in zip(sample["id"], buffer[:]["id"], strict=True)]
    )
    assert 2 <= int((~stay).sum()) < 10
    sample["feature"] = sample["feature"] + 1
    expected[stay] = sample["feature"][stay]
    buffer.update_tensordict_priority(sample)
    assert torch.equal(buffer[:]["feature"], expected)


def test_an_item_that_moves_is_new_to_a_prioritized_sampler():
    buffer = make_replay_buffer(
        "rs", 6, recent=2, sampler=PrioritizedSampler(6, alpha=1.0, beta=1.0)
    )
    stream = stream_of(8)
    buffer.extend(stream[:6])
    sample = sample_of(buffer, list(range(6)))
    sample["td_error"] = 1.0 + torch.arange(6)
    buffer.update_tensordict_priority(sample)
    before = buffer.writer.generations_of(torch.arange(6))
    slots = buffer.extend(stream[6:])
    priorities = torch.as_tensor(buffer.sampler._sum_tree[torch.arange(6)])
    new = buffer.writer.generations_of(torch.arange(6)) > before
    assert bool(new[slots].all())
    expected = torch.where(new, 6.0, 1.0 + torch.arange(6))
    torch.testing.assert_close(priorities, expected)


# -- storages that hold items already -------------------------------------------------


@pytest.mark.parametrize("name", ["RS", "WRS", "CBRS", "InfoRS"])
def test_the_first_items_of_a_prefilled_storage_are_the_ring(name):
    recent, capacity = 4, 12
    stream = stream_of(90)
    first, rest = stream[:capacity], stream[capacity:]
    hybrid = buffer_of(
        HybridWriter(SELECTIONS[name](), recent),
        capacity,
        lambda _: TensorStorage(first.clone()),
    )
    reference = Reference(name, capacity, recent)
    reference.memory = buffer_of(
        SELECTIONS[name](),
        capacity - recent,
        lambda _: TensorStorage(first[recent:].clone()),
    )
    reference.queue = list(enumerate(first[:recent].clone().unbind(0)))
    reference.count = recent
    assert (hybrid.write_count, hybrid.reservoir_count) == (0, capacity - recent)
    for batch in rest.split(7):
        assert hybrid.extend(batch.clone()).tolist() == reference.extend(batch)
    assert kept_ids(hybrid) == reference.ids()


def test_bad_items_in_the_ring_of_a_prefilled_storage_are_refused():
    stream = stream_of(12)
    stream["feature"][1] = torch.nan
    writer = HybridWriter(SELECTIONS["InfoRS"](), 4)
    buffer = buffer_of(writer, 12, lambda _: TensorStorage(stream))
    with pytest.raises(ValueError, match="item 1"):
        buffer.extend(stream_of(3))


# -- bad input ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recent", [0, -1, 0.0, 1.0, 1.5, float("nan"), True, "3", None]
)
def test_recent_must_be_a_number_of_slots_or_a_share(recent):
    with pytest.raises((TypeError, ValueError), match=rf"recent must be .*{recent!r}"):
        HybridWriter(ReservoirWriter(), recent)


def test_there_must_be_slots_for_the_ring_and_the_selection():
    for recent in (8, 9):
        with pytest.raises(ValueError, match=f"recent must .*8.* got {recent}"):
            make_replay_buffer("rs", 8, recent=recent)
    with pytest.raises(ValueError, match="capacity of at least 2, got 1"):
        make_replay_buffer("rs", 1, recent=0.5)


@pytest.mark.parametrize(
    "selection",
    [FeatureClusterWriter(), CoresetWriter(2), HybridWriter(ReservoirWriter(), 1)],
    ids=lambda selection: type(selection).__name__,
)
def test_a_selection_that_moves_items_itself_is_refused(selection):
    with pytest.raises(ValueError, match=f"selection.*{type(selection).__name__}"):
        HybridWriter(selection, 3)


def test_a_selection_must_be_a_writer():
    with pytest.raises(TypeError, match="selection must be a SelectionWriter.*'rs'"):
        HybridWriter("rs", 3)


@pytest.mark.parametrize(
    ("dtype", "huge"), [(torch.float64, 1e200), (torch.float32, 1e25)], ids=str
)
def test_targets_that_cannot_be_computed_with_do_not_enter_the_ring(dtype, huge):
    """They would block it for good when they leave it."""
    buffer = make_replay_buffer("infors", 10, recent=4, dtype=dtype)

    def items(target):
        return TensorDict(
            {
                "feature": torch.ones(2, 3),
                "target": torch.full((2, 1), target, dtype=torch.float64),
            },
            batch_size=[2],
        )

    buffer.extend(items(1.0))
    with pytest.raises(ValueError, match="'target' has values up to 1e\\+.*too large"):
        buffer.extend(items(huge))
    for _ in range(6):
        buffer.extend(items(1.0))
    assert buffer.write_count == 14


@pytest.mark.parametrize("age", [0, 2, 20])
def test_the_ring_stands_still_if_the_policy_refuses(age):
    """Items that were fine when they came may not be when they leave."""
    failing = []

    def weigh(items):
        return torch.full((len(items),), -1.0 if failing and len(items) == 3 else 1.0)

    buffer, twin = (
        buffer_of(HybridWriter(WeightedReservoirWriter(weigh), 4), 9) for _ in range(2)
    )
    stream = stream_of(60)
    for memory in (buffer, twin):
        if age:
            memory.extend(stream[:age])
    failing.append(True)
    count = 3 + 4 - min(age, 4)  # three leave
    with pytest.raises(ValueError, match="not negative"):
        buffer.extend(stream[30 : 30 + count])
    failing.clear()
    for memory in (buffer, twin):
        memory.extend(stream[40:60])
    assert kept_ids(buffer) == kept_ids(twin)
    assert buffer.write_count == twin.write_count
    generations = [m.writer.generations_of(torch.arange(9)) for m in (buffer, twin)]
    assert torch.equal(*generations)


# -- entry points ---------------------------------------------------------------------


def test_infors_with_a_ring_speaks_of_its_selection():
    buffer = make_replay_buffer("infors", 12, num_classes=CLASSES, recent=4)
    assert isinstance(buffer, InfoReservoirReplayBuffer)
    buffer.extend(stream_of(3))
    assert buffer.moments.weight == 0  # all are in the ring
    buffer.extend(stream_of(47))
    selection = buffer.writer.selection
    assert buffer.moments is selection.moments
    assert buffer.moments.weight == 46
    assert buffer.posterior is selection.posterior
    assert buffer.score(stream_of(5)).shape == (5,)
    check = buffer.reservoir_count, buffer.write_count
    assert check == (selection.reservoir_count, 50)
