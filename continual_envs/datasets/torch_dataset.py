"""Any map-style data set of PyTorch, torchvision's for example."""

from __future__ import annotations

from typing import Any

import numpy as np

from continual_envs.datasets.arrays import Arrays, RawData, to_array
from continual_envs.datasets.images import ImageSize, Rows

__all__ = ["is_torch_dataset", "read_torch_dataset"]


def is_torch_dataset(data: Any) -> bool:
    """Whether a value is a data set of PyTorch that has a length."""
    # By name: whoever has one has imported torch already.
    names = [
        base.__name__
        for base in type(data).__mro__
        if base.__module__.startswith("torch.utils.data")
    ]
    return "Dataset" in names and "IterableDataset" not in names


def read_torch_dataset(data: Any, image_size: ImageSize) -> RawData:
    """Read all samples once, through the data set's own transforms.

    Args:
        data: a data set of pairs: an input (a tensor, an array or an image of Pillow)
            and a target.
        image_size: height and width to resize images of Pillow to.

    Returns:
        The samples.

    Raises:
        ValueError: if a sample is no pair, or of another shape than the first.
    """
    name = type(data).__name__
    count = len(data)
    inputs, targets = Rows(count, image_size), []
    for row in range(count):
        sample = data[row]
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise ValueError(
                f"sample {row} of {name} is a {type(sample).__name__}, expected a pair "
                "(input, target): wrap the data set in one that returns pairs"
            )
        inputs.put(row, sample[0])
        targets.append(to_array(sample[1], f"the target of sample {row}"))
    shapes = sorted({target.shape for target in targets})
    if len(shapes) > 1:
        raise ValueError(
            f"the targets of {name} have different shapes, {shapes[0]} and {shapes[1]}:"
            " give all the same shape"
        )
    return RawData(name, Arrays(inputs.array, np.stack(targets) if targets else []))
