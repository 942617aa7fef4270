"""Modes that hide in a class, found by jumps of its surprise: :class:`ModeDetector`.

A stream may change what a class looks like without a word: other pixels, another
camera, another regime. Then items of a class that the memory knew well surprise it
again, all at once. That is a change point of the surprise, and the cumulative sum of
Page (Biometrika, 1954) most often finds it within a dozen items.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from info_replay.shared_state import SharedArray
from info_replay.validation import told

__all__ = ["ModeDetector", "ModesWalk"]

Array = NDArray[np.float64]
Places = NDArray[np.int64]

# The usual surprise of a class follows what is learned: weights fade by this per item.
_DECAY = 0.99
# Weight of the items that must be known before one can be unusual: 30 have more. (That
# of 30 exactly would be a tie, which rounding decides.)
_KNOWN = (1 - _DECAY**29.5) / (1 - _DECAY)
# An item adds its distance from the usual, in deviations and not more than the first
# number, beyond the second; so much together is a jump.
_CLIP, _SLACK, _JUMP = 4.0, 0.5, 20.0
# Least variance, relative to the square of the surprise: rounding is no surprise.
_ROUNDING = 1e-12

# Modes that are told apart: so many together, and at least so many of each class.
_MOST, _LEAST = 1000, 10

# Columns of the state: fading moments of the surprise, the sum, and the mode.
_WEIGHT, _MEAN, _SQUARES, _SUM, _MODE = range(5)


class ModeDetector:
    r"""Tells items of a class apart by the mode in which the stream shows it.

    With the surprise ``s`` of an item, and mean ``m`` and deviation ``d`` of the
    surprise of its class so far, fading by 0.99 per item, each class has a sum

    .. math:: S \leftarrow \max\left(0, S + \min((s - m) / d, 4) - 0.5\right)

    that stays near zero as long as nothing changes. Beyond 20 a new mode of the class
    begins, and its sum and moments start anew; they need 30 items before the next. A
    class that is learned surprises less and less, which is no jump; nor is a class that
    comes for the first time.

    Args:
        num_classes: classes, each with a sum of its own.
        finds: whether modes are looked for; else each class is one.

    Attributes:
        num_classes: as given.
        finds: as given.
        num_groups: modes that can be told apart. Mode ``m`` of class ``c`` is the group
            ``c + m * num_classes``; the last mode of a class does not end.

    Example:
        >>> detector = ModeDetector(1)
        >>> labels, surprises = np.zeros(500, dtype=int), np.zeros(500)
        >>> surprises[:] = np.random.default_rng(0).normal(size=500)
        >>> surprises[300:] += 2
        >>> walk = detector.walk(labels, surprises)
        >>> walk.groups[[299, 320]].tolist()
        [0, 1]
        >>> detector.state = walk.after(500)
    """

    def __init__(self, num_classes: int, finds: bool = True) -> None:
        self.num_classes = num_classes
        self.finds = finds
        self.num_groups = num_classes
        if finds:
            self.num_groups *= max(_LEAST, _MOST // num_classes)
        self._classes = np.arange(num_classes)
        self._state = SharedArray((num_classes, 5), np.float64)

    def walk(
        self, labels: Places, surprises: Array, state: Array | None = None
    ) -> ModesWalk:
        """Tell items apart, oldest first; nothing is changed.

        Args:
            labels: classes of the items, shape ``(n,)``.
            surprises: of the items, shape ``(n,)``; some hundred at a time, as the
                memory that this takes grows with their square.
            state: where to start from; by default the current one.
        """
        start = self._state.array if state is None else state
        return ModesWalk(self, labels, surprises, start)

    def groups_of(self, labels: Places, state: Array | None = None) -> Places:
        """The groups that classes are in now.

        Args:
            labels: any number of classes.
            state: as of when; by default now.
        """
        state = self._state.array if state is None else state
        now = self._classes + self.num_classes * state[:, _MODE].astype(np.int64)
        return now[labels]

    @property
    def state(self) -> Array:
        """Moments and sums of all classes, to be handed to :meth:`walk`."""
        return self._state.array.copy()

    @state.setter
    def state(self, value: Array) -> None:
        self._state.array[:] = value

    def clear(self) -> None:
        """Forget everything."""
        self._state.clear()

    def share_memory_(self) -> None:
        """Move the state to memory that child processes share."""
        self._state.share_memory_()

    def state_dict(self) -> dict[str, Any]:
        """The state as plain values."""
        return {"state": self._state.state_dict()}

    def check_state(self, state_dict: dict[str, Any]) -> None:
        """Raise ``ValueError`` if a :meth:`state_dict` does not fit."""
        self._state.check_state(state_dict["state"])
        state = state_dict["state"].numpy()
        modes = state[:, _MODE]
        if not (
            (state[:, [_WEIGHT, _SQUARES, _SUM, _MODE]] >= 0).all()
            and (modes == np.floor(modes)).all()
            and modes.max() * self.num_classes < self.num_groups
        ):
            raise ValueError(
                "expected weights, squares and sums of at least 0 and modes below "
                f"{self.num_groups // self.num_classes}, got {told(state)}"
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`."""
        self._state.load_state_dict(state_dict["state"])


class ModesWalk:
    """The groups of items, and the state after each number of them.

    Attributes:
        groups: of each item, shape ``(n,)``.
    """

    def __init__(
        self, detector: ModeDetector, labels: Places, surprises: Array, start: Array
    ) -> None:
        self._given = detector, labels, surprises, start
        self._end = end = start.copy()
        self.groups = detector.groups_of(labels, end)
        self._path: _Path | None = None
        if not detector.finds or not len(labels):
            return
        path = _Path(labels, surprises, end)
        starts = path.follow(end)
        if not starts:
            self._path = path
        for item in starts:
            label = labels[item]
            if self.groups[item] + detector.num_classes < detector.num_groups:
                self.groups[item:][labels[item:] == label] += detector.num_classes
                end[label, _MODE] += 1

    def after(self, count: int) -> Array:
        """The state after the first ``count`` items, to be handed to ``walk``."""
        detector, labels, surprises, start = self._given
        if count == len(labels):
            return self._end
        if self._path is None:  # a mode began, which is rare
            return ModesWalk(detector, labels[:count], surprises[:count], start)._end
        state = start.copy()
        path = self._path
        counts = np.bincount(labels[:count], minlength=len(start))[path.classes]
        rows = counts.nonzero()[0]
        path.put(state, rows, counts[rows])
        return state


class _Path:
    """Moments and sums of classes before and after their items, as if none jumped.

    A row per class has its items side by side, the last again where there are fewer.
    """

    def __init__(self, labels: Places, values: Array, state: Array) -> None:
        counts = np.bincount(labels, minlength=len(state))
        self.classes = counts.nonzero()[0]
        self.sizes = sizes = counts[self.classes]
        ends = sizes.cumsum()[:, None]
        longest = np.arange(sizes.max())
        places = np.minimum(ends - sizes[:, None] + longest, ends - 1)
        self.items = labels.argsort(kind="stable")[places]
        self.values = values
        self._compute(state)

    def follow(self, state: Array) -> list[int]:
        """The items with which modes begin, ascending; the state follows all items."""
        self.put(state, np.arange(len(self.classes)), self.sizes)
        if self._sums.max() <= _JUMP:
            return []
        jumps = (self._sums > _JUMP) & (
            np.arange(self._sums.shape[1]) < self.sizes[:, None]
        )
        (again,) = jumps.any(1).nonzero()
        if not again.size:
            return []
        # What comes from a jump on is looked at again, as of a class that is new.
        places = jumps.argmax(1)[again]
        starts: list[int] = self.items[again, places].tolist()
        rest = _Path.__new__(_Path)
        rest.classes, rest.values = self.classes[again], self.values
        rest.sizes = self.sizes[again] - places
        shifted = np.arange(self.items.shape[1]) + places[:, None]
        shifted = np.minimum(shifted, self.sizes[again][:, None] - 1)
        rest.items = np.take_along_axis(self.items[again], shifted, 1)
        state[rest.classes, :_MODE] = 0
        rest._compute(state)
        return sorted(starts + rest.follow(state))

    def put(self, state: Array, rows: Places, counts: Places) -> None:
        """Put what is known after so many items of some classes into a state.

        Args:
            state: changed where the classes are.
            rows: of the classes.
            counts: of each one's items, at least 1.
        """
        known = self._known[:, rows, counts]
        shifts = known[_MEAN]
        squares = np.maximum(known[_SQUARES] - shifts * shifts, 0)
        known[_SQUARES] = known[_WEIGHT] * squares
        known[_MEAN] += self._reference[rows]
        state[self.classes[rows], :_MODE] = known.T

    def _compute(self, state: Array) -> None:
        values = self.values[self.items]
        weight, mean, squares, total = state[self.classes, :_MODE].T
        all_known = weight.min() > _KNOWN  # and remain so
        # Distances from a mean that is close lose no precision.
        self._reference = mean
        if not all_known:
            self._reference = np.where(weight > 0, mean, values[:, 0])
        reference = self._reference[:, None]
        # The start and then the items of weights, distances and their squares, which
        # one product adds up to what they have faded to after each number of items.
        terms = np.empty((3, len(values), values.shape[1] + 1))
        terms[_WEIGHT, :, 0], terms[_WEIGHT, :, 1:] = weight, 1
        terms[_MEAN, :, 0] = 0
        distances = np.subtract(values, reference, out=terms[_MEAN, :, 1:])
        terms[_SQUARES, :, 0] = squares
        np.multiply(distances, distances, out=terms[_SQUARES, :, 1:])
        self._known = known = np.empty((_MODE, *terms.shape[1:]))
        moments = np.matmul(terms, _fading(terms.shape[2]), out=known[:_SUM])
        weights = moments[_WEIGHT]
        moments[1:] /= weights if all_known else np.maximum(weights, 1)
        # Each item against the moments before it.
        shifts, squares = moments[1:, :, :-1]
        steps = distances - shifts
        variances = squares - shifts * shifts
        np.maximum(variances, _ROUNDING * (1 + reference * reference), out=variances)
        steps /= np.sqrt(variances, out=variances)
        np.minimum(steps, _CLIP, out=steps)
        np.maximum(steps, -_CLIP, out=steps)
        steps -= _SLACK
        if not all_known:
            steps *= weights[:, :-1] > _KNOWN
        # max(0, S + step), again and again, is the sum above its least value so far.
        steps[:, 0] += total
        sums = steps.cumsum(1)
        lowest = np.minimum.accumulate(sums, 1)
        np.minimum(lowest, 0, out=lowest)
        self._sums = np.subtract(sums, lowest, out=known[_SUM, :, 1:])


def _fading(count: int) -> Array:
    """What each of so many terms has faded to by each later one, oldest first."""
    return _fading_of(-(-count // 64) * 64)[:count, :count]


@functools.cache
def _fading_of(count: int) -> Array:
    ages = np.arange(count) - np.arange(count)[:, None]
    return np.where(ages >= 0, _DECAY ** np.maximum(ages, 0.0), 0.0)
