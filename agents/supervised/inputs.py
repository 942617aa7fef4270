"""From observations to what a network sees: scaling and augmentation, in batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows
from torch import Tensor

__all__ = ["augment", "scale"]


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
