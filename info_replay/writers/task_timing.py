"""When a memory is updated: an oracle for the paper's study of update timing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensordict import TensorDictBase

from info_replay.writers.base import Decision, SelectionWriter
from info_replay.writers.slot_array import SlotArray

__all__ = ["TaskTimingWriter"]


class TaskTimingWriter(SelectionWriter):
    """Takes up each task some steps after it began (Sec. 3.1, "update timing").

    ``delay`` batches after the ``i``-th call of :meth:`start_task`, a random ``1 / i``
    of the slots is given to the items that come from then on, in their order. It is
    told where tasks begin, which no other policy is: it serves to study *when* a memory
    should be updated, not to learn from streams.

    Args:
        delay: batches of a task that pass by first, the paper's ``Delta t``.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> writer = TaskTimingWriter(delay=1)
        >>> buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(4), writer=writer)
        >>> for task in range(2):
        ...     writer.start_task()
        ...     for _ in range(3):
        ...         batch = TensorDict({"task": torch.full((4,), task)}, batch_size=[4])
        ...         slots = buffer.extend(batch)
        >>> buffer[:]["task"].bincount()
        tensor([2, 2])
    """

    def __init__(self, delay: int = 0) -> None:
        super().__init__("task", "step")
        if isinstance(delay, bool) or not isinstance(delay, int):
            raise TypeError(f"delay must be a whole number, got {delay!r}")
        if delay < 0:
            raise ValueError(f"delay must be at least 0, got {delay}")
        self.delay = delay
        # Slots that wait for items of the task, in order; -1 after the last.
        self._waiting = SlotArray(np.int64, empty=-1)

    def start_task(self) -> None:
        """Say that what comes from now on is of another task."""
        self._waiting.of(self.slots)[:] = -1
        self._counters["task"] += 1
        self._counters["step"] = 0

    def _check(self, data: TensorDictBase) -> None:
        if not self._counters["task"]:
            raise RuntimeError("start_task() must say that the first task begins")

    def _prepare(self, data: TensorDictBase) -> None:
        self._waiting.of(self.slots)

    def _decide(self, data: TensorDictBase) -> Decision:
        self._check(data)
        waiting = self._waiting.of(self.slots).copy()
        if self._counters["step"] == self.delay:
            waiting = self._choose()
        places = np.full(len(data), -1)
        taken = min(len(data), int((waiting >= 0).sum()))
        places[:taken] = waiting[:taken]
        rest = np.full_like(waiting, -1)
        rest[: len(rest) - taken] = waiting[taken:]

        def commit() -> None:
            self._waiting.of(self.slots)[:] = rest
            self._counters["step"] += 1
            self._counters["reservoir_count"] += taken

        return places, commit

    def _choose(self) -> NDArray[np.int64]:
        """The slots that a task is given; those that were never used come first."""
        capacity, task = self.slots.capacity, self._counters["task"]
        generator = np.random.Generator(
            np.random.Philox(
                key=np.array([self.seed, 2], dtype=np.uint64),
                counter=np.array([0, task, 0, 0], dtype=np.uint64),
            )
        )
        draws = generator.random(capacity)
        size = len(self.slots)
        draws[size:] = np.arange(size, capacity) - capacity  # in order, without gaps
        waiting = np.full(capacity, -1)
        count = max(1, round(capacity / task))
        waiting[:count] = np.argsort(draws, kind="stable")[:count]
        return waiting

    # -- emptying, saving and sharing -------------------------------------------------

    def _forget_statistics(self) -> None:
        self._counters["task"] = self._counters["step"] = 0
        self._waiting.clear()

    def _policy_state(self) -> dict[str, Any]:
        return {"waiting": self._waiting.tensor(self.slots)}

    def _load_policy_state(self, state: dict[str, Any]) -> None:
        self._waiting.assign(self.slots, state["waiting"])

    def _policy_settings(self) -> dict[str, Any]:
        return {"delay": self.delay}

    def share_memory_(self) -> TaskTimingWriter:
        """Move the waiting slots to shared memory, too."""
        super().share_memory_()
        self._waiting.share_memory_()
        return self
