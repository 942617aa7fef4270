"""Pictures as bytes, and arrays that are filled row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.datasets.arrays import to_array

__all__ = ["Rows", "channels_of", "is_picture", "to_pixels"]

ImageSize = tuple[int, int] | None


def is_picture(value: Any) -> bool:
    """Whether a value is an image of Pillow."""
    return any(base.__module__.startswith("PIL.") for base in type(value).__mro__)


def channels_of(image: Any, name: str) -> int:
    """Number of channels that an image of Pillow needs: one if it is gray.

    Args:
        image: any.
        name: for messages.

    Raises:
        ValueError: if it has more than a byte per pixel and channel, which Pillow would
            cut off.
    """
    if image.mode == "F" or image.mode.startswith("I"):
        raise ValueError(
            f"{name} has more than 8 bits per pixel (mode {image.mode!r}): convert it "
            "to 8 bits, or give arrays of floats"
        )
    return 1 if image.mode in ("1", "L") else 3


def to_pixels(image: Any, channels: int, size: ImageSize) -> NDArray[np.uint8]:
    """The pixels of an image of Pillow.

    Args:
        image: any.
        channels: 1 for gray, 3 for colors.
        size: height and width to resize it to.

    Returns:
        Bytes of shape ``(channels, height, width)``.
    """
    image = image.convert("L" if channels == 1 else "RGB")
    if size is not None and image.size != (size[1], size[0]):
        from PIL import Image

        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


class Rows:
    """An array that is filled sample by sample, all of the same shape.

    Args:
        count: number of samples.
        image_size: height and width to resize images of Pillow to.
        first: number of the first sample, for messages.

    Example:
        >>> rows = Rows(2)
        >>> rows.put(0, [1, 2])
        >>> rows.put(1, [3, 4])
        >>> rows.array.tolist()
        [[1, 2], [3, 4]]
        >>> rows.put(1, [3, 4, 5])
        Traceback (most recent call last):
            ...
        ValueError: sample 1 has the shape (3,) and sample 0 (2,): give all the same...
    """

    def __init__(
        self, count: int, image_size: ImageSize = None, first: int = 0
    ) -> None:
        self._count = count
        self._first = first
        self._size = image_size
        self._channels = 1
        self.array: NDArray[Any] = np.empty((count, 0))

    def put(self, row: int, value: Any) -> None:
        """Fill a row; the first one must come first.

        Args:
            row: its number.
            value: an image of Pillow, or anything like an array.

        Raises:
            ValueError: if it has another shape than the first one.
        """
        if is_picture(value):
            pixels = self._pixels(value, f"the image of sample {self._first + row}")
        else:
            pixels = to_array(value, f"the input of sample {self._first + row}")
        if not row:
            self.array = np.empty((self._count, *pixels.shape), dtype=pixels.dtype)
        elif pixels.shape != self.array.shape[1:]:
            first = self.array.shape[1:]
            remedy = "give all the same shape"
            if is_picture(value):
                remedy = "image_size=(H, W) resizes them"
            raise ValueError(
                f"sample {self._first + row} has the shape {pixels.shape} and sample "
                f"{self._first} {first}: {remedy}"
            )
        elif pixels.dtype != self.array.dtype:
            self.array = self.array.astype(np.result_type(self.array, pixels))
        self.array[row] = pixels

    def _pixels(self, image: Any, name: str) -> NDArray[np.uint8]:
        """The pixels of an image; a first one in color makes all colored."""
        if channels_of(image, name) > self._channels:
            self._channels = 3
            if self.array.ndim == 4 and self.array.shape[1] == 1:
                self.array = self.array.repeat(3, axis=1)
        return to_pixels(image, self._channels, self._size)
