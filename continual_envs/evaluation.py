"""What a learner is judged by: :class:`EvaluationSet`, one per task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.datasets import Part
from continual_envs.tasks import Task

__all__ = ["EvaluationSet"]


class EvaluationSet:
    """Samples of one task that its stream never shows.

    Inputs are gathered when they are asked for, so that tasks with permuted pixels do
    not each hold a copy of the data.

    Args:
        part: of the data set.
        samples: numbers of the samples in it.
        task: how their inputs are shown.

    Example:
        >>> import gymnasium
        >>> import continual_envs
        >>> env = gymnasium.make("continual_envs/SplitDigits-v0")
        >>> first = env.unwrapped.evaluation_sets[0]
        >>> len(first), first.inputs.shape
        (58, (58, 1, 8, 8))
        >>> [len(targets) for _, targets in first.batches(25)]
        [25, 25, 8]
    """

    def __init__(self, part: Part, samples: NDArray[np.int64], task: Task) -> None:
        self._part = part
        self._samples = samples
        self._task = task

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._samples)

    @property
    def inputs(self) -> NDArray[Any]:
        """All inputs, shape ``(n, ...)``, a copy."""
        return self._task.show(self._part.inputs.take(self._samples, axis=0))

    @property
    def targets(self) -> NDArray[Any]:
        """All labels or target numbers, shape ``(n,)`` or ``(n, K)``, a copy."""
        return self._part.targets.take(self._samples, axis=0)

    def batches(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Inputs and targets, some at a time.

        Args:
            size: samples per batch; the last batch may have fewer.

        Yields:
            Pairs of inputs and targets.
        """
        if size < 1:
            raise ValueError(f"the size of a batch must be at least 1, got {size!r}")
        for start in range(0, len(self), size):
            samples = self._samples[start : start + size]
            inputs = self._task.show(self._part.inputs.take(samples, axis=0))
            yield inputs, self._part.targets.take(samples, axis=0)
