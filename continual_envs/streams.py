"""The order in which samples come: a function of the seed, addressed by position.

* :class:`TaskStream`: one task after the other, one of them for more epochs;
* :class:`DriftStream`: no tasks, the frequencies of the classes drift;
* :class:`~continual_envs.blur.BlurredStream`: tasks that reach into each other.

A stream has no state. What is at a position depends on the seed alone, so a run can be
continued from a position, and the same samples come whatever the batch size.
"""

from __future__ import annotations

import abc
import bisect
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from continual_envs.randomness import Purpose, generator

__all__ = ["DriftStream", "Samples", "Stream", "TaskStream"]


class Samples(NamedTuple):
    """Samples in order.

    Args:
        numbers: of the samples in the data set; not to be changed.
        tasks: the task of each sample, or one number if all have the same.
    """

    numbers: NDArray[np.int64]
    tasks: int | NDArray[np.int64]


class Stream(abc.ABC):
    """Samples in order.

    Attributes:
        boundaries: number of samples after which each task is over.
    """

    boundaries: list[int]

    def __len__(self) -> int:
        """Number of samples."""
        return self.boundaries[-1]

    @abc.abstractmethod
    def take(self, start: int, stop: int) -> Samples:
        """Samples from one position to another.

        Args:
            start: first position.
            stop: position after the last one, at most the length.

        Returns:
            The samples; none if ``start`` is not before ``stop``.
        """


class TaskStream(Stream):
    """Tasks one after the other, each for some epochs, shuffled anew in each.

    Args:
        tasks: numbers of the samples of each task.
        epochs: of each task.
        seed: of the order.

    Example:
        >>> tasks = [np.array([0, 1, 2]), np.array([3, 4])]
        >>> stream = TaskStream(tasks, epochs=[1, 2], seed=0)
        >>> len(stream), stream.boundaries
        (7, [3, 7])
        >>> numbers, of_task = stream.take(0, 5)
        >>> sorted(numbers.tolist()), of_task.tolist()
        ([0, 1, 2, 3, 4], [0, 0, 0, 1, 1])
    """

    def __init__(
        self, tasks: Sequence[NDArray[np.int64]], epochs: Sequence[int], seed: int
    ) -> None:
        self._tasks = list(tasks)
        self._seed = seed
        # One pass over a task is one epoch of it; passes are numbered through.
        self._first_pass = [0, *itertools.accumulate(epochs)]
        lengths = [len(task) for task in self._tasks]
        self.boundaries = list(
            itertools.accumulate(
                length * times for length, times in zip(lengths, epochs, strict=True)
            )
        )
        self._current = (-1, np.empty(0, dtype=np.int64))

    def take(self, start: int, stop: int) -> Samples:
        """Samples from one position to another; see :meth:`Stream.take`."""
        tasks, pieces = [], []
        while start < stop:
            task = bisect.bisect_right(self.boundaries, start)
            begin = self.boundaries[task - 1] if task else 0
            epoch, offset = divmod(start - begin, len(self._tasks[task]))
            order = self._order(task, self._first_pass[task] + epoch)
            numbers = order[offset : offset + stop - start]
            tasks.append(task)
            pieces.append(numbers)
            start += len(numbers)
        if len(pieces) == 1:  # most batches
            return Samples(pieces[0], tasks[0])
        if not pieces:
            return Samples(np.empty(0, dtype=np.int64), 0)
        lengths = [len(piece) for piece in pieces]
        return Samples(np.concatenate(pieces), np.repeat(tasks, lengths))

    def _order(self, task: int, number: int) -> NDArray[np.int64]:
        """The samples of one pass; the last one asked for is kept."""
        if self._current[0] != number:
            random = generator(self._seed, Purpose.TASK_ORDER, number)
            self._current = (number, random.permutation(self._tasks[task]))
        return self._current[1]


class DriftStream(Stream):
    """Classes that come and go smoothly: a stream without tasks.

    Each occurrence of a sample gets a moment from a normal distribution around the
    center of its class; classes have their centers one after the other, evenly spaced.

    Args:
        samples: numbers of the samples.
        labels: their classes.
        repeats: how often samples of each class occur.
        seed: of the order.
        width: deviation of the moments, in distances between two centers. Small ones
            make tasks of single classes, large ones a shuffled stream.

    Example:
        >>> labels = np.repeat([0, 1], 50)
        >>> stream = DriftStream(np.arange(100), labels, [1, 1], seed=0, width=0.5)
        >>> numbers, _ = stream.take(0, 100)
        >>> first, last = labels[numbers[:25]].mean(), labels[numbers[75:]].mean()
        >>> bool(first < 0.2 and last > 0.8)
        True
    """

    def __init__(
        self,
        samples: NDArray[np.int64],
        labels: NDArray[np.int64],
        repeats: Sequence[int],
        seed: int,
        width: float,
    ) -> None:
        times = np.asarray(repeats)[labels]
        occurrences = np.repeat(samples, times)
        # A frequent class takes its share of the stream: centers are in its middle.
        share = np.bincount(labels, times, len(repeats))
        spread = np.repeat(share[labels], times)
        centers = np.cumsum(share) - share / 2
        noise = generator(seed, Purpose.DRIFT).normal(size=len(occurrences))
        moments = np.repeat(centers[labels], times) + width * spread * noise
        self._order = occurrences[np.argsort(moments, kind="stable")]
        self.boundaries = [len(occurrences)]

    def take(self, start: int, stop: int) -> Samples:
        """Samples from one position to another; see :meth:`Stream.take`."""
        return Samples(self._order[start:stop], 0)
