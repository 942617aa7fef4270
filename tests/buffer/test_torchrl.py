"""The buffers are TensorDictReplayBuffers: what TorchRL's users do with one works."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from tensordict import LazyStackedTensorDict, TensorDict, lazy_stack
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import Tensor
from torchrl.collectors import Collector, MultiSyncCollector
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    RandomSampler,
    ReplayBufferEnsemble,
    RoundRobinWriter,
    SamplerWithoutReplacement,
    Storage,
    TensorDictReplayBuffer,
    TensorStorage,
)
from torchrl.data.replay_buffers.samplers import (
    PrioritizedSampler,
    PrioritizedSliceSampler,
    SliceSampler,
    SliceSamplerWithoutReplacement,
)
from torchrl.envs import GymEnv, Transform
from torchrl.weight_update import SharedMemWeightSyncScheme

from info_replay import (
    OutputHessian,
    SelectiveReplayBuffer,
)

from .helpers import (
    BATCH,
    CAPACITY,
    CLASSES,
    FEATURES,
    HYBRID,
    INFORMATION,
    LABELED,
    POLICIES,
    WIDTH,
    assert_full,
    assert_in_step,
    complete_state,
    differences,
    for_each_feature_policy,
    for_each_information_policy,
    for_each_kind,
    for_each_policy,
    linear_gradients,
    make_buffer,
    make_stream,
    make_writer,
    past_ring,
    play,
    sample_of,
)

STORAGES: dict[str, Callable[[], Storage]] = {
    "tensor": lambda: LazyTensorStorage(CAPACITY),
    "tensor-auto-device": lambda: LazyTensorStorage(CAPACITY, device="auto"),
    "memmap": lambda: LazyMemmapStorage(CAPACITY),
}
#: Kinds whose memory, once full, is full.
for_each_fixed_kind = pytest.mark.parametrize(
    "policy", ["rs", "infors", "recent-infors"]
)
#: To a prioritized sampler, an item that moves on from a ring is a new one.
for_each_pure_kind = pytest.mark.parametrize("policy", ["rs", "infors"])


def filled(policy: str, **options: Any) -> SelectiveReplayBuffer:
    """A buffer that is full and has already turned items away."""
    buffer = make_buffer(policy, **options)
    buffer.extend(make_stream(3 * CAPACITY))
    return buffer


def assert_holds_items_of(buffer: SelectiveReplayBuffer, stream: TensorDict) -> None:
    """Every slot holds one item of the stream, whole, and no item is held twice."""
    memory = buffer[:]
    ids = memory["id"]
    assert len(ids.unique()) == len(buffer)
    for key in ("observation", "target", "logits"):
        assert torch.equal(memory[key], stream[key][ids])


# -- building -------------------------------------------------------------------------


@for_each_kind
def test_a_buffer_can_be_built_when_it_is_first_used(policy: str) -> None:
    stream = make_stream(40)
    late = make_buffer(policy, storage=STORAGES["tensor"], delayed_init=True)
    assert isinstance(late, TensorDictReplayBuffer)
    log = play(late, stream)
    assert differences(log, play(make_buffer(policy), stream)) == []
    assert differences(log, play(make_buffer(policy, seed=1), stream)) != []


# -- storages -------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
@for_each_kind
def test_decisions_do_not_depend_on_the_storage(policy: str, storage: str) -> None:
    stream = make_stream(60)
    buffer = make_buffer(policy, storage=STORAGES[storage]())
    assert differences(play(buffer, stream), play(make_buffer(policy), stream)) == []
    assert_full(buffer)
    assert_holds_items_of(buffer, stream)


@pytest.mark.parametrize("source", ["the storage", "another buffer"])
@pytest.mark.parametrize("policy", ["rs", "wrs", "cbrs", "gss", "infogs", "infors"])
def test_items_that_are_there_already_count_as_the_first_of_the_stream(
    policy: str, source: str
) -> None:
    stream = make_stream(100)
    first, rest = stream[:CAPACITY], stream[CAPACITY:]
    grown = make_buffer(policy)
    grown.extend(first.clone())
    if source == "the storage":
        buffer = make_buffer(policy, storage=TensorStorage(first.clone()))
        assert buffer.reservoir_count == grown.reservoir_count == CAPACITY
    else:
        storage = LazyTensorStorage(CAPACITY)
        buffer = make_buffer(policy, storage=storage)
        TensorDictReplayBuffer(storage=storage, batch_size=1).extend(first.clone())
    assert (len(buffer), buffer.write_count) == (CAPACITY, 0)
    for batch in rest.split(8):
        assert torch.equal(buffer.extend(batch.clone()), grown.extend(batch.clone()))
    # TorchRL's buffer stores an "index", too.
    assert differences(buffer[:].exclude("index"), grown[:]) == []
    assert buffer.reservoir_count == grown.reservoir_count


@for_each_policy
def test_an_emptied_prefilled_storage_fills_again_like_a_new_one(policy: str) -> None:
    stream = make_stream(40)
    buffer = make_buffer(policy, storage=TensorStorage(make_stream(CAPACITY, seed=9)))
    buffer.empty()
    assert (len(buffer), buffer.reservoir_count) == (0, 0)
    assert differences(play(buffer, stream), play(make_buffer(policy), stream)) == []


@pytest.mark.parametrize("emptied", [False, True])
@for_each_feature_policy
def test_a_sample_of_a_prefilled_slot_is_stale_once_the_slot_is_rewritten(
    policy: str, emptied: bool
) -> None:
    buffer = make_buffer(policy, storage=TensorStorage(make_stream(CAPACITY)))
    sample = sample_of(buffer, list(range(CAPACITY)))
    assert_in_step(buffer)
    if emptied:
        buffer.empty()
    slots = buffer.extend(make_stream(400, seed=1))
    rewritten = slots[slots >= 0]
    assert len(rewritten)
    expected = buffer[:]["feature"].clone()
    sample["feature"] = torch.full((CAPACITY, WIDTH), 5.0)
    buffer.update_features(sample)
    assert torch.equal(buffer[:]["feature"][rewritten], expected[rewritten])
    assert not emptied or torch.equal(buffer[:]["feature"], expected)
    assert_in_step(buffer)


# -- what may be offered --------------------------------------------------------------


@for_each_policy
def test_nested_keys_are_read_like_flat_ones(policy: str) -> None:
    stream = make_stream(50)
    nested = stream.exclude("feature", "target", "logits")
    for key in ("feature", "target", "logits"):
        nested["agent", key] = stream[key]
    options: dict[str, Any] = {}
    if policy in LABELED:
        options["target_key"] = ("agent", "target")
    if policy in FEATURES:
        options["feature_key"] = ("agent", "feature")
    if policy == "wrs":
        options["score"] = OutputHessian(("agent", "logits"))
    if policy == "gss":
        options["gradients"] = functools.partial(
            linear_gradients,
            feature_key=("agent", "feature"),
            target_key=("agent", "target"),
        )
    deep, flat = make_buffer(policy, **options), make_buffer(policy)
    for batch, twin in zip(nested.split(7), stream.split(7), strict=True):
        assert torch.equal(deep.extend(batch.clone()), flat.extend(batch := twin))
    assert torch.equal(deep[:]["agent", "feature"], flat[:]["feature"])
    sample = deep.sample()
    sample["agent", "feature"] = sample["agent", "feature"] + 1
    deep.update_tensordict_priority(sample)
    written = deep[:]["agent", "feature"][sample["index"]]
    assert policy not in FEATURES or torch.equal(written, sample["agent", "feature"])
    assert_in_step(deep)


@for_each_kind
def test_a_batch_may_be_lazy_and_name_its_device(policy: str) -> None:
    lazy, named, plain = (make_buffer(policy) for _ in range(3))
    for batch in make_stream(60).split(6):
        stack = lazy_stack([item.clone() for item in batch.unbind(0)])
        assert isinstance(stack, LazyStackedTensorDict)
        assert batch.device is None
        slots = plain.extend(batch.clone())
        assert slots.device.type == "cpu"
        assert torch.equal(slots, lazy.extend(stack))
        assert torch.equal(slots, named.extend(batch.clone().to("cpu")))
    for buffer in (lazy, named):
        assert differences(complete_state(buffer), complete_state(plain)) == []


@for_each_kind
def test_a_memory_that_was_filled_in_inference_mode_is_of_use_outside(
    policy: str,
) -> None:
    stream = make_stream(60)
    inside, outside = make_buffer(policy), make_buffer(policy)
    for number, batch in enumerate(stream.split(6)):
        outside.extend(batch.clone())
        with torch.inference_mode(number % 3 == 0):
            inside.extend(batch.clone())
            inside.add(batch[0].clone())
        outside.add(batch[0].clone())
    assert differences(complete_state(inside), complete_state(outside)) == []
    sample = inside.sample()
    assert not sample["feature"].is_inference()


@for_each_kind
def test_gradients_never_reach_the_storage(policy: str) -> None:
    stream = make_stream(60)
    weight = torch.ones((), requires_grad=True)
    buffer = make_buffer(policy)
    for batch in stream.split(6):
        batch = batch.clone()
        for key in ("feature", "logits", "observation"):
            batch[key] = batch[key] * weight
        buffer.extend(batch)
        batch["feature"].sum().backward()
        buffer.add(batch[0])
        sample = buffer.sample()
        assert not any(entry.requires_grad for entry in sample.values(True, True))
        sample["feature"] = sample["feature"] * weight
        buffer.update_tensordict_priority(sample)
        sample["feature"].sum().backward()
    memory = buffer.storage[:]
    assert not any(entry.requires_grad for entry in memory.values(True, True))
    if policy in INFORMATION:
        scored = stream.clone()
        scored["feature"] = scored["feature"] * weight
        assert not buffer.score(scored).requires_grad
        assert_in_step(buffer)


@for_each_kind
def test_items_may_come_from_a_sample(policy: str) -> None:
    other = make_buffer(policy)
    other.extend(filled(policy).sample())
    other.extend(make_stream(5))
    assert not {"index", "index_generation"} & set(other.storage[:].keys())


# -- what extend and add tell ---------------------------------------------------------


@pytest.mark.parametrize("chunk", [7, 50])
@for_each_policy
def test_what_is_in_the_memory_is_what_was_told(policy: str, chunk: int) -> None:
    buffer = make_buffer(policy)
    rejected = 0
    for batch in make_stream(100).split(chunk):
        before = set(buffer[:]["id"].tolist()) if len(buffer) else set()
        slots = buffer.extend(batch.clone())
        assert (slots.shape, slots.dtype) == (batch.batch_size, torch.int64)
        kept = slots >= 0
        assert bool((slots[~kept] == -1).all())
        assert len(slots[kept].unique()) == int(kept.sum())
        arrived = set(buffer[:]["id"].tolist()) - before
        assert arrived == set(batch["id"][kept].tolist())
        rejected += int((~kept).sum())
    assert rejected or policy in HYBRID  # whose ring takes all of a small batch


@for_each_kind
def test_adding_items_is_extending_by_one(policy: str) -> None:
    added, extended = make_buffer(policy), make_buffer(policy)
    kept = 0
    for item in make_stream(50):
        slot = added.add(item.clone())
        assert slot == int(extended.extend(item.unsqueeze(0).clone()))
        kept += slot >= 0
    assert kept > CAPACITY
    assert (kept < 50) == (policy not in HYBRID)  # all of them are recent first
    assert differences(complete_state(added), complete_state(extended)) == []


# -- reading and sampling -------------------------------------------------------------


@for_each_kind
def test_slots_are_read_by_number_slice_tensor_and_key(policy: str) -> None:
    buffer = make_buffer(policy)
    buffer.extend(make_stream(5))  # of one that fills, what it holds
    assert buffer[:].batch_size == torch.Size([5])
    buffer.extend(make_stream(3 * CAPACITY))
    memory = buffer.storage[:]
    assert differences(buffer[:], memory) == []
    assert differences(buffer[3], memory[3]) == []
    assert differences(buffer[2:5], memory[2:5]) == []
    picks = torch.tensor([4, 0, 4])
    assert differences(buffer[picks], memory[picks]) == []
    assert torch.equal(buffer["feature"], memory["feature"])


@for_each_kind
def test_a_sample_carries_slots_and_generations(policy: str) -> None:
    buffer = filled(policy)
    sample, info = buffer.sample(return_info=True)
    assert torch.equal(sample["index"], info["index"])
    assert torch.equal(
        sample["index_generation"], buffer.writer.generations_of(info["index"])
    )
    assert torch.equal(buffer[:]["id"][sample["index"]], sample["id"])
    batches = [batch for _, batch in zip(range(3), buffer, strict=False)]
    assert [batch.batch_size for batch in batches] == [torch.Size([BATCH])] * 3
    assert buffer.next().batch_size == torch.Size([BATCH])


@pytest.mark.filterwarnings("ignore:Got conflicting batch_sizes")
@for_each_kind
def test_samplers_reach_every_slot_in_use(policy: str) -> None:
    for count in (5, 3 * CAPACITY):
        buffer = make_buffer(policy, sampler=RandomSampler())
        buffer.extend(make_stream(count))
        slots = list(range(len(buffer)))
        assert buffer.sample(500)["index"].unique().tolist() == slots
    buffer = filled(policy, sampler=SamplerWithoutReplacement(), batch_size=4)
    visited = torch.cat([batch["index"] for batch in buffer])
    assert sorted(visited.tolist()) == list(range(len(buffer)))


def priorities(buffer: SelectiveReplayBuffer) -> Tensor:
    """The priority of every slot; the sampler is made with an exponent of 1.

    TorchRL shows them nowhere else.
    """
    return torch.as_tensor(buffer.sampler._sum_tree[torch.arange(CAPACITY)])


def make_prioritized(policy: str) -> SelectiveReplayBuffer:
    """A full buffer in which slot ``i`` has the priority ``1 + i``."""
    buffer = filled(policy, sampler=PrioritizedSampler(CAPACITY, alpha=1.0, beta=1.0))
    sample = sample_of(buffer, list(range(CAPACITY)))
    sample["td_error"] = 1.0 + torch.arange(CAPACITY)
    buffer.update_tensordict_priority(sample)
    torch.testing.assert_close(priorities(buffer), 1.0 + torch.arange(CAPACITY))
    return buffer


@for_each_pure_kind
def test_priorities_are_those_of_the_items_that_are_kept(policy: str) -> None:
    buffer = make_prioritized(policy)
    for item in make_stream(40, seed=1):
        before = priorities(buffer)
        slot = buffer.add(item.clone())
        changed = (priorities(buffer) != before).nonzero().flatten().tolist()
        assert changed in ([], [slot])
    buffer = make_prioritized(policy)
    slots = buffer.extend(make_stream(40, seed=1))
    rewritten = slots[slots >= 0]
    assert 0 < len(rewritten) < CAPACITY
    expected = 1.0 + torch.arange(CAPACITY)
    expected[rewritten] = CAPACITY  # a new item has the largest priority so far
    torch.testing.assert_close(priorities(buffer), expected)
    buffer.empty()
    buffer.extend(make_stream(5))
    expected = torch.tensor([1.0] * 5 + [0.0] * (CAPACITY - 5))
    torch.testing.assert_close(priorities(buffer), expected)


@for_each_pure_kind
def test_a_priority_that_comes_with_an_item_is_used_if_the_item_is_kept(
    policy: str,
) -> None:
    sampler = PrioritizedSampler(CAPACITY, alpha=1.0, beta=1.0)
    buffer = make_buffer(policy, sampler=sampler)
    stream = make_stream(60)
    stream["td_error"] = 1.0 + torch.arange(60)
    for batch in stream.split(10):
        buffer.extend(batch.clone())
    torch.testing.assert_close(priorities(buffer), 1.0 + buffer[:]["id"].float())
    for item in stream[:30]:
        buffer.add(item.clone())
    torch.testing.assert_close(priorities(buffer), buffer[:]["td_error"])


@for_each_information_policy
def test_new_features_and_priorities_go_the_same_way(policy: str) -> None:
    buffer = make_prioritized(policy)
    sample = buffer.sample()
    sample["feature"] = sample["feature"] + 1
    sample["td_error"] = torch.full((BATCH,), 99.0)
    buffer.update_tensordict_priority(sample)
    index = sample["index"]
    torch.testing.assert_close(priorities(buffer)[index], torch.full((BATCH,), 99.0))
    assert torch.equal(buffer[:]["feature"][index], sample["feature"])
    assert_in_step(buffer)


# -- sequences ------------------------------------------------------------------------

SLICES: dict[str, Callable[[], SliceSampler]] = {
    "slices": lambda: SliceSampler(num_slices=2, traj_key="episode"),
    "without replacement": lambda: SliceSamplerWithoutReplacement(
        num_slices=2, traj_key="episode"
    ),
    "prioritized": lambda: PrioritizedSliceSampler(
        CAPACITY, 1.0, 1.0, num_slices=2, traj_key="episode"
    ),
}


@pytest.mark.parametrize("sampler", SLICES)
@for_each_kind
def test_slices_of_steps_are_refused(policy: str, sampler: str) -> None:
    """Neighbors in the memory are not neighbors in time."""
    words = "mix episodes; store whole sequences as items instead"
    with pytest.raises(ValueError, match=f"Slice.*{words}"):
        make_buffer(policy, sampler=SLICES[sampler]())
    plain = TensorDictReplayBuffer(
        storage=LazyTensorStorage(CAPACITY),
        writer=make_writer(policy),
        sampler=SLICES[sampler](),
        batch_size=4,
    )
    stream = make_stream(CAPACITY)
    stream["episode"] = torch.arange(CAPACITY) // 4
    plain.extend(stream)
    with pytest.raises(TypeError, match=words):
        plain.sample()
    with pytest.raises(TypeError, match=words):
        plain.writer.generations_of((torch.arange(3),))


def make_sequences(count: int, *, seed: int = 0, length: int = 7) -> TensorDict:
    """Sequences of steps, each with one feature and one target."""
    generator = torch.Generator().manual_seed(seed)
    items = make_stream(count, seed=seed)
    steps = torch.randn(count, length, 3, generator=generator)
    items["observation"] = steps
    items["next", "observation"] = steps.roll(-1, 1)
    items["next", "reward"] = steps.sum(-1, keepdim=True)
    items["mask"] = torch.rand(count, length, generator=generator) < 0.9
    return items


@for_each_policy
def test_items_may_be_sequences(policy: str, tmp_path: Any) -> None:
    buffer = make_buffer(policy)
    stream = make_sequences(60)
    for batch in stream.split(6):
        buffer.extend(batch.clone())
        sample = buffer.sample()
        assert sample["observation"].shape == (BATCH, 7, 3)
        # One feature per sequence: of its last step, say, as the network is now.
        sample["feature"] = sample["feature"] + 0.1 * sample["mask"].sum(1)[:, None]
        buffer.update_tensordict_priority(sample)
    memory = buffer[:]
    for key in ("observation", ("next", "observation"), ("next", "reward"), "mask"):
        assert torch.equal(memory[key], stream[key][memory["id"]])
    assert_full(buffer)
    assert_in_step(buffer)
    if policy in INFORMATION:
        assert buffer.score(make_sequences(9, seed=1)).shape == (9,)
    with pytest.raises(ValueError, match=r"'observation'.*\(7, 3\).*\(8, 3\)"):
        buffer.extend(make_sequences(3, length=8))
    buffer.dumps(tmp_path)
    twin = make_buffer(policy, seed=5)
    twin.loads(tmp_path)
    more = make_sequences(20, seed=2)
    assert torch.equal(buffer.extend(more.clone()), twin.extend(more.clone()))


# -- transforms and prefetching -------------------------------------------------------


class Scale(Transform):
    """Halves observations on the way in, doubles them on the way out."""

    def forward(self, tensordict: TensorDict) -> TensorDict:
        return tensordict.set("observation", tensordict["observation"] * 2)

    def _inv_call(self, tensordict: TensorDict) -> TensorDict:
        return tensordict.set("observation", tensordict["observation"] / 2)


@for_each_kind
def test_transforms_act_on_samples_and_inverse_transforms_on_items(
    policy: str,
) -> None:
    stream = make_stream(40)
    buffer = make_buffer(policy)
    buffer.append_transform(Scale())
    buffer.extend(stream.clone())
    buffer.add(stream[0].clone())
    stored = buffer.storage[:]
    assert torch.equal(stored["observation"], stream["observation"][stored["id"]] / 2)
    read = buffer[torch.arange(len(buffer))]
    assert torch.equal(read["observation"], stored["observation"] * 2)
    sample = buffer.sample()
    assert torch.equal(sample["observation"], stream["observation"][sample["id"]])


@for_each_kind
def test_the_policy_sees_what_the_inverse_transforms_made(policy: str) -> None:
    stream = make_stream(60)

    def add_entries(batch: TensorDict) -> TensorDict:
        return batch.update(stream[batch["id"]])

    buffer, plain = make_buffer(policy), make_buffer(policy)
    buffer.append_transform(add_entries, invert=True)
    for batch in stream.split(6):
        assert torch.equal(
            buffer.extend(batch.select("id").clone()), plain.extend(batch.clone())
        )


@for_each_kind
def test_a_transform_that_drops_a_batch_leaves_the_memory_alone(policy: str) -> None:
    buffer = filled(policy)
    before = complete_state(buffer)
    buffer.append_transform(lambda batch: None, invert=True)
    assert len(buffer.extend(make_stream(4))) == 0
    assert buffer.add(make_stream(1)[0]) == -1
    after = complete_state(buffer)
    del before["_transforms"], after["_transforms"]
    assert differences(before, after) == []


@for_each_kind
def test_prefetched_samples_are_items_of_the_memory(policy: str) -> None:
    stream = make_stream(50)
    buffer = make_buffer(policy, prefetch=3)
    for batch in stream.split(10):
        buffer.extend(batch.clone())
        for _ in range(4):
            sample = buffer.sample()
            assert torch.equal(
                sample["observation"], stream["observation"][sample["id"]]
            )
            sample["feature"] = sample["feature"] + 1
            buffer.update_tensordict_priority(sample)
    assert_in_step(buffer)


class SlowSampler(RandomSampler):
    """Gives the caller time to meet a sample that is still being drawn."""

    def sample(self, storage: Storage, batch_size: int) -> tuple[Tensor, dict]:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.05)
        return super().sample(storage, batch_size)


class WatchedLock:
    """A lock that refuses to be taken by the main thread while samples are drawn."""

    def __init__(self, buffer: SelectiveReplayBuffer) -> None:
        self.buffer, self.lock = buffer, buffer._replay_lock

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            drawn = all(future.done() for future in self.buffer._prefetch_queue)
            assert drawn, "waiting for samples that wait for this lock"
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@pytest.mark.parametrize("save", ["state_dict", "dumps", "deepcopy"])
def test_saving_waits_for_prefetched_samples_without_blocking_them(
    save: str, tmp_path: Any
) -> None:
    buffer = filled("infors", prefetch=2, sampler=SlowSampler())
    buffer.sample()  # two more are being drawn now, each under the replay lock
    buffer._replay_lock = WatchedLock(buffer)
    if save == "deepcopy":
        copy.deepcopy(buffer)
    elif save == "dumps":
        buffer.dumps(tmp_path)
    else:
        assert len(buffer.state_dict()["_prefetched"]["queue"]) == 2


# -- emptying and writing back --------------------------------------------------------


@for_each_feature_policy
def test_a_sample_from_before_emptying_is_not_written_back(policy: str) -> None:
    buffer = filled(policy)
    sample = buffer.sample()
    buffer.empty(empty_write_count=False)
    assert (len(buffer), buffer.write_count) == (0, 3 * CAPACITY)
    buffer.extend(make_stream(CAPACITY))
    before = buffer[:]["feature"].clone()
    sample["feature"] = sample["feature"] + 1
    buffer.update_tensordict_priority(sample)
    assert torch.equal(buffer[:]["feature"], before)
    assert_in_step(buffer)


@for_each_policy
def test_policies_without_features_ignore_new_ones(policy: str) -> None:
    buffer = filled(policy)
    before = complete_state(buffer)
    sample = sample_of(buffer, [0, 1])
    sample["feature"] = sample["feature"] + 1
    buffer.update_tensordict_priority(sample)
    unchanged = differences(before, complete_state(buffer)) == []
    assert unchanged == (policy not in FEATURES)


@for_each_feature_policy
def test_features_that_are_fixed_are_not_written_back(policy: str) -> None:
    buffer = make_buffer(policy, fixed_features=True)
    buffer.extend(make_stream(40))
    before = complete_state(buffer)
    sample = sample_of(buffer, [0, 1])
    sample["feature"] = sample["feature"] + 1
    for write_back in (buffer.update_features, buffer.update_tensordict_priority):
        for given in (sample, sample.exclude("feature")):  # nobody looks at it
            write_back(given)
            assert differences(before, complete_state(buffer)) == []


@pytest.mark.parametrize("width", [WIDTH, 40], ids=["primal", "kernel"])
@for_each_information_policy
def test_of_a_slot_that_was_sampled_twice_the_last_row_wins(
    policy: str, width: int
) -> None:
    buffer = make_buffer(policy)
    buffer.extend(make_stream(40, width=width))
    expected = buffer[:]["feature"].clone()
    sample = sample_of(buffer, [3, 1, 3, 3, 8])
    sample["feature"] = torch.arange(5.0)[:, None].expand(5, width).clone()
    buffer.update_features(sample)
    expected[[1, 3, 8]] = torch.tensor([1.0, 3.0, 4.0])[:, None].expand(3, width)
    assert torch.equal(buffer[:]["feature"], expected)
    assert_in_step(buffer)


@pytest.mark.parametrize("rows", [2, 3 * CAPACITY])
@pytest.mark.parametrize("width", [WIDTH, 40], ids=["primal", "kernel"])
@for_each_feature_policy
def test_statistics_follow_write_backs_of_any_size(
    policy: str, width: int, rows: int
) -> None:
    stream = make_stream(70, width=width)
    buffer = make_buffer(policy, batch_size=rows)
    for batch in stream.split(10):
        buffer.extend(batch.clone())
        sample = buffer.sample()
        sample["feature"] = sample["feature"] * 0.5 + torch.randn(rows, width)
        buffer.update_tensordict_priority(sample)
        assert torch.equal(
            buffer[:]["feature"][sample["index"][-1]], sample["feature"][-1]
        )
        assert_in_step(buffer)


@for_each_information_policy
def test_a_slot_that_was_rewritten_since_it_was_sampled_is_skipped(policy: str) -> None:
    buffer = filled(policy)
    stale = sample_of(buffer, list(range(CAPACITY)))
    slots = buffer.extend(make_stream(100, seed=1))
    fresh = (buffer[:]["observation"] != stale["observation"]).any(1)
    assert fresh[slots[slots >= 0]].all()
    assert fresh.any()
    stale["feature"] = stale["feature"] + 1
    # Of a slot that was sampled before and after, the live row counts.
    live = sample_of(buffer, [int(slots.max())])
    live["feature"] = torch.full((1, WIDTH), 2.0)
    expected = buffer[:]["feature"].clone()
    expected[~fresh] = stale["feature"][~fresh]
    expected[live["index"]] = 2.0
    buffer.update_tensordict_priority(torch.cat([live, stale]))
    assert torch.equal(buffer[:]["feature"], expected)
    assert_in_step(buffer)


@for_each_feature_policy
def test_one_item_none_or_a_view_of_the_memory_can_be_written_back(policy: str) -> None:
    buffer = filled(policy)
    item = sample_of(buffer, [3])[0]
    item["feature"] = torch.full((WIDTH,), 2.0)
    buffer.update_tensordict_priority(item)
    assert torch.equal(buffer[3]["feature"], torch.full((WIDTH,), 2.0))
    assert_in_step(buffer)
    before = complete_state(buffer)
    buffer.update_tensordict_priority(sample_of(buffer, [0])[:0])
    assert differences(before, complete_state(buffer)) == []
    memory = buffer[:]
    expected = memory["feature"].clone()
    memory["index"] = torch.arange(len(buffer))
    buffer.update_tensordict_priority(memory)
    assert torch.equal(buffer[:]["feature"], expected)
    assert_in_step(buffer)


# -- writing by other means -----------------------------------------------------------


SOME = torch.tensor([2, 5])


def set_targets_at(buffer: SelectiveReplayBuffer) -> None:
    wrong = (buffer[:]["target"][-2:] + 1) % CLASSES
    buffer.set_at_("target", wrong, torch.tensor([-2, -1]) + CAPACITY)


def update_those_present(buffer: SelectiveReplayBuffer) -> None:
    sample = buffer.sample()
    result = buffer.update_if_present(
        index=sample["index"],
        generation=sample["index_generation"],
        patch={"feature": torch.ones(BATCH, WIDTH)},
    )
    assert result.updated_count == BATCH


WRITES: dict[str, Callable[[SelectiveReplayBuffer], Any]] = {
    "items": lambda buffer: buffer.__setitem__(SOME, make_stream(2, seed=8)),
    "item": lambda buffer: buffer.__setitem__(3, make_stream(1, seed=8)[0]),
    "features": lambda buffer: buffer.set_at_("feature", torch.ones(2, WIDTH), SOME),
    "targets": set_targets_at,
    "all features": lambda buffer: buffer.set_("feature", torch.ones(CAPACITY, WIDTH)),
    "update": lambda buffer: buffer.update_({"feature": torch.ones(CAPACITY, WIDTH)}),
    "update if present": update_those_present,
    "all items": lambda buffer: buffer.write_all(make_stream(CAPACITY, seed=8)),
}


@pytest.mark.parametrize(
    ("policy", "storage"),
    [("infors", "tensor"), ("infors", "memmap"), ("recent-infors", "tensor")],
)
@pytest.mark.parametrize("write", WRITES)
def test_the_posterior_notices_writes_by_other_means(
    policy: str, write: str, storage: str
) -> None:
    buffer = filled(policy, storage=STORAGES[storage]())
    stream = make_stream(20, seed=3)
    before = buffer.score(stream)
    WRITES[write](buffer)
    assert not torch.equal(buffer.score(stream), before)
    assert_in_step(buffer)
    WRITES[write](buffer)
    slots = buffer.extend(stream.clone())
    assert torch.equal(buffer[:]["id"][slots[slots >= 0]], stream["id"][slots >= 0])
    assert_in_step(buffer)


# TorchRL replaces the entry of a memory only if that is full.
@for_each_fixed_kind
def test_an_entry_that_is_replaced_whole_is_the_one_that_is_used(policy: str) -> None:
    buffer = filled(policy)
    stream = make_stream(60, seed=3)
    buffer["feature"] = torch.ones(CAPACITY, WIDTH)
    assert torch.equal(buffer[:]["feature"], torch.ones(CAPACITY, WIDTH))
    assert_in_step(buffer)
    slots = buffer.extend(stream.clone())
    kept = slots >= 0
    assert torch.equal(buffer[:]["feature"][slots[kept]], stream["feature"][kept])
    assert_in_step(buffer)


# -- two buffers on one storage -------------------------------------------------------


def assert_other_writes_are_noticed(
    buffer: SelectiveReplayBuffer, other: TensorDictReplayBuffer
) -> None:
    """What the other buffer rewrote is stale to this one, and the rest is live."""
    sample = sample_of(buffer, list(range(CAPACITY)))
    before = buffer[:]["observation"].clone()
    index = other.extend(make_stream(6, seed=4))
    slots = index[index >= 0].tolist()
    assert 0 < len(slots) < CAPACITY
    now = buffer.writer.generations_of(sample["index"])
    stale = (now != sample["index_generation"]).nonzero().flatten()
    assert stale.tolist() == sorted(slots)
    assert torch.equal(now, other.writer.generations_of(sample["index"]))
    expected = buffer[:]["feature"].clone() + 1
    expected[slots] -= 1
    sample["feature"] = sample["feature"] + 1
    buffer.update_tensordict_priority(sample)
    torch.testing.assert_close(buffer[:]["feature"], expected)
    changed = (buffer[:]["observation"] != before).any(1).nonzero().flatten()
    assert changed.tolist() == sorted(slots)
    assert_in_step(buffer)


@pytest.mark.parametrize("storage", ["tensor", "memmap"])
def test_two_selecting_buffers_see_each_others_writes(storage: str) -> None:
    shared = STORAGES[storage]()
    one = make_buffer("infors", storage=shared, gamma=-3.0)
    one.extend(make_stream(CAPACITY))
    two = make_buffer("infors", storage=shared, gamma=-3.0, seed=1)
    assert len(two) == CAPACITY
    for here, there in ((one, two), (two, one), (one, two)):
        assert_other_writes_are_noticed(here, there)


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_a_buffer_of_torchrl_and_ours_see_each_others_writes(first: str) -> None:
    storage = LazyTensorStorage(CAPACITY)
    theirs = TensorDictReplayBuffer(
        storage=storage,
        writer=RoundRobinWriter(track_generations=True),
        batch_size=BATCH,
    )
    if first == "theirs":
        theirs.extend(make_stream(CAPACITY))
    ours = make_buffer("infors", storage=storage, gamma=-3.0)
    if first == "ours":
        ours.extend(make_stream(CAPACITY))
    for _ in range(3):
        assert_other_writes_are_noticed(ours, theirs)
        sample = theirs.sample()
        slots = ours.extend(make_stream(6, seed=5))
        stale = torch.isin(sample["index"], slots)
        result = theirs.update_if_present(
            index=sample["index"],
            generation=sample["index_generation"],
            patch={"observation": torch.zeros(BATCH, 3)},
        )
        assert result.stale_count == int(stale.sum())


# -- ensembles and collectors ---------------------------------------------------------


@for_each_kind
def test_an_ensemble_samples_from_its_buffers_and_writes_to_them(policy: str) -> None:
    stream = make_stream(120)
    stream["part"] = torch.arange(120) % 2
    parts = [make_buffer(policy), make_buffer("rs")]
    ensemble = ReplayBufferEnsemble(
        *parts, batch_size=12, sample_from_all=True, routing_key="part"
    )
    for batch in stream.split(20):
        index = ensemble.extend(batch.clone())["index"]
        assert len(index) == 20
    assert bool((index == -1).any())
    assert [part.write_count for part in parts] == [60, 60]
    sample = ensemble.sample()
    assert sample.batch_size == torch.Size([2, 6])
    for part in (0, 1):
        assert bool((sample[part]["part"] == part).all())
        assert torch.equal(
            sample[part]["observation"], stream["observation"][sample[part]["id"]]
        )


def make_cart_pole() -> GymEnv:
    return GymEnv("CartPole-v1", categorical_action_encoding=True)


def best(logits: Tensor) -> Tensor:
    return logits.argmax(-1)


def make_agent() -> TensorDictSequential:
    """An agent that shows its features and logits."""
    body = torch.nn.Sequential(torch.nn.Linear(4, WIDTH), torch.nn.Tanh())
    return TensorDictSequential(
        TensorDictModule(body, ["observation"], ["feature"]),
        TensorDictModule(torch.nn.Linear(WIDTH, 2), ["feature"], ["logits"]),
        TensorDictModule(best, ["logits"], ["action"]),
    )


#: What a policy looks at; only those that look at targets have a use for it.
REWARDS = {"target_key": ("next", "reward"), "num_classes": None}


@for_each_kind
def test_a_collector_fills_the_buffer(policy: str) -> None:
    buffer = make_buffer(policy, 32, **REWARDS)
    collector = Collector(
        make_cart_pole,
        make_agent(),
        replay_buffer=buffer,
        frames_per_batch=20,
        total_frames=60,
    )
    for number, nothing in enumerate(collector, start=1):
        assert nothing is None
        assert buffer.write_count == 20 * number
        sample = buffer.sample()
        sample["feature"] = sample["feature"] + 0.1
        buffer.update_tensordict_priority(sample)
    collector.shutdown()
    assert_full(buffer)
    assert_in_step(buffer)
    if policy in INFORMATION:
        assert buffer.moments.weight == past_ring(policy, 60)


def test_collectors_in_other_processes_fill_one_buffer() -> None:
    buffer = make_buffer("infors", 32, **REWARDS)
    # Of our own, so that it can be shut down: TorchRL would wait for it at exit.
    scheme = SharedMemWeightSyncScheme()
    collector = MultiSyncCollector(
        [make_cart_pole] * 2,
        make_agent(),
        replay_buffer=buffer,
        frames_per_batch=40,
        total_frames=80,
        weight_sync_schemes={"policy": scheme},
    )
    try:
        # The item that gave the storage its shape is forgotten.
        assert (len(buffer), buffer.write_count, buffer.moments.weight) == (0, 0, 0)
        for number, _ in enumerate(collector, start=1):
            assert buffer.write_count == 40 * number
            sample = buffer.sample()
            sample["feature"] = sample["feature"] + 0.1
            buffer.update_tensordict_priority(sample)
            assert_in_step(buffer)
    finally:
        collector.shutdown()
        scheme.shutdown()
    assert (len(buffer), buffer.moments.weight) == (32, 80)


# -- sharing --------------------------------------------------------------------------

SHARED_ITEMS, SHARED_CHUNK = 90, 6


def offer_in_child(
    buffers: dict[str, SelectiveReplayBuffer], started: Any, proceed: Any
) -> None:
    """Run by another process: offer a stream to every buffer."""
    torch.set_num_threads(1)
    for part, batch in enumerate(make_stream(SHARED_ITEMS).split(SHARED_CHUNK)):
        for buffer in buffers.values():
            buffer.extend(batch.clone())
        if part == 2:
            started.set()
        if part == 10:
            assert proceed.wait(60)


def write_from_two_processes() -> dict[str, SelectiveReplayBuffer]:
    """Buffers that a child process wrote to while this one sampled and wrote back."""
    stream = make_stream(SHARED_ITEMS)
    buffers = {}
    for policy in POLICIES:
        buffer = make_buffer(policy, shared=True)
        # Storage and statistics take their shape from a first item.
        buffer.extend(make_stream(1, seed=9))
        buffer.empty()
        buffers[policy] = buffer
    context = mp.get_context("spawn")
    started, proceed = context.Event(), context.Event()
    child = context.Process(target=offer_in_child, args=(buffers, started, proceed))
    child.start()
    try:
        while child.is_alive() and not started.wait(0.1):
            pass
        rounds = 0
        while child.is_alive():
            for buffer in buffers.values():
                sample = buffer.sample()
                for key in ("observation", "target"):
                    assert torch.equal(sample[key], stream[key][sample["id"]])
                sample["feature"] = 0.9 * sample["feature"] + 0.1
                buffer.update_tensordict_priority(sample)
            rounds += 1
            if rounds == 20:
                proceed.set()
        child.join(60)
    finally:
        proceed.set()
        child.join(10)
        if child.is_alive():
            child.kill()
    assert child.exitcode == 0
    assert rounds >= 20
    return buffers


def test_a_child_process_writes_while_its_parent_samples_and_writes_back() -> None:
    """All that a policy keeps is shared; one process asks about all of them."""
    stream = make_stream(SHARED_ITEMS)
    for policy, buffer in write_from_two_processes().items():
        assert buffer.write_count == SHARED_ITEMS, policy
        assert_full(buffer)
        assert CAPACITY < buffer.reservoir_count <= SHARED_ITEMS, policy
        assert_holds_items_of(buffer, stream)
        assert_in_step(buffer)
        writer = buffer.writer
        alone = make_buffer(policy)
        alone.extend(make_stream(1, seed=9))
        alone.empty()
        for batch in stream.split(SHARED_CHUNK):
            alone.extend(batch.clone())
        if policy not in FEATURES:  # which depend on when the parent wrote back
            assert torch.equal(alone[:]["id"], buffer[:]["id"]), policy
        if policy in INFORMATION:
            assert buffer.moments.weight == past_ring(policy, SHARED_ITEMS)
            assert buffer.moments.deviation > 0
        if policy == "cbrs":
            kept = buffer[:]["target"].bincount(minlength=CLASSES)
            assert writer.memory_counts.tolist() == kept.tolist()
            seen = stream["target"].bincount(minlength=CLASSES)
            assert writer.stream_counts.tolist() == seen.tolist()
        if policy == "wrs":
            weights = OutputHessian()(stream)
            assert writer.total_weight == pytest.approx(float(weights.sum()))
        if policy == "gss":
            assert writer.scores == pytest.approx(alone.writer.scores, rel=1e-5)
        if policy == "fss-clust":
            assert writer.radius > 0
            # The item with which the memory was prepared was the first one.
            arrivals = buffer.state_dict()["_writer"]["state"]["arrivals"]
            expected = 1 + buffer[:]["id"]
            assert torch.equal(arrivals[: len(buffer)], expected)
        # It goes on when its child is gone.
        buffer.extend(make_stream(30, seed=4))
        assert buffer.write_count == SHARED_ITEMS + 30
        assert_in_step(buffer)


def take_and_leave(lock: Any) -> None:
    with lock:
        pass


@pytest.mark.parametrize("save", ["state_dict", "dumps"])
def test_saving_keeps_writers_in_other_processes_out(
    save: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = filled("infors", shared=True)
    held = []
    original = buffer.writer.state_dict

    def watched() -> dict[str, Any]:
        # Another process would wait for ever; this one asks as another would.
        child = multiprocessing.get_context("fork").Process(
            target=take_and_leave, args=(buffer._write_lock,)
        )
        child.start()
        child.join(0.5)
        held.append(child.is_alive())
        child.kill()
        child.join()
        return original()

    monkeypatch.setattr(buffer.writer, "state_dict", watched)
    buffer.dumps(tmp_path) if save == "dumps" else buffer.state_dict()
    assert held == [True]


@for_each_kind
def test_a_buffer_that_saw_no_item_says_how_to_share_it(policy: str) -> None:
    buffer = make_buffer(policy, shared=True)
    child = mp.get_context("spawn").Process(target=print, args=(buffer,))
    with pytest.raises(RuntimeError, match=r"before|Populate|extend the buffer once"):
        child.start()
