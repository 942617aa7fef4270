"""When a memory is updated: an oracle for the paper's study of update timing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tensordict import TensorDictBase

from info_replay.decision import Decision
from info_replay.random_stream import generator_of
from info_replay.writers.base import SelectionWriter

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
        super().__init__()
        if isinstance(delay, bool) or not isinstance(delay, int):
            raise TypeError(f"delay must be a whole number, got {delay!r}")
        if delay < 0:
            raise ValueError(f"delay must be at least 0, got {delay}")
        self.delay = delay
        # Slots that wait for items of the task, in order; -1 after the last.
        self._waiting = self.per_slot("waiting", np.int64, empty=-1)
        self._task = self.counter("task")
        self._step = self.counter("step")

    def start_task(self) -> None:
        """Say that what comes from now on is of another task."""
        _ = self.slots  # which says so if there is no storage yet
        self._waiting.array[:] = -1
        self._task.value += 1
        self._step.value = 0

    def check(self, batch: TensorDictBase) -> None:
        """Refuse items before the first task."""
        if not self._task.value:
            raise RuntimeError("start_task() must say that the first task begins")

    def decide(self, batch: TensorDictBase) -> Decision:
        """Give slots to the items of a batch; see :meth:`SelectionWriter.decide`."""
        self.check(batch)
        waiting = self._waiting.array.copy()
        if self._step.value == self.delay:
            waiting = self._choose()
        places = np.full(len(batch), -1)
        taken = min(len(batch), int((waiting >= 0).sum()))
        places[:taken] = waiting[:taken]
        rest = np.full_like(waiting, -1)
        rest[: len(rest) - taken] = waiting[taken:]

        def commit() -> None:
            self._waiting.array[:] = rest
            self._step.value += 1
            self.reservoir_count += taken

        return Decision(places, commit)

    def _choose(self) -> NDArray[np.int64]:
        """The slots that a task is given; those that were never used come first."""
        size, capacity = len(self.slots), self.slots.capacity
        task = self._task.value
        draws = generator_of(self.seed, 2, task).random(capacity)
        draws[size:] = np.arange(size, capacity) - capacity  # in order, without gaps
        waiting = np.full(capacity, -1)
        count = max(1, round(capacity / task))
        waiting[:count] = np.argsort(draws, kind="stable")[:count]
        return waiting
