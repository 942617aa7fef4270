"""Observations become numbers from 0 to 1; augmentation pads, crops and flips."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from agents.supervised.inputs import augment, scale


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slowly_augmented(
    images: Tensor, generator: torch.Generator, padding: int
) -> Tensor:
    """One image after the other, with loops, from the same random numbers."""
    count, channels, height, width = images.shape
    places = torch.randint(2 * padding + 1, (2, count), generator=generator).tolist()
    flips = torch.randint(2, (count,), generator=generator).tolist()
    result = torch.zeros_like(images)
    for n in range(count):
        top, left = places[0][n], places[1][n]
        big = torch.zeros(channels, height + 2 * padding, width + 2 * padding)
        big[:, padding : padding + height, padding : padding + width] = images[n]
        crop = big[:, top : top + height, left : left + width]
        result[n] = crop.flip(2) if flips[n] else crop
    return result


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.tensor([[0, 51], [102, 255]], dtype=torch.uint8), [[0, 0.2], [0.4, 1]]),
        (torch.tensor([-3.0, 0.5, 300.0]), [-3.0, 0.5, 300.0]),
        (torch.tensor([-3.0, 0.5], dtype=torch.float64), [-3.0, 0.5]),
    ],
)
def test_bytes_become_numbers_from_0_to_1_and_others_stay(
    given: Tensor, expected: list[Any]
) -> None:
    before = given.clone()
    torch.testing.assert_close(scale(given), torch.tensor(expected))
    assert torch.equal(given, before)


@pytest.mark.parametrize("shape", [(40, 1, 8, 8), (40, 3, 6, 9), (1, 2, 5, 3)])
@pytest.mark.parametrize("padding", [0, 1, 4])
def test_a_batch_is_augmented_as_if_image_by_image(
    shape: tuple[int, ...], padding: int
) -> None:
    images = torch.rand(shape, generator=seeded(0))
    expected = slowly_augmented(images, seeded(1), padding)
    found = augment(images, seeded(1), padding)
    assert found.shape == images.shape
    assert found.is_contiguous()
    assert torch.equal(found, expected)


def test_what_comes_from_outside_the_image_is_zero() -> None:
    found = augment(torch.ones(500, 1, 8, 8), seeded(0))
    assert set(found.unique().tolist()) == {0.0, 1.0}
    # The crop that is shifted most, by 4 pixels to each side, keeps a quarter.
    assert found.sum((1, 2, 3)).min() == 16
    assert found.sum((1, 2, 3)).max() == 64


def test_every_place_and_both_directions_come_about_equally_often() -> None:
    image = torch.arange(1.0, 17.0).reshape(1, 1, 4, 4)
    found = augment(image.expand(9000, 1, 4, 4), seeded(0), padding=1)
    kinds, counts = found.flatten(1).unique(dim=0, return_counts=True)
    assert len(kinds) == 3 * 3 * 2
    # 500 each; five standard deviations are about 110.
    assert counts.min() > 390
    assert counts.max() < 610


def test_images_depend_on_their_generator_alone() -> None:
    images = torch.rand((20, 1, 8, 8), generator=seeded(0))
    before, state = images.clone(), torch.get_rng_state()
    one, two = seeded(1), seeded(1)
    first = augment(images, one)
    assert torch.equal(first, augment(images, two, 4))  # pixels unless told
    assert not torch.equal(first, augment(images, one))
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_images_stay_on_their_device() -> None:
    with FakeTensorMode():
        images = torch.empty((5, 3, 8, 8), device="cuda:0")
        found = augment(images, seeded(0))
        assert scale(images.to(torch.uint8)).device == images.device
    assert found.device == torch.device("cuda:0")
    assert found.shape == (5, 3, 8, 8)
