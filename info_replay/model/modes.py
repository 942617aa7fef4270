"""Modes that hide in a class, found by jumps of its surprise: :class:`ModeDetector`.

A stream may change what a class looks like without a word: other pixels, another
camera, another regime. Then items of a class that the memory knew well surprise it
again, all at once. That is a change point of the surprise, and the cumulative sum of
Page (Biometrika, 1954) finds it within a dozen items of the class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from info_replay.shared_state import SharedArray
from info_replay.validation import told

__all__ = ["ModeDetector"]

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

# Columns of the state: fading moments of the surprise, the sum, and how many modes
# there have been, 0 before the first item.
_WEIGHT, _MEAN, _SQUARES, _SUM, _MODES = range(5)


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
        >>> groups, counts, detector.state = detector.walk(labels, surprises)
        >>> groups[[299, 320]].tolist(), counts[[299, 320]].tolist()
        ([0, 1], [1, 2])
    """

    def __init__(self, num_classes: int, finds: bool = True) -> None:
        self.num_classes = num_classes
        self.finds = finds
        self.num_groups = num_classes * max(_LEAST, _MOST // num_classes)
        self._state = SharedArray((num_classes, 5), np.float64)

    def walk(
        self, labels: Places, surprises: Array, state: Array | None = None
    ) -> tuple[Places, Places, Array]:
        """Tell items apart, oldest first; nothing is changed.

        Args:
            labels: classes of the items, shape ``(n,)``.
            surprises: of the items, shape ``(n,)``.
            state: where to start from; by default the current one.

        Returns:
            The group of each item and how many groups there are with it, each ``(n,)``,
            and the state after all.
        """
        before = self._state.array if state is None else state
        first = np.zeros(len(labels), dtype=np.int64)
        after = before.copy()
        if not before[labels, _MODES].all():
            classes, items = np.unique(labels, return_index=True)
            new = before[classes, _MODES] == 0
            first[items[new]] = 1
            after[classes[new], _MODES] = 1
        groups = self.groups_of(labels, after)
        starts = _find_starts(labels, surprises, after) if self.finds else []
        for start in starts:
            label = labels[start]
            if groups[start] + self.num_classes < self.num_groups:
                groups[start:][labels[start:] == label] += self.num_classes
                after[label, _MODES] += 1
                first[start] = 1
        return groups, first.cumsum() + int(before[:, _MODES].sum()), after

    def groups_of(self, labels: Places, state: Array | None = None) -> Places:
        """The groups that classes are in now.

        Args:
            labels: any number of classes.
            state: as of when; by default now.
        """
        state = self._state.array if state is None else state
        modes = np.maximum(state[labels, _MODES] - 1, 0)
        return labels + self.num_classes * modes.astype(np.int64)

    def see(self, labels: Places) -> None:
        """Note that there are classes, whose surprise is not known.

        Args:
            labels: of any number of items.
        """
        modes = self._state.array[:, _MODES]
        modes[labels] = np.maximum(modes[labels], 1)

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
        modes = state[:, _MODES]
        if not (
            (state[:, [_WEIGHT, _SQUARES, _SUM, _MODES]] >= 0).all()
            and (modes == np.floor(modes)).all()
            and modes.max() * self.num_classes <= self.num_groups
        ):
            raise ValueError(
                "expected weights, squares and sums of at least 0 and modes up to "
                f"{self.num_groups // self.num_classes}, got {told(state)}"
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`."""
        self._state.load_state_dict(state_dict["state"])


def _find_starts(labels: Places, values: Array, state: Array) -> list[int]:
    """The items with which modes begin, ascending; the state follows all items."""
    counts = np.bincount(labels, minlength=len(state))
    classes = counts.nonzero()[0]
    counts = counts[classes]
    # A row per class, its items side by side, the last one again where there are less.
    order = labels.argsort(kind="stable")
    places = np.minimum(np.arange(counts.max(initial=0)), counts[:, None] - 1)
    items = order[places + (counts.cumsum() - counts)[:, None]]
    starts: list[int] = []
    while len(classes):
        jumps, state[classes, :_MODES] = _first_jumps(
            values[items], counts, state[classes, :_MODES]
        )
        (again,) = (jumps >= 0).nonzero()
        if not again.size:
            break
        # What comes from a jump on is looked at again, as of a class that is new.
        jumps, classes, counts = jumps[again], classes[again], counts[again]
        starts += items[again, jumps].tolist()
        state[classes, :_MODES] = 0
        shifted = np.minimum(
            np.arange(items.shape[1]) + jumps[:, None], counts[:, None] - 1
        )
        items = np.take_along_axis(items[again], shifted, 1)
        counts = counts - jumps
    return sorted(starts)


def _first_jumps(values: Array, counts: Places, state: Array) -> tuple[Places, Array]:
    """The first jump of each row, -1 where there is none, and the state after the rows.

    Args:
        values: surprises, shape ``(C, n)``.
        counts: how many each row has, from the left, shape ``(C,)``.
        state: moments and sum before them, shape ``(C, 4)``.
    """
    row, size = np.arange(len(values)), values.shape[1]
    weight, mean, squares, total = state.T[:, :, None]
    fade = _DECAY ** np.arange(size + 1.0)
    weights = fade * weight + (1 - fade) / (1 - _DECAY)
    # Fading sums are plain ones of values / decay^i. 512 items fade them by e^-5.
    fade = fade[1:]
    reference = np.where(weight > 0, mean, values[:, :1])
    distances = values - reference
    scaled = distances / fade
    shifts = scaled.cumsum(1)
    shifts *= fade
    firsts = shifts.copy()
    shifts /= weights[:, 1:]
    spread = (scaled * distances).cumsum(1)
    spread += squares
    spread *= fade
    spread -= shifts * firsts
    np.maximum(spread, 0, out=spread)
    # Each item against the moments before it.
    variances = np.empty_like(values)
    variances[:, :1] = squares
    variances[:, 1:] = spread[:, :-1]
    variances /= np.maximum(weights[:, :-1], 1)
    distances[:, 1:] -= shifts[:, :-1]
    steps = distances / np.sqrt(variances + _ROUNDING * (1 + values * values))
    np.clip(steps, -_CLIP, _CLIP, out=steps)
    steps -= _SLACK
    steps *= weights[:, :-1] > _KNOWN
    # max(0, S + step), again and again, is the sum above its least value so far.
    sums = total + steps.cumsum(1)
    sums -= np.minimum(np.minimum.accumulate(sums, 1), 0)
    last = counts - 1
    after = np.stack(
        [
            weights[row, counts],
            reference[:, 0] + shifts[row, last],
            spread[row, last],
            sums[row, last],
        ],
        1,
    )
    found = np.full(len(values), -1)
    if sums.max() > _JUMP:
        jumps = sums > _JUMP
        jumps &= np.arange(size) < counts[:, None]
        found = np.where(jumps.any(1), jumps.argmax(1), -1)
    return found, after
