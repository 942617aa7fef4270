"""Any map-style data set of PyTorch is data, seen through its own transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset
from torchvision import transforms
from torchvision.datasets import FakeData

from continual_envs import make_dataset, make_stream

X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(60) % 3


class Samples(Dataset[Any]):
    """Whatever samples a test wants."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def image(height: int, width: int, mode: str = "RGB") -> Image.Image:
    channels = {"L": (), "RGB": (3,)}[mode]
    pixels = np.random.default_rng(height * width).integers(
        0, 256, (height, width, *channels), dtype=np.uint8
    )
    return Image.fromarray(pixels)


def test_tensors_are_read_like_arrays() -> None:
    found = make_dataset(TensorDataset(X, Y))
    assert found.name == "TensorDataset"
    assert found.fingerprint == make_dataset((X, Y)).fingerprint
    half = Subset(TensorDataset(X, Y), range(30))
    assert len(make_dataset(half).train) == 24


def test_test_data_may_be_a_data_set_as_well() -> None:
    test = TensorDataset(X[:9], Y[:9])
    found = make_dataset(TensorDataset(X, Y), test=test, standardize=False)
    np.testing.assert_array_equal(found.test.inputs, X[:9])


def test_images_of_torchvision_become_bytes_with_channels_first() -> None:
    source = FakeData(20, (3, 7, 6), 2)
    found = make_dataset(source, test=source)
    assert found.train.inputs.dtype == np.uint8
    for row in range(20):
        pixels, label = source[row]
        expected = np.asarray(pixels).transpose(2, 0, 1)
        np.testing.assert_array_equal(found.train.inputs[row], expected)
        assert found.train.targets[row] == label


def test_transforms_count() -> None:
    both = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.5, 0.5)])
    source = FakeData(20, (3, 7, 6), 2, transform=both)
    found = make_dataset(source, test=source)
    assert found.train.inputs.dtype == np.float32
    np.testing.assert_array_equal(found.train.inputs[5], source[5][0])
    assert found.train.inputs.min() < 0


def test_numbers_and_several_numbers_can_be_predicted() -> None:
    for targets, outputs in ((X[:, 0], 1), (X[:, :3], 3)):
        found = make_dataset(TensorDataset(X, targets))
        assert found.num_classes is None
        assert found.num_outputs == outputs


@pytest.mark.parametrize("gray_first", [True, False])
def test_gray_images_among_colored_ones_become_colored(gray_first: bool) -> None:
    pictures = [image(5, 4, "L"), image(5, 4)] * 5
    if not gray_first:
        pictures.reverse()
    source = Samples([(picture, row % 2) for row, picture in enumerate(pictures)])
    found = make_dataset(source, test=source)
    assert found.input_shape == (3, 5, 4)
    for row, picture in enumerate(pictures):
        expected = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
        np.testing.assert_array_equal(found.train.inputs[row], expected)


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        (
            [(image(5, 4), 0), (image(6, 4), 1)],
            r"sample 1 .*\(3, 6, 4\) and sample 0 \(3, 5, 4\): image_size=\(H, W\)",
        ),
        (
            [(torch.zeros(3), 0), (torch.zeros(4), 1)],
            r"sample 1 has the shape \(4,\) and sample 0 \(3,\): give all the same",
        ),
        ([(torch.zeros(3), 0, 1)], "sample 0 of Samples is a tuple, expected a pair"),
        ([{"x": 1}], "sample 0 of Samples is a dict, expected a pair"),
        ([(torch.zeros(3), "dog")] * 4, r"got 'dog': np.unique\(y"),
        ([(torch.zeros(3), [0]), (torch.zeros(3), [0, 1])], "targets .* different"),
        ([(object(), 0)], "the input of sample 0 is an array of objects"),
        ([(torch.tensor([0.0, torch.nan]), 0)] * 4, "X .*got nan in row 0"),
        ([(Image.new("F", (4, 5)), 0)], "image of sample 0 has more than 8 bits"),
        ([], "X is empty"),
    ],
)
def test_samples_that_do_not_fit_are_named(samples: list[Any], told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        make_dataset(Samples(samples), test=Samples(samples))
    assert "\n" not in str(caught.value)


def test_images_of_different_sizes_can_be_resized() -> None:
    source = Samples([(image(5 + row, 4), row % 2) for row in range(10)])
    env = make_stream(source, image_size=(8, 6), batch_size=4)
    assert env.reset(seed=0)[0].shape == (4, 3, 8, 6)


def test_a_data_set_that_can_be_called_is_not() -> None:
    class Callable(Samples):
        def __call__(self) -> None:
            raise AssertionError

    env = make_stream(Callable([(x, int(y)) for x, y in zip(X, Y, strict=True)]))
    assert env.dataset.num_classes == 3
