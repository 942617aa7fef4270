"""Real data that installs with scikit-learn: handwritten digits and diabetes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from continual_envs.datasets.base import Dataset, Part

__all__ = ["load_diabetes", "load_digits"]


def load_digits(root: Path) -> Dataset:
    """1,797 handwritten digits of 8 x 8 pixels.

    The last 297 are the test part: they were written by others than the first.

    Args:
        root: not needed; there is nothing to download.

    Returns:
        The data set, its 17 levels of grey spread over a byte.
    """
    from sklearn import datasets  # seconds to import

    pixels, labels = datasets.load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 1, 8, 8) * (255 / 16)).round().astype(np.uint8)
    labels = labels.astype(np.int64)
    return Dataset(
        "Digits",
        Part(images[:1500].copy(), labels[:1500].copy()),
        Part(images[1500:].copy(), labels[1500:].copy()),
        10,
        key="Digits",
    )


def load_diabetes(root: Path) -> Dataset:
    """442 patients: ten measurements and how far diabetes progressed in a year.

    Every fifth patient is in the test part.

    Args:
        root: not needed; there is nothing to download.

    Returns:
        The data set, measurements standardised by scikit-learn, the progression (25 to
        346) scaled to [-1, 1].
    """
    from sklearn import datasets  # seconds to import

    inputs, progression = datasets.load_diabetes(return_X_y=True)
    low, high = progression.min(), progression.max()
    inputs = inputs.astype(np.float32)
    targets = (2 * (progression - low) / (high - low) - 1).astype(np.float32)
    test = np.arange(len(targets)) % 5 == 4
    return Dataset(
        "Diabetes",
        Part(inputs[~test], targets[~test]),
        Part(inputs[test], targets[test]),
        None,
        key="Diabetes",
    )
