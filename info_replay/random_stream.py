"""Random numbers that depend on a seed and on the number of an item, nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RandomStream", "generator_of"]


def generator_of(seed: int, purpose: int, number: int) -> np.random.Generator:
    """A generator for one of several purposes at one point of the stream.

    Args:
        seed: of the writer.
        purpose: from 1 on; 0 is that of :class:`RandomStream`.
        number: of the item, batch or task.

    Returns:
        A new generator, the same one for the same arguments.
    """
    return np.random.Generator(
        np.random.Philox(
            key=np.array([seed, purpose], dtype=np.uint64),
            counter=np.array([0, number, 0, 0], dtype=np.uint64),
        )
    )


class RandomStream:
    """Four uniform numbers for every item of a stream, addressed by its number.

    The numbers are a function of the seed and of the item's number alone (a
    counter-based generator), so they do not depend on how the stream was cut into
    batches, on what happened to other items or on where a run was interrupted.
    """

    DRAWS = 4  # one block of Philox-4x64
    AHEAD = 1024  # items whose numbers are drawn together

    def __init__(self) -> None:
        self._place = (-1, -1)  # the seed, and the first item of what was drawn
        self._drawn = np.empty((0, self.DRAWS))

    def uniforms(self, seed: int, first: int, count: int) -> NDArray[np.float64]:
        """Numbers in [0, 1) of items ``first`` to ``first + count - 1``.

        Returns:
            Array of shape ``(count, 4)``; not to be changed.
        """
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
            self._place, start = (seed, first), 0
        return self._drawn[start : start + count]

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: what was drawn is derived from what is asked for."""
        return {"_place": (-1, -1), "_drawn": np.empty((0, self.DRAWS))}
