"""Where the batches of an environment come from: :class:`Source`."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from continual_envs.datasets import Dataset
from continual_envs.evaluation import EvaluationSet
from continual_envs.tasks import Task

__all__ = ["Batch", "Source"]


class Batch(NamedTuple):
    """Samples that are shown together.

    Args:
        inputs: shape ``(n, ...)``, a copy that the environment may give away.
        targets: shape ``(n,)`` or ``(n, K)``, a copy.
        tasks: the task of each sample, or one number if all have the same.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    tasks: int | NDArray[np.int64]


class Source(abc.ABC):
    """Samples by position, from a seed on.

    Args:
        dataset: what samples look like, and the test data.

    Attributes:
        dataset: the same.
        tasks: the tasks, none if they are not known.
    """

    tasks: list[Task]

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.tasks = []

    @abc.abstractmethod
    def start(self, seed: int) -> None:
        """Begin a stream.

        Args:
            seed: of all that is random.
        """

    @abc.abstractmethod
    def read(self, position: int, count: int) -> Batch:
        """Samples from a position on.

        Args:
            position: number of samples before it.
            count: how many; there are fewer at the end of the stream, and none after.

        Returns:
            The samples.
        """

    @property
    @abc.abstractmethod
    def length(self) -> int | None:
        """Number of samples of the stream that began, ``None`` if nobody knows."""

    @property
    @abc.abstractmethod
    def boundaries(self) -> list[int]:
        """Number of samples after which each task is over."""

    @property
    @abc.abstractmethod
    def imbalanced_task(self) -> int | None:
        """The task, or the class that drifts by, that comes more often."""

    @property
    @abc.abstractmethod
    def evaluation_sets(self) -> list[EvaluationSet]:
        """What to judge a learner by."""

    @abc.abstractmethod
    def identity(self) -> dict[str, Any]:
        """What a stream must have in common with one that continues it."""

    def state(self) -> dict[str, Any]:
        """What else is needed to go on from where it is; nothing by default."""
        return {}

    @abc.abstractmethod
    def restore(self, seed: int, position: int, state: dict[str, Any]) -> None:
        """Begin a stream that is read from a position on.

        Args:
            seed: of all that is random.
            position: the first that will be read.
            state: what :meth:`state` returned.

        Raises:
            ValueError: if that is not possible; nothing is changed then, but for an
                iterator that can be read only once.
        """

    @abc.abstractmethod
    def give_up(self) -> None:
        """Undo what :meth:`restore` changed in objects of the user.

        Called on a copy of a source that could not go on from a saved state.
        """
