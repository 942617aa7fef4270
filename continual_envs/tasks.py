"""How a data set becomes a sequence of tasks, the same for every seed.

* :func:`split_by_label`: each task has some of the classes;
* :func:`permute_pixels`: each task has all samples, their pixels shuffled its own way;
* :func:`split_by_input`: each task has a range of one input, for regression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.datasets import Dataset

__all__ = ["Task", "permute_pixels", "split_by_input", "split_by_label"]

# The permutations are part of the benchmark: they never change.
_PERMUTATION_SEED = 2022


@dataclass(frozen=True)
class Task:
    """Some samples of a data set, as a learner sees them in one task.

    Args:
        train: numbers of the training samples.
        test: numbers of the test samples.
        permutation: where each pixel comes from, ``None`` if all stay in place.
    """

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    permutation: NDArray[np.int64] | None = None

    def show(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Inputs of samples as this task shows them.

        Args:
            inputs: shape ``(n, ...)``.

        Returns:
            The same shape; the inputs themselves where nothing is permuted.
        """
        if self.permutation is None:
            return inputs
        flat = inputs.reshape(len(inputs), -1)
        return flat.take(self.permutation, axis=1).reshape(inputs.shape)


def split_by_label(dataset: Dataset, num_tasks: int) -> list[Task]:
    """Tasks of equally many classes, in the order of the labels.

    Args:
        dataset: one with classes.
        num_tasks: a divisor of their number.

    Returns:
        The tasks.

    Example:
        >>> from continual_envs.datasets import load_dataset
        >>> digits = load_dataset("Digits")
        >>> tasks = split_by_label(digits, 5)
        >>> [sorted(set(digits.train.targets[task.train].tolist())) for task in tasks]
        [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    """
    if dataset.num_classes is None or dataset.num_classes % num_tasks:
        raise ValueError(
            f"the {dataset.num_classes} classes of {dataset.name} cannot be split into "
            f"{num_tasks} equal tasks"
        )
    size = dataset.num_classes // num_tasks
    return [
        Task(
            np.flatnonzero(dataset.train.targets // size == number),
            np.flatnonzero(dataset.test.targets // size == number),
        )
        for number in range(num_tasks)
    ]


def permute_pixels(dataset: Dataset, num_tasks: int) -> list[Task]:
    """Tasks with all samples, each with a random permutation of the pixels.

    Args:
        dataset: any.
        num_tasks: how many.

    Returns:
        The tasks.
    """
    train = np.arange(len(dataset.train))
    test = np.arange(len(dataset.test))
    generator = np.random.Generator(np.random.PCG64(_PERMUTATION_SEED))
    pixels = int(np.prod(dataset.input_shape))
    return [Task(train, test, generator.permutation(pixels)) for _ in range(num_tasks)]


def split_by_input(dataset: Dataset, num_tasks: int, column: int) -> list[Task]:
    """Tasks with neighbouring ranges of one input, equally many training samples each.

    Args:
        dataset: one whose inputs are vectors.
        num_tasks: how many.
        column: number of the input.

    Returns:
        The tasks, from the lowest range to the highest.
    """
    train = dataset.train.inputs[:, column]
    test = dataset.test.inputs[:, column]
    cuts = np.quantile(train, np.arange(1, num_tasks) / num_tasks)
    train_range = np.searchsorted(cuts, train, side="right")
    test_range = np.searchsorted(cuts, test, side="right")
    return [
        Task(
            np.flatnonzero(train_range == number), np.flatnonzero(test_range == number)
        )
        for number in range(num_tasks)
    ]
