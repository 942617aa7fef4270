"""Tasks that reach into each other: :class:`BlurredStream`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from continual_envs.randomness import Purpose, generator
from continual_envs.streams import Samples, Stream

__all__ = ["BlurredStream"]

_CHUNK = 1 << 20  # positions that are looked up at a time


class BlurredStream(Stream):
    """A stream of tasks in which a share of each task's samples comes in others.

    Of each task, ``round(share * length)`` occurrences leave their places, and each
    takes the place of one that left another task. So tasks are as long as before, and
    every occurrence still comes exactly once. Where one task moves more than all others
    together, as many as possible leave it.

    Args:
        stream: whose tasks are the parts between its boundaries.
        share: of each task that moves.
        seed: of what moves where.

    Example:
        >>> from continual_envs.streams import TaskStream
        >>> tasks = [np.arange(0, 10), np.arange(10, 20)]
        >>> stream = BlurredStream(TaskStream(tasks, [1, 1], seed=0), 0.3, seed=0)
        >>> first, second = stream.take(0, 10), stream.take(10, 20)
        >>> int((first.numbers >= 10).sum()), int((second.numbers < 10).sum())
        (3, 3)
    """

    def __init__(self, stream: Stream, share: float, seed: int) -> None:
        self._stream = stream
        self.boundaries = stream.boundaries
        random = generator(seed, Purpose.BLUR)
        left = [
            start + _some(random, stop - start, share)
            for start, stop in pairwise([0, *self.boundaries])
        ]
        home = np.repeat(np.arange(len(left)), [len(places) for places in left])
        # Only what moves is held in memory, however long the stream is.
        self._places = np.concatenate(left)
        arrival = _arrange(home, random)
        self._tasks = home[arrival]
        self._numbers = self._look_up()[arrival]

    def take(self, start: int, stop: int) -> Samples:
        """Samples from one position to another; see :meth:`Stream.take`."""
        samples = self._stream.take(start, stop)
        first, last = np.searchsorted(self._places, (start, stop))
        if first >= last:
            return samples
        numbers = samples.numbers.copy()
        tasks = np.empty(len(numbers), dtype=np.int64)
        tasks[:] = samples.tasks
        here = self._places[first:last] - start
        numbers[here] = self._numbers[first:last]
        tasks[here] = self._tasks[first:last]
        return Samples(numbers, tasks)

    def _look_up(self) -> NDArray[np.int64]:
        """The samples that leave their places, in the order of these."""
        found = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(self), _CHUNK):
            stop = min(start + _CHUNK, len(self))
            first, last = np.searchsorted(self._places, (start, stop))
            if first < last:
                chunk = self._stream.take(start, stop)
                found.append(chunk.numbers[self._places[first:last] - start])
        return np.concatenate(found)


def _some(random: np.random.Generator, total: int, share: float) -> NDArray[np.int64]:
    """A share of all numbers below a total, in ascending order."""
    chosen = random.choice(total, round(share * total), replace=False, shuffle=False)
    return np.sort(chosen)


def _arrange(home: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """An order of travelers in which none arrives in its home.

    Args:
        home: the task of each place, and of the traveler that leaves it.
        random: what to draw from.

    Returns:
        For each place, who arrives there.
    """
    arrival = random.permutation(len(home))
    for task in range(int(home.max(initial=-1)) + 1):
        is_here = home == task
        is_from_here = is_here[arrival]
        stuck = random.permutation(np.flatnonzero(is_here & is_from_here))
        # Swapping with one of these helps the one and does not harm the other. There
        # are enough of them unless the task has more travelers than all the others.
        partner = random.permutation(np.flatnonzero(~is_here & ~is_from_here))
        count = min(len(stuck), len(partner))
        stuck, partner = stuck[:count], partner[:count]
        arrival[stuck], arrival[partner] = arrival[partner], arrival[stuck]
    return arrival
