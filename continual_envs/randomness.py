"""Random numbers that a seed and a purpose address: :func:`generator`."""

from __future__ import annotations

import enum

import numpy as np

__all__ = ["Purpose", "generator"]


class Purpose(enum.IntEnum):
    """What random numbers of a stream are for. Never renumber these."""

    TASK_ORDER = 0
    DRIFT = 1
    HOLD_OUT = 2
    LONG_TAIL = 3
    LABEL_NOISE = 4
    BLUR = 5
    SUBSET = 6


def generator(seed: int, purpose: Purpose, number: int = 0) -> np.random.Generator:
    """Random numbers for one purpose, independent of all others of the same seed.

    Args:
        seed: of the stream.
        purpose: what they are for.
        number: which of many.

    Returns:
        A generator.
    """
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence([seed, int(purpose), number]))
    )
