"""The timing oracle takes up each task when it is told to, in random slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from tensordict import TensorDict

from info_replay import SelectiveReplayBuffer
from info_replay.writers import TaskTimingWriter

from .reference import examples, kept_ids


def make_batch(count: int, task: int = 0, first: int = 0) -> TensorDict:
    return TensorDict(
        {"id": first + torch.arange(count), "task": torch.full((count,), task)},
        batch_size=[count],
    )


def make_buffer(
    capacity: int, delay: int = 0, seed: int = 0, **options: Any
) -> SelectiveReplayBuffer:
    writer = TaskTimingWriter(delay)
    writer.seed = seed
    return SelectiveReplayBuffer(
        capacity,
        writer=writer,
        batch_size=2,
        generator=torch.Generator().manual_seed(0),
        **options,
    )


def play(
    buffer: SelectiveReplayBuffer, sizes: list[list[int]], first: int = 0
) -> list[list[int]]:
    """Offer tasks, each a list of sizes of batches; gives all returned slots."""
    log = []
    for task, batches in enumerate(sizes):
        buffer.writer.start_task()
        for size in batches:
            log.append(buffer.extend(make_batch(size, task, first)).tolist())
            first += size
    return log


# -- the rule, written out ------------------------------------------------------------


class Reference:
    """The oracle, one item at a time; only the random order of slots is given."""

    def __init__(self, capacity: int, delay: int, seed: int) -> None:
        self.capacity, self.delay, self.seed = capacity, delay, seed
        self.memory: dict[int, int] = {}
        self.task = 0
        self.batches = 0
        self.waiting: list[int] = []

    def start_task(self) -> None:
        self.task += 1
        self.batches = 0
        self.waiting = []

    def offer(self, ids: list[int]) -> list[int]:
        if self.batches == self.delay:
            self.waiting = self.choose()
        self.batches += 1
        slots = []
        for number in ids:
            slots.append(self.waiting.pop(0) if self.waiting else -1)
            if slots[-1] >= 0:
                self.memory[slots[-1]] = number
        return slots

    def choose(self) -> list[int]:
        """A share of the slots: those that are free first, then random ones."""
        numbers = np.random.Generator(
            np.random.Philox(
                key=np.array([self.seed, 2], dtype=np.uint64),
                counter=np.array([0, self.task, 0, 0], dtype=np.uint64),
            )
        ).random(self.capacity)
        used = sorted(self.memory, key=lambda slot: numbers[slot])
        free = [slot for slot in range(self.capacity) if slot not in self.memory]
        return [*free, *used][: max(1, round(self.capacity / self.task))]


@given(
    capacity=st.integers(1, 15),
    delay=st.integers(0, 3),
    seed=st.integers(0, 2**63 - 1),
    sizes=st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=6),
)
@examples(40)
def test_every_decision_is_that_of_the_rule(
    capacity: int, delay: int, seed: int, sizes: list[list[int]]
) -> None:
    buffer = make_buffer(capacity, delay, seed)
    reference = Reference(capacity, delay, seed)
    first = stored = 0
    for batches in sizes:
        buffer.writer.start_task()
        reference.start_task()
        for size in batches:
            batch = make_batch(size, first=first)
            expected = reference.offer(batch["id"].tolist())
            assert buffer.extend(batch).tolist() == expected
            first += size
            stored += sum(slot >= 0 for slot in expected)
            memory = dict(enumerate(kept_ids(buffer)))
            assert memory == reference.memory  # without gaps
    assert buffer.write_count == first
    assert buffer.reservoir_count == stored


@pytest.mark.parametrize("delay", [0, 1, 4])
def test_batches_before_the_delay_pass_by(delay: int) -> None:
    buffer = make_buffer(6, delay)
    log = play(buffer, [[4] * 7])
    assert log[:delay] == [[-1] * 4] * delay
    assert log[delay : delay + 3] == [[0, 1, 2, 3], [4, 5, -1, -1], [-1] * 4]


def test_a_task_that_is_over_before_the_delay_is_never_taken_up() -> None:
    buffer = make_buffer(6, 2)
    log = play(buffer, [[6, 6, 6], [6, 6], [6, 6, 6]])
    assert log[3:5] == [[-1] * 6] * 2
    # It counts as a task: the third one gets a third of the slots.
    assert sum(slot >= 0 for slot in log[-1]) == 2


@pytest.mark.parametrize(
    ("capacity", "counts"),
    [(12, [12, 6, 4, 3, 2, 2]), (1, [1, 1, 1]), (2, [2, 1, 1, 1, 1, 1])],
)
def test_the_i_th_task_is_given_its_share(capacity: int, counts: list[int]) -> None:
    buffer = make_buffer(capacity)
    log = play(buffer, [[30]] * len(counts))
    assert [sum(slot >= 0 for slot in slots) for slots in log] == counts


# -- chances --------------------------------------------------------------------------


def test_every_slot_is_as_likely_as_any_other() -> None:
    capacity, seeds = 8, 150
    counts = np.zeros((2, capacity))
    for seed in range(seeds):
        log = play(make_buffer(capacity, seed=seed), [[capacity]] * 3)
        for row, slots in zip(counts, log[1:], strict=True):
            chosen = [slot for slot in slots if slot >= 0]
            assert len(set(chosen)) == len(chosen)
            row[chosen] += 1
    for row, share in zip(counts, (4, 3), strict=True):
        assert row.sum() == seeds * share
        # Draws without replacement vary less than the test takes them to.
        assert chisquare(row).pvalue > 1e-3


# -- settings and misuse --------------------------------------------------------------


@pytest.mark.parametrize("delay", [-1, 1.0, True, "1", None])
def test_a_delay_is_a_whole_number_from_0_on(delay: Any) -> None:
    with pytest.raises(
        (TypeError, ValueError), match=f"delay must be .* got {delay!r}"
    ):
        TaskTimingWriter(delay)


def test_the_first_task_must_be_announced() -> None:
    buffer, twin = make_buffer(6), make_buffer(6)
    for offer in (
        lambda: buffer.extend(make_batch(4)),
        lambda: buffer.add(make_batch(1)[0]),
    ):
        with pytest.raises(RuntimeError, match=r"start_task\(\)"):
            offer()
    assert (len(buffer), buffer.write_count, buffer.reservoir_count) == (0, 0, 0)
    assert not buffer.storage.initialized
    assert play(buffer, [[4], [9]]) == play(twin, [[4], [9]])


def test_a_task_needs_a_memory_to_be_taken_up_in() -> None:
    writer = TaskTimingWriter()
    with pytest.raises(RuntimeError, match="no storage yet"):
        writer.start_task()
    writer.seed = 0
    buffer = SelectiveReplayBuffer(6, writer=writer, batch_size=2)
    # The call that failed does not count: the next one begins the first task.
    assert play(buffer, [[9], [9]]) == play(make_buffer(6), [[9], [9]])


# -- restarts and emptying ------------------------------------------------------------


@pytest.mark.parametrize("offered", [2, 3, 4])
def test_a_restart_goes_on_with_its_task(offered: int) -> None:
    """Before the delay of the second task is over, and while slots wait."""
    buffer, twin = make_buffer(20, 2, seed=5), make_buffer(20, 2, seed=6)
    play(buffer, [[9] * 5, [4] * offered])
    twin.load_state_dict(buffer.state_dict())
    for _ in range(4):
        batch = make_batch(4, 1, 100)
        assert torch.equal(buffer.extend(batch.clone()), twin.extend(batch.clone()))
    tasks = [[7] * 4] * 2
    assert play(buffer, tasks, 200) == play(twin, tasks, 200)


def test_an_emptied_memory_waits_for_its_first_task() -> None:
    used, new = make_buffer(6, 1), make_buffer(6, 1)
    play(used, [[4] * 3, [2] * 2])  # slots of the second task wait
    used.empty()
    with pytest.raises(RuntimeError, match=r"start_task\(\)"):
        used.extend(make_batch(4))
    tasks = [[5] * 3, [1] * 5, [3] * 3]
    assert play(used, tasks) == play(new, tasks)
    assert kept_ids(used) == kept_ids(new)
