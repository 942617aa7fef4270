"""Rows that a small memory keeps are never anything but what is stored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

from info_replay import SelectiveReplayBuffer
from tests.buffer.helpers import assert_in_step, make_buffer, make_stream

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
    elif how == "targets in place":
        buffer[:]["target"].zero_()
    else:
        buffer[:]["feature"].mul_(2)
    refresh(buffer, 40)
    assert_in_step(buffer)


def test_pickles_and_emptied_memories_start_without_rows() -> None:
    buffer = make_memory()
    refresh(buffer)
    buffer.empty()
    buffer.extend(make_stream(80, seed=3, width=WIDE))
    refresh(buffer)
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
