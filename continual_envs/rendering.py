"""A batch of images as one picture."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["picture"]

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
