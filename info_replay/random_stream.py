"""Random numbers that depend on a seed and on the number of an item, nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RandomStream", "generator_of"]


def generator_of(seed: int, purpose: int, number: int) -> np.random.Generator:
    """A new generator, the same one for the same arguments.

    ``purpose`` tells apart what a writer draws, from 1 on (0 is that of
    :class:`RandomStream`); ``number`` is that of the item, batch or task.
    """
    return np.random.Generator(
        np.random.Philox(
            key=np.array([seed, purpose], dtype=np.uint64),
            counter=np.array([0, number, 0, 0], dtype=np.uint64),
        )
    )


class RandomStream:
    """Four uniform numbers for every item of a stream, addressed by its number.

    The generator is counter-based: the numbers do not depend on how the stream is cut
    into batches, on what happens to other items or on where a run is interrupted.
    """

    DRAWS = 4  # one block of Philox-4x64
    AHEAD = 1024  # items whose numbers are drawn together

    def __init__(self) -> None:
        self._place = (-1, -1)  # seed and first item of the numbers in _drawn
        self._drawn = np.empty((0, self.DRAWS))

    def uniforms(self, seed: int, first: int, count: int) -> NDArray[np.float64]:
        """Numbers in [0, 1) from item ``first`` on, ``(count, 4)``; must not change."""
        drawn_seed, drawn_first = self._place
        start = first - drawn_first
        if seed != drawn_seed or start < 0 or start + count > len(self._drawn):
            generator = np.random.Philox(
                key=np.array([seed, 0], dtype=np.uint64),
                counter=np.array([first, 0, 0, 0], dtype=np.uint64),
            )
            raw = generator.random_raw(self.DRAWS * max(count, self.AHEAD))
            numbers = (raw >> np.uint64(11)) * np.float64(2.0**-53)
            self._drawn = numbers.reshape(-1, self.DRAWS)
            self._drawn.flags.writeable = False  # asked twice, it is the same
            self._place, start = (seed, first), 0
        return self._drawn[start : start + count]

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: all numbers can be drawn again."""
        return {"_place": (-1, -1), "_drawn": np.empty((0, self.DRAWS))}
