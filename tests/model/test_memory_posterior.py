"""Rows that a small memory keeps are never anything but what is stored."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from tensordict import TensorDict
from torchrl.data import LazyMemmapStorage, LazyTensorStorage

from info_replay import (
    BayesianLinearPosterior,
    SelectiveReplayBuffer,
    make_replay_buffer,
)
from tests.buffer.helpers import CLASSES, assert_in_step, make_buffer, make_stream

WIDE = 40  # features, so that a memory of 48 keeps its rows


def make_memory() -> SelectiveReplayBuffer:
    buffer = make_buffer("infors", 48, batch_size=48)
    buffer.extend(make_stream(60, width=WIDE))
    refresh(buffer)
    buffer.extend(make_stream(60, seed=1, width=WIDE))
    return buffer


def refresh(buffer: SelectiveReplayBuffer, count: int = 48) -> None:
    """Write new features of the first slots back."""
    sample = buffer[:count].clone()
    sample["index"] = torch.arange(count)
    sample["feature"] = 1.1 * sample["feature"]
    buffer.update_features(sample)


def test_a_small_memory_keeps_its_rows_and_a_large_one_does_not() -> None:
    buffer = make_memory()
    refresh(buffer)
    assert buffer.posterior is not None
    assert buffer.writer._knowledge.rows._kept is not None
    large = make_buffer("infors", 200)
    large.extend(make_stream(300))
    refresh(large, 200)
    assert large.posterior is not None
    assert large.writer._knowledge.rows._kept is None


@pytest.mark.parametrize("count", [3, 48])
@pytest.mark.parametrize("asked", [True, False])
def test_batches_and_write_backs_in_any_order(count: int, asked: bool) -> None:
    buffer = make_memory()
    for seed in range(2, 12):
        refresh(buffer, count)
        for _ in range(seed % 3):
            buffer.extend(make_stream(30, seed=seed, width=WIDE))
            if asked:
                assert_in_step(buffer)
    assert_in_step(buffer)


def test_a_save_between_a_batch_and_its_write_back_has_both() -> None:
    buffer = make_memory()
    while buffer.writer._knowledge._pending is None:
        buffer.extend(make_stream(30, seed=buffer.write_count, width=WIDE))
    twin = make_memory()
    twin.load_state_dict(buffer.state_dict())
    assert_in_step(twin)
    assert_in_step(buffer)


@pytest.mark.parametrize("how", ["entry replaced", "targets in place", "features"])
def test_what_others_change_is_noticed_with_the_next_features(how: str) -> None:
    buffer = make_memory()
    refresh(buffer)
    assert_in_step(buffer)
    if how == "entry replaced":
        buffer.storage._storage["target"] = torch.zeros(48, dtype=torch.long)
        assert_in_step(buffer)
    elif how == "targets in place":
        buffer[:]["target"].zero_()
    else:
        buffer[:]["feature"].mul_(2)
    refresh(buffer, 40)
    assert_in_step(buffer)


def test_pickles_and_emptied_memories_start_without_rows() -> None:
    buffer = make_memory()
    refresh(buffer)
    assert buffer.posterior is not None
    assert pickle.loads(pickle.dumps(buffer.writer._knowledge.rows))._kept is None
    buffer.empty()
    assert buffer.writer._knowledge.rows._kept is None
    buffer.extend(make_stream(80, seed=3, width=WIDE))
    refresh(buffer)
    assert_in_step(buffer)


@pytest.mark.parametrize("policy", ["infors", "infogs", "infogs-rs"])
@pytest.mark.parametrize("width", [5, WIDE])
def test_what_extend_returns_belongs_to_the_caller(policy: str, width: int) -> None:
    buffer = make_buffer(policy, 48)
    for seed in range(6):
        buffer.extend(make_stream(60, seed=seed, width=width)).clamp_(min=0)
        assert_in_step(buffer)


def regression_items(outputs: int, width: int, seed: int) -> TensorDict:
    generator = torch.Generator().manual_seed(seed)
    return TensorDict(
        {
            "feature": torch.randn(24, width, generator=generator),
            "target": torch.randn(24, outputs, generator=generator),
        },
        batch_size=[24],
    )


@pytest.mark.parametrize("outputs", [(3, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("widths", [(12, 10), (10, 12), (12, 12)])
def test_a_memory_restored_to_empty_takes_items_of_another_shape(
    outputs: tuple[int, int], widths: tuple[int, int]
) -> None:
    buffer = make_replay_buffer("infors", 16)
    empty = buffer.state_dict()
    for count, width in zip(outputs, widths, strict=True):
        # A storage keeps the shape of its first item: a new one, the same writer.
        buffer.load_state_dict(empty)
        buffer.storage._storage = None
        buffer.storage.initialized = False
        buffer.extend(regression_items(count, width, 0))
        sample = buffer[:].clone()
        sample["index"] = torch.arange(16)
        sample["feature"] = 1.1 * sample["feature"]
        buffer.update_features(sample)
        buffer.extend(regression_items(count, width, 1))
        stored, posterior = buffer[:], buffer.posterior
        assert posterior is not None
        expected = BayesianLinearPosterior(width, count, max_rows=16)
        expected.observe(stored["feature"], stored["target"])
        for found, right in zip(
            posterior.predict(stored["feature"]),
            expected.predict(stored["feature"]),
            strict=True,
        ):
            torch.testing.assert_close(found, right)


@pytest.mark.parametrize("policy", ["infors", "infogs", "infogs-rs"])
@pytest.mark.parametrize("kind", ["batches", "storage", "parameters"])
def test_tensors_that_are_more_than_tensors_decide_alike(
    policy: str, kind: str, tmp_path: Path
) -> None:
    mapped = LazyMemmapStorage if kind == "storage" else LazyTensorStorage
    stream = make_stream(400, width=8)
    special = stream.clone()
    if kind == "batches":
        special.memmap_(tmp_path / "stream")
    elif kind == "parameters":
        feature = torch.nn.Parameter(special["feature"], requires_grad=False)
        special["feature"] = feature
    plain, other = (
        make_replay_buffer(
            policy,
            storage=storage(12),
            num_classes=CLASSES,
            generator=torch.Generator().manual_seed(0),
        )
        for storage in (LazyTensorStorage, mapped)
    )
    for ordinary, batch in zip(stream.split(16), special.split(16), strict=True):
        assert torch.equal(other.extend(batch), plain.extend(ordinary))
    assert_in_step(other)
    knowledge = other.writer._knowledge
    rows = knowledge.rows.of(other.writer.slots, slice(0, 2), knowledge.posterior)
    assert isinstance(rows, np.ndarray)


def test_stored_features_may_require_gradients() -> None:
    buffer = make_memory()
    content = buffer.storage._storage
    content["feature"] = content["feature"].clone().requires_grad_()
    assert_in_step(buffer)
    content["feature"] = content["feature"].detach().clone().requires_grad_()
    assert_in_step(buffer)


# -- a memory that is sent to another process, without share() -------------------------


def error(buffer: SelectiveReplayBuffer) -> str:
    try:
        assert_in_step(buffer)
    except AssertionError as wrong:
        return str(wrong)
    return ""


def in_a_child(
    buffer: SelectiveReplayBuffer, answers: Any, questions: Any, rebuilds: bool
) -> None:
    answers.put(error(buffer))
    questions.get()
    if rebuilds:
        refresh(buffer)
    answers.put(error(buffer))


@pytest.mark.parametrize("rebuilds", [False, True])
def test_two_processes_have_one_posterior(rebuilds: bool) -> None:
    buffer = make_memory()
    context = mp.get_context("spawn")
    answers, questions = context.Queue(), context.Queue()
    child = context.Process(
        target=in_a_child, args=(buffer, answers, questions, rebuilds)
    )
    child.start()
    assert answers.get(timeout=120) == ""
    refresh(buffer)
    assert buffer.posterior is not None
    for seed in range(5, 15):
        buffer.extend(make_stream(40, seed=seed, width=WIDE))
    questions.put("go on")
    assert answers.get(timeout=120) == ""
    child.join()
    assert_in_step(buffer)
    buffer.extend(make_stream(40, seed=50, width=WIDE))
    assert_in_step(buffer)
