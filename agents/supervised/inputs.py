"""From observations to what a network sees, in batch.

Padding is left out, bytes become numbers, images are augmented.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["augment", "scale", "without_padding"]


def scale(observation: Tensor) -> Tensor:
    """Bytes to numbers in [0, 1]; other numbers as they are, in float32.

    Args:
        observation: any shape.

    Returns:
        The same shape, float32.
    """
    if observation.dtype == torch.uint8:
        return observation.to(torch.float32).div_(255)
    return observation.to(torch.float32)


def augment(images: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Pad, crop at a random place, and flip every second image, each on its own.

    The whole batch is done on its device at once; only the random numbers come from
    the host, so that they are the same on every device.

    Args:
        images: shape ``(n, C, H, W)``.
        generator: of the random numbers, on the host.
        padding: pixels of zeros on each side.

    Returns:
        The same shape.

    Example:
        >>> images = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> augment(images, torch.Generator().manual_seed(0), padding=1).shape
        torch.Size([1, 1, 4, 4])
    """
    count, _, height, width = images.shape
    device = images.device
    places = torch.randint(2 * padding + 1, (2, count), generator=generator)
    flips = torch.randint(2, (count,), generator=generator)
    top, left = places.to(device)
    rows = top[:, None] + torch.arange(height, device=device)
    columns = torch.arange(width, device=device).expand(count, width)
    columns = torch.where(flips.to(device)[:, None] > 0, columns.flip(1), columns)
    columns = left[:, None] + columns
    padded = F.pad(images, [padding] * 4)
    sample = torch.arange(count, device=device)[:, None, None]
    # Indexing rows and columns of each image at once puts the channels last.
    cropped = padded.permute(0, 2, 3, 1)[sample, rows[:, :, None], columns[:, None, :]]
    return cropped.permute(0, 3, 1, 2).contiguous()


def without_padding(
    observation: NDArray[Any],
    target: NDArray[Any],
    mask: NDArray[np.bool_] | None,
    num_classes: int | None,
    num_outputs: int | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The samples of a batch that count.

    Args:
        observation: inputs, shape ``(n, ...)``.
        target: labels ``(n,)``, or numbers ``(n,)`` or ``(n, K)``.
        mask: which of them are not padding, shape ``(n,)``; by default labels that are
            not -1, and all numbers.
        num_classes: number of classes, ``None`` for regression.
        num_outputs: for regression, how many numbers there are per sample; ``None`` if
            any number will do.

    Returns:
        Observation and target; the same arrays if there is no padding.

    Raises:
        ValueError: if shapes, types or labels are wrong.

    Example:
        >>> inputs, labels = np.zeros((4, 2)), np.array([1, 0, 2, -1])
        >>> without_padding(inputs, labels, None, num_classes=3)[1]
        array([1, 0, 2])
    """
    shape: tuple[int, ...] = observation.shape[:1]
    wanted = shape
    if num_classes is None:
        several = target.shape[1:] if num_outputs is None else (num_outputs,)
        wanted = shape if several == (1,) else shape + several[:1]
    for name, values, expected in (("target", target, wanted), ("mask", mask, shape)):
        if values is not None and values.shape != expected:
            raise ValueError(
                f"{name} must have the shape {expected}, got {values.shape}"
            )
    if num_classes is None:
        if target.dtype != np.float32:
            raise ValueError(f"target must be float32, got {target.dtype}")
    elif target.dtype != np.int64 or (
        target.size and not -1 <= target.min() <= target.max() < num_classes
    ):
        found = f" from {target.min()} to {target.max()}" if target.size else ""
        raise ValueError(
            f"target must be int64 labels from 0 to {num_classes - 1}, or -1 for "
            f"padding, got {target.dtype}{found}"
        )
    if mask is None and num_classes is not None:
        mask = target >= 0
    if mask is None or mask.all():
        return observation, target
    return observation[mask], target[mask]
