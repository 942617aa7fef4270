"""The order in which samples come: a function of the seed, addressed by position.

* :class:`TaskStream`: one task after the other, one of them for more epochs;
* :class:`DriftStream`: no tasks, the frequencies of the classes drift.

A stream has no state. What is at a position depends on the seed alone, so a run can be
continued from a position, and the same samples come whatever the batch size.
"""

from __future__ import annotations

import abc
import bisect
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["DriftStream", "Segment", "Stream", "TaskStream", "generator"]

#: The number of a task and numbers of samples of it, in order.
Segment = tuple[int, NDArray[np.int64]]


def generator(seed: int, purpose: int, number: int = 0) -> np.random.Generator:
    """Random numbers for one purpose, independent of all others of the same seed.

    Args:
        seed: of the stream.
        purpose: what they are for.
        number: which of many.

    Returns:
        A generator.
    """
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence([seed, purpose, number]))
    )


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
    def take(self, start: int, stop: int) -> list[Segment]:
        """Samples from one position to another, cut where the task changes.

        Args:
            start: first position.
            stop: position after the last one, at most the length.

        Returns:
            Tasks and samples; not to be changed.
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
        >>> [(task, sorted(samples.tolist())) for task, samples in stream.take(0, 5)]
        [(0, [0, 1, 2]), (1, [3, 4])]
    """

    _PURPOSE = 0

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

    def take(self, start: int, stop: int) -> list[Segment]:
        """Samples from one position to another; see :meth:`Stream.take`."""
        segments = []
        while start < stop:
            task = bisect.bisect_right(self.boundaries, start)
            begin = self.boundaries[task - 1] if task else 0
            epoch, offset = divmod(start - begin, len(self._tasks[task]))
            order = self._order(task, self._first_pass[task] + epoch)
            samples = order[offset : offset + stop - start]
            segments.append((task, samples))
            start += len(samples)
        return segments

    def _order(self, task: int, number: int) -> NDArray[np.int64]:
        """The samples of one pass; the last one asked for is kept."""
        if self._current[0] != number:
            samples = self._tasks[task]
            random = generator(self._seed, self._PURPOSE, number)
            self._current = (number, random.permutation(samples))
        return self._current[1]


class DriftStream(Stream):
    """Classes that come and go smoothly: a stream without tasks.

    Each occurrence of a sample gets a moment from a normal distribution around the
    centre of its class; classes have their centres one after the other, evenly spaced.

    Args:
        samples: numbers of the samples.
        labels: their classes.
        repeats: how often samples of each class occur.
        seed: of the order.
        width: deviation of the moments, in distances between two centres. Small ones
            make tasks of single classes, large ones a shuffled stream.

    Example:
        >>> labels = np.repeat([0, 1], 50)
        >>> stream = DriftStream(np.arange(100), labels, [1, 1], seed=0, width=0.5)
        >>> ((_, samples),) = stream.take(0, 100)
        >>> first, last = labels[samples[:25]].mean(), labels[samples[75:]].mean()
        >>> bool(first < 0.2 and last > 0.8)
        True
    """

    _PURPOSE = 1

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
        # A frequent class takes its share of the stream: centres are in its middle.
        share = np.bincount(labels, times, len(repeats))
        spread = np.repeat(share[labels], times)
        centres = np.cumsum(share) - share / 2
        noise = generator(seed, self._PURPOSE).normal(size=len(occurrences))
        moments = np.repeat(centres[labels], times) + width * spread * noise
        self._order = occurrences[np.argsort(moments, kind="stable")]
        self.boundaries = [len(occurrences)]

    def take(self, start: int, stop: int) -> list[Segment]:
        """Samples from one position to another; see :meth:`Stream.take`."""
        return [(0, self._order[start:stop])]
