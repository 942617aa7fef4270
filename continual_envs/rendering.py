"""A batch as one picture: images side by side, other inputs as rows of gray levels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["gray_levels", "picture"]

_LEAST_SIDE = 256  # pixels of the shorter side, so that small images can be seen


def picture(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images side by side in rows, enlarged if they are small.

    Args:
        images: shape ``(n, C, H, W)``, one channel or three.

    Returns:
        A picture, shape ``(height, width, 3)``.

    Example:
        >>> picture(np.zeros((5, 1, 8, 8), dtype=np.uint8)).shape
        (256, 384, 3)
    """
    count, _, height, width = images.shape
    columns = math.ceil(math.sqrt(max(count, 1)))
    rows = max(math.ceil(count / columns), 1)
    grid = np.zeros((rows * columns, 3, height, width), dtype=np.uint8)
    grid[:count] = images
    whole = (
        grid.reshape(rows, columns, 3, height, width)
        .transpose(0, 3, 1, 4, 2)
        .reshape(rows * height, columns * width, 3)
    )
    times = math.ceil(_LEAST_SIDE / min(whole.shape[:2]))
    return whole.repeat(times, axis=0).repeat(times, axis=1)


def gray_levels(
    batch: NDArray[Any], low: NDArray[Any], high: NDArray[Any]
) -> NDArray[np.uint8]:
    """Inputs of any kind as images for :func:`picture`.

    Args:
        batch: shape ``(n, ...)``.
        low: what becomes black, the shape of one input.
        high: what becomes white, the same shape.

    Returns:
        Bytes: images if the inputs have one channel or three, else one image that has
        an input per row.

    Example:
        >>> batch = np.array([[0.0, 5.0], [1.0, 10.0]])
        >>> gray_levels(batch, np.array([0.0, 0.0]), np.array([1.0, 10.0])).tolist()
        [[[[0, 128], [255, 255]]]]
    """
    if batch.dtype != np.uint8:
        scaled = 255 * (batch - low) / (high - low)
        batch = scaled.round().clip(0, 255).astype(np.uint8)
    if batch.ndim == 4 and batch.shape[1] in (1, 3):
        return batch
    return batch.reshape(1, 1, len(batch), -1)
