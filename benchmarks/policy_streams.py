"""Streams of real data that the choice of a default policy was tried on.

Each function is data for ``info-replay``: ``--data benchmarks.policy_streams:domains``.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows
from numpy.typing import NDArray

from continual_envs import Dataset, Part
from continual_envs.datasets import load_dataset

__all__ = ["domains", "rotations"]

#: How the domains show an image ``(n, 1, 28, 28)``.
_DOMAINS = (
    lambda images: images,
    lambda images: 255 - images,
    lambda images: images.transpose(0, 1, 3, 2),
    lambda images: images[:, :, ::-1],
    lambda images: np.roll(images, 14, axis=(2, 3)),
)
_LARGEST_ANGLE = math.pi / 3


def domains(root: Path | None = None) -> Dataset:
    """MNIST in five domains, one task each: all classes are in all of them.

    As it is, inverted, transposed, upside down, and shifted by half its size. Each
    image is in one domain only.

    Args:
        root: folder of the data sets.

    Returns:
        The data set.
    """
    digits = load_dataset("MNIST", root)

    def shown(part: Part) -> Part:
        ids = np.arange(len(part)) % len(_DOMAINS)
        images = np.empty_like(part.inputs)
        for number, show in enumerate(_DOMAINS):
            images[ids == number] = show(part.inputs[ids == number])
        return Part(images, part.targets, ids)

    return Dataset("MNIST domains", shown(digits.train), shown(digits.test), 10)


def rotations(root: Path | None = None) -> Dataset:
    """By what angle is a digit of MNIST turned? A task has two of the ten digits.

    Angles are uniform between -60 and 60 degrees; the target is 1 for 60.

    Args:
        root: folder of the data sets.

    Returns:
        The data set.
    """
    digits = load_dataset("MNIST", root)

    def turned(part: Part, seed: int) -> Part:
        random = np.random.default_rng(seed)
        targets = random.uniform(-1, 1, len(part)).astype(np.float32)
        images = _rotate(part.inputs, targets * _LARGEST_ANGLE)
        return Part(images, targets, part.targets // 2)

    return Dataset(
        "MNIST rotations", turned(digits.train, 0), turned(digits.test, 1), None
    )


def _rotate(
    images: NDArray[np.uint8], angles: NDArray[np.float32]
) -> NDArray[np.uint8]:
    """Images of bytes, each turned by its angle."""
    turned = np.empty_like(images)
    for start in range(0, len(images), 10_000):
        part = slice(start, start + 10_000)
        pixels = torch.from_numpy(images[part].astype(np.float32))
        cosine, sine = np.cos(angles[part]), np.sin(angles[part])
        zero = np.zeros_like(sine)
        rows = np.stack([cosine, -sine, zero, sine, cosine, zero], 1)
        grid = F.affine_grid(
            torch.from_numpy(rows.reshape(-1, 2, 3)), list(pixels.shape), False
        )
        turned[part] = F.grid_sample(pixels, grid, align_corners=False).round().numpy()
    return turned
