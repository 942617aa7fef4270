"""What must hold under faults: full disks, killed processes, odd items, old samples.

Random operations, tables of bad inputs and damaged files are in ``tests/fuzz``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, TensorStorage
from torchrl.data.replay_buffers.samplers import PrioritizedSampler
from torchrl.envs.transforms import Transform

from info_replay import (
    InfoReservoirReplayBuffer,
    InfoReservoirWriter,
    make_replay_buffer,
)
from info_replay.storage.process_lock import ProcessLock

from .helpers import (
    assert_in_step,
    complete_state,
    differences,
    make_buffer,
    make_stream,
)

FORK = multiprocessing.get_context("fork")


def in_child(work: Any, *arguments: Any) -> int | None:
    """Run a function in a forked process; its exit code."""
    child = FORK.Process(target=work, args=arguments)
    child.start()
    child.join(60)
    return child.exitcode


# -- entries --------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
def test_what_is_not_a_tensor_is_refused_by_name(first: bool) -> None:
    buffer = make_buffer("rs")
    if not first:
        buffer.extend(make_stream(5))
    items = make_stream(3)
    items["file"] = NonTensorStack("a", "b", "c")
    with pytest.raises((TypeError, KeyError), match="'file'"):
        buffer.extend(items)
    assert len(buffer) == 5 * (not first)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_a_type_that_torch_cannot_write_rows_of_is_refused_at_once(
    dtype: torch.dtype,
) -> None:
    buffer = make_buffer("rs")
    items = make_stream(3).set("number", torch.zeros(3).to(dtype))
    with pytest.raises(TypeError, match=r"'number' cannot be stored: torch cannot"):
        buffer.extend(items)
    assert not buffer.storage.initialized
    buffer.extend(make_stream(3))  # of other entries


@pytest.mark.parametrize("way", ["set", "given"])
@pytest.mark.parametrize("kind", ["text", "uint16"])
def test_what_cannot_be_stored_does_not_come_in_by_another_door(
    kind: str, way: str
) -> None:
    other: Any = torch.arange(16).to(torch.uint16)
    if kind == "text":
        other = NonTensorStack(*"abcdefghijklmnop")
    if way == "given":
        storage = TensorStorage(make_stream(16).set("other", other))
        with pytest.raises(TypeError, match="'other' cannot be stored"):
            make_buffer("rs", storage=storage)
        return
    buffer = make_buffer("rs")
    buffer.extend(make_stream(16))
    before = complete_state(buffer)
    with pytest.raises(TypeError, match="'other' cannot be stored"):
        buffer["other"] = other
    assert differences(before, complete_state(buffer)) == []
    buffer.extend(make_stream(5))


# -- processes ------------------------------------------------------------------------


def extend_once(buffer: Any, seed: int) -> None:
    buffer.extend(make_stream(8, seed=seed))


def expect_refusal(buffer: Any) -> None:
    try:
        buffer.extend(make_stream(8))
    except RuntimeError as error:
        os._exit(7 if "extend() it once" in str(error) else 8)


@pytest.mark.parametrize("policy", ["rs", "infors"])
def test_a_forked_process_stores_what_its_parent_sees(policy: str) -> None:
    buffer = make_buffer(policy, shared=True)
    buffer.extend(make_stream(4))
    assert in_child(extend_once, buffer, 1) == 0
    assert buffer.write_count == 12
    expected = torch.cat([make_stream(4), make_stream(8, seed=1)])
    assert torch.equal(buffer[:]["observation"], expected["observation"])
    assert_in_step(buffer)


def test_a_memory_shared_before_its_first_item_says_what_to_do() -> None:
    buffer = make_buffer("infors", shared=True)
    assert in_child(expect_refusal, buffer) == 7
    assert len(buffer) == 0


def die_with(lock: ProcessLock, *, writing: bool) -> None:
    mark = lock.writing() if writing else contextlib.nullcontext()
    with lock, mark:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_over_reading_keeps_nobody_waiting() -> None:
    buffer = make_buffer("infors", shared=True)
    buffer.extend(make_stream(30))
    assert in_child(lambda: die_with(buffer._write_lock, writing=False)) == -9
    buffer.extend(make_stream(5))
    assert buffer.write_count == 35


@pytest.mark.parametrize("repair", ["empty", "restore"])
def test_a_process_that_dies_over_writing_is_told_of_until_it_is_repaired(
    repair: str,
) -> None:
    buffer = make_buffer("infors", shared=True)
    buffer.extend(make_stream(30))
    saved = buffer.state_dict()
    assert in_child(lambda: die_with(buffer._write_lock, writing=True)) == -9
    for use in (buffer.sample, lambda: buffer.extend(make_stream(5))):
        with pytest.raises(RuntimeError, match="was killed while it wrote"):
            use()
    buffer.empty() if repair == "empty" else buffer.load_state_dict(saved)
    buffer.extend(make_stream(5))
    assert_in_step(buffer)


def die_with_number(number: Any) -> None:
    number.get_lock().acquire()
    os.kill(os.getpid(), 9)


@pytest.mark.parametrize("name", ["_len_value", "_mutation_revision_value"])
def test_a_process_that_dies_over_a_count_keeps_nobody_waiting(name: str) -> None:
    buffer = make_buffer("rs", shared=True)
    buffer.extend(make_stream(30))
    number = getattr(buffer.storage, name)
    if not hasattr(number, "get_lock"):
        return  # there is no lock to die over
    child = FORK.Process(target=die_with_number, args=(number,))
    child.start()
    child.join(60)
    other = FORK.Process(target=lambda: buffer.extend(make_stream(5)))
    other.start()
    other.join(10)
    hangs = other.is_alive()
    other.kill()
    other.join()
    assert not hangs


def test_a_process_without_the_items_saves_nothing(tmp_path: Path) -> None:
    saved = make_buffer("rs")
    saved.extend(make_stream(40))
    saved.dumps(tmp_path)
    buffer, ready = make_buffer("rs", shared=True), FORK.Event()

    def save() -> None:
        ready.wait(60)
        buffer.dumps(tmp_path)

    child = FORK.Process(target=save)
    child.start()
    buffer.extend(make_stream(10))  # the child cannot see these
    ready.set()
    child.join(60)
    assert child.exitcode == 1
    twin = make_buffer("rs", seed=5)
    twin.loads(tmp_path)
    assert torch.equal(twin[:]["id"], saved[:]["id"])


def test_a_forked_process_follows_a_storage_that_brought_items_along() -> None:
    storage = LazyTensorStorage(16)
    storage.set(range(16), make_stream(16))
    buffer = make_buffer("infors", storage=storage, shared=True)
    child = FORK.Process(target=lambda: buffer.extend(make_stream(8, seed=1)))
    child.start()
    child.join(60)
    assert_in_step(buffer)
    buffer.extend(make_stream(30, seed=2))
    assert_in_step(buffer)


def test_priorities_of_a_shared_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="PrioritizedSampler cannot follow"):
        make_buffer("rs", shared=True, sampler=PrioritizedSampler(16, 0.7, 0.5))


# -- old samples ----------------------------------------------------------------------


@pytest.mark.parametrize("change", ["set", "load", "empty"])
@pytest.mark.parametrize("policy", ["infors", "fss-clust", "recent-infors"])
def test_an_old_sample_never_changes_another_item(policy: str, change: str) -> None:
    buffer = make_buffer(policy)
    buffer.extend(make_stream(12))
    state = buffer.state_dict()
    if change == "load":
        buffer.extend(make_stream(60, seed=3))
    sample = buffer.sample()
    if change == "set":
        buffer[:] = make_stream(len(buffer), seed=5)
    else:
        buffer.load_state_dict(state) if change == "load" else buffer.empty()
        buffer.extend(make_stream(60, seed=4))
    before = buffer[:]["feature"].clone()
    sample["feature"] = sample["feature"] + 1
    buffer.update_tensordict_priority(sample)
    assert torch.equal(buffer[:]["feature"], before)


@pytest.mark.parametrize("change", ["set", "empty"])
def test_an_old_sample_never_changes_the_priority_of_another_item(change: str) -> None:
    buffer = make_buffer("rs", sampler=PrioritizedSampler(16, 0.7, 0.5))
    buffer.extend(make_stream(40))
    sample = buffer.sample()
    if change == "set":
        buffer[:] = make_stream(16, seed=5)
    else:
        buffer.empty()
    before = buffer.state_dict()["_sampler"]["_sum_tree"]
    sample["td_error"] = torch.full([len(sample)], 50.0)
    buffer.update_tensordict_priority(sample)
    assert torch.equal(buffer.state_dict()["_sampler"]["_sum_tree"], before)


@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
def test_writes_through_views_are_noticed(storage: Any) -> None:
    buffer = make_buffer("infors", storage=storage(16))
    buffer.extend(make_stream(40))
    assert buffer.posterior is not None
    buffer[:]["feature"].copy_(2 * buffer[:]["feature"])
    assert_in_step(buffer)
    buffer[3:5]["feature"][0, 0] = 0.25
    assert_in_step(buffer)


def test_a_state_with_priorities_is_plain(tmp_path: Any) -> None:
    buffer = make_buffer("infors", sampler=PrioritizedSampler(16, 0.7, 0.5))
    buffer.extend(make_stream(40))
    torch.save(buffer.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    twin = make_buffer("infors", sampler=PrioritizedSampler(16, 0.7, 0.5), seed=5)
    twin.load_state_dict(state)
    assert torch.equal(twin.sample()["index"], buffer.sample()["index"])


# -- numbers --------------------------------------------------------------------------


def labelled(count: int, width: int, scale: float) -> TensorDict:
    generator = torch.Generator().manual_seed(0)
    features = scale * torch.randn(
        count, width, generator=generator, dtype=torch.float64
    )
    labels = torch.randint(3, (count,), generator=generator)
    return TensorDict(
        feature=features, target=labels, id=torch.arange(count), batch_size=count
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("capacity", "width"), [(1, 3), (2, 3), (20, 50), (60, 5)])
def test_features_up_to_the_limit_are_decided_alike_in_any_batch(
    capacity: int, width: int, dtype: torch.dtype
) -> None:
    kept = []
    for size in (1, 7, 300):
        buffer = InfoReservoirReplayBuffer(
            capacity,
            num_classes=3,
            dtype=dtype,
            generator=torch.Generator().manual_seed(1),
        )
        scale = buffer.writer.largest_feature / 6
        for batch in labelled(300, width, scale).split(size):
            buffer.extend(batch)
        kept.append((buffer[:]["id"].tolist(), buffer.reservoir_count))
    assert kept[0] == kept[1] == kept[2]


def test_a_batch_that_fails_in_its_last_part_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buffer = InfoReservoirReplayBuffer(10, num_classes=3)
    buffer.extend(labelled(20, 5, 1.0))
    before = buffer.state_dict()
    decide, calls = buffer.writer.decide, []

    def fail_later(batch: Any) -> Any:
        calls.append(batch)
        if len(calls) == 3:
            raise ValueError("too late")
        return decide(batch)

    monkeypatch.setattr(buffer.writer, "decide", fail_later)
    with pytest.raises(ValueError, match="too late"):
        buffer.extend(labelled(2000, 5, 1.0))
    after = buffer.state_dict()
    assert torch.equal(before["_storage"]["_storage"]["id"], buffer[:]["id"])
    assert before["_writer"]["counts"] == after["_writer"]["counts"]
    assert torch.equal(
        before["_writer"]["generations"], after["_writer"]["generations"]
    )
    here = before["_writer"]["state"]["memory"]["posterior"]["tensors"]["moments"]
    there = after["_writer"]["state"]["memory"]["posterior"]["tensors"]["moments"]
    assert torch.equal(here, there)


@pytest.mark.parametrize("policy", ["infors", "infogs", "infogs-rs"])
def test_units_of_targets_make_no_difference(policy: str) -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(600, 6, generator=generator, dtype=torch.float64)
    targets = features[:, :2] + 0.3 * torch.randn(600, 2, generator=generator)
    kept = []
    for other in (targets, 0.001 * targets, 1000 * targets + 5):
        buffer = make_replay_buffer(
            policy, 40, gamma=-0.5, generator=torch.Generator().manual_seed(1)
        )
        items = TensorDict(
            feature=features, target=other, id=torch.arange(600), batch_size=600
        )
        for batch in items.split(50):
            buffer.extend(batch)
        kept.append((buffer[:]["id"].tolist(), buffer.reservoir_count))
        assert torch.equal(buffer[:]["target"], other[buffer[:]["id"]])
    assert kept[0] == kept[1] == kept[2]


def test_a_memory_that_nothing_enters_says_so_once() -> None:
    buffer = InfoReservoirReplayBuffer(10, num_classes=3, gamma=1e9)
    with pytest.warns(RuntimeWarning, match="only 0 of the last") as told:
        buffer.extend(labelled(8000, 5, 1.0))
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lively = InfoReservoirReplayBuffer(10, num_classes=3, gamma=-1.0)
        lively.extend(labelled(4000, 5, 1.0))


def test_a_warning_that_is_an_error_changes_nothing() -> None:
    buffer = make_buffer("infors", gamma=1e6)
    buffer.extend(make_stream(500))
    for _ in range(5):
        buffer.extend(make_stream(200))
        before = complete_state(buffer)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                buffer.extend(make_stream(10))
            except RuntimeWarning:
                break
    else:
        pytest.fail("nothing was said")
    assert differences(before, complete_state(buffer)) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        buffer.extend(make_stream(10))  # it says so once


# -- samples in the background --------------------------------------------------------


class Slow(Transform):
    """An inverse transform that waits to be let through."""

    def __init__(self) -> None:
        super().__init__(in_keys=[], out_keys=[])
        self.entered, self.go_on = threading.Event(), threading.Event()

    def _inv_call(self, tensordict: TensorDict) -> TensorDict:
        self.entered.set()
        assert self.go_on.wait(60)
        return tensordict


def test_others_sample_while_a_batch_is_transformed() -> None:
    slow = Slow()
    buffer = make_buffer("rs", transform=slow)
    slow.go_on.set()
    buffer.extend(make_stream(20))
    slow.entered.clear()
    slow.go_on.clear()
    thread = threading.Thread(target=buffer.extend, args=(make_stream(5),))
    thread.start()
    assert slow.entered.wait(60)
    assert len(buffer.sample(4)) == 4
    slow.go_on.set()
    thread.join()


def test_what_was_sampled_ahead_is_forgotten_with_the_items() -> None:
    buffer = make_buffer("rs", prefetch=2, batch_size=4)
    buffer.extend(make_stream(30))
    buffer.sample()
    buffer.empty()
    buffer.extend(make_stream(30, seed=1).set("id", torch.full((30,), 77)))
    for _ in range(4):
        assert buffer.sample()["id"].unique().tolist() == [77]


class Failing(Transform):
    """A transform of samples that fails when it is told to."""

    def __init__(self) -> None:
        super().__init__(in_keys=[], out_keys=[])
        self.fails = False

    def forward(self, tensordict: TensorDict) -> TensorDict:
        if self.fails:
            raise RuntimeError("cannot be transformed")
        return tensordict


def test_an_emptied_memory_with_samples_ahead_can_be_saved() -> None:
    buffer = make_buffer("infors", prefetch=2, batch_size=4)
    buffer.extend(make_stream(40))
    buffer.sample()
    buffer.empty()
    with pytest.raises(RuntimeError, match="empty"):
        buffer.sample()
    buffer.state_dict()
    buffer.extend(make_stream(40))
    buffer.state_dict()
    for _ in range(4):
        buffer.sample()


@pytest.mark.parametrize("way", ["empty", "load"])
def test_a_sample_that_failed_ahead_does_not_keep_a_memory_from_being_replaced(
    way: str,
) -> None:
    failing = Failing()
    buffer = make_buffer("rs", prefetch=2, batch_size=4, transform=failing)
    buffer.extend(make_stream(30))
    state = buffer.state_dict()
    failing.fails = True
    with contextlib.suppress(RuntimeError):
        buffer.sample()
    if way == "empty":
        buffer.empty()
        assert len(buffer) == 0
    else:
        buffer.load_state_dict(state)
        failing.fails = False
        assert len(buffer.sample()) == 4


def test_an_update_that_failed_is_not_told_of_the_items_that_came_after() -> None:
    buffer = make_buffer("rs", batch_size=4)
    slots = buffer.extend(make_stream(16))
    state = buffer.state_dict()
    failed = buffer.submit_update_if_present(
        index=slots,
        generation=buffer.writer.generations_of(slots),
        patch={"nothing": torch.ones(16)},
    )
    with pytest.raises(KeyError, match="nothing"):
        failed.result()
    buffer.load_state_dict(state)
    assert len(buffer.sample()) == 4


# -- files of a memory-mapped storage -------------------------------------------------


@pytest.mark.parametrize("fault", ["load", "batch"])
def test_a_refused_first_load_or_batch_leaves_files_that_can_be_made_again(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_buffer("infors")
    source.extend(make_stream(40))
    state = source.state_dict()
    storage = LazyMemmapStorage(16, scratch_dir=tmp_path / "items")
    buffer = make_buffer("infors", storage=storage)
    if fault == "load":
        with pytest.raises(ValueError, match="batch size"):
            buffer.load_state_dict({**state, "_batch_size": "x"})
    else:

        def fail(*_: Any) -> None:
            raise RuntimeError("in a later part")

        with monkeypatch.context() as patch:
            patch.setattr(InfoReservoirWriter, "_select", fail)
            with pytest.raises(RuntimeError, match="in a later part"):
                buffer.extend(make_stream(900))
    buffer.load_state_dict(state)
    buffer.extend(make_stream(30, seed=1))
    source.extend(make_stream(30, seed=1))
    assert torch.equal(buffer[:]["id"], source[:]["id"])
