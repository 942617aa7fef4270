"""How a data set becomes a sequence of tasks, the same for every seed.

:func:`cut_tasks` is the door to

* :func:`split_by_label`: each task has some of the classes;
* :func:`split_by_column`: each task has a range of one input;
* :func:`split_by_given`: each task has the samples of one task id;
* :func:`permute_pixels`: each task has all samples, their pixels shuffled its own way;
* :func:`whole`: one task with everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.checks import is_whole
from continual_envs.datasets import Dataset
from continual_envs.options import StreamOptions

__all__ = [
    "Task",
    "cut_tasks",
    "permute_pixels",
    "split_by_column",
    "split_by_given",
    "split_by_label",
    "whole",
]

# The permutations are part of the benchmark: they never change.
_PERMUTATION_SEED = 2022

_DEFAULT_TASKS = 5  # where neither the user nor the classes tell


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
        flat = inputs.reshape(len(inputs), len(self.permutation))
        return flat.take(self.permutation, axis=1).reshape(inputs.shape)


def cut_tasks(dataset: Dataset, cut: str, options: StreamOptions) -> list[Task]:
    """The tasks of a stream.

    Args:
        dataset: any.
        cut: how to cut it, one of :data:`~continual_envs.options.CUTS`.
        options: the user's choices; those of other cuts are not looked at.

    Returns:
        The tasks, each with training and test samples.

    Raises:
        ValueError: if the data set cannot be cut like that.
    """
    if cut == "label":
        tasks = split_by_label(
            dataset, options.tasks, options.class_order, options.class_sizes
        )
    elif cut == "column":
        column = 0 if options.column is None else options.column
        tasks = split_by_column(dataset, options.tasks or _DEFAULT_TASKS, column)
    elif cut == "given":
        tasks = split_by_given(dataset)
    elif cut == "permuted":
        tasks = permute_pixels(dataset, options.tasks or _DEFAULT_TASKS)
    else:
        tasks = whole(dataset)
    for number, task in enumerate(tasks):
        for samples, part in ((task.train, "training"), (task.test, "test")):
            if not len(samples):
                raise ValueError(
                    f"task {number} of {dataset.name}, cut by {cut!r}, has no {part} "
                    "sample: make fewer tasks, or give more test data as test="
                )
    return tasks


def split_by_label(
    dataset: Dataset,
    num_tasks: int | None = None,
    class_order: Sequence[int] | None = None,
    class_sizes: Sequence[int] | None = None,
) -> list[Task]:
    """Tasks of some classes each.

    Args:
        dataset: one with classes.
        num_tasks: how many; by default one per class.
        class_order: all classes in the order in which they come, by default that of
            their labels.
        class_sizes: how many classes each task has, by default equally many.

    Returns:
        The tasks.

    Example:
        >>> from continual_envs.datasets import load_dataset
        >>> digits = load_dataset("Digits")
        >>> def classes(tasks):
        ...     labels = [digits.train.targets[task.train] for task in tasks]
        ...     return [np.unique(some).tolist() for some in labels]
        >>> classes(split_by_label(digits, 5))
        [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
        >>> classes(split_by_label(digits, None, range(9, -1, -1), [1, 3, 6]))
        [[9], [6, 7, 8], [0, 1, 2, 3, 4, 5]]
    """
    count = dataset.num_classes
    if count is None:
        raise ValueError(
            f"{dataset.name} cannot be cut by label: its targets are numbers. Choose "
            "cut='column', 'given', 'permuted' or 'none'"
        )
    order = list(range(count)) if class_order is None else list(class_order)
    if sorted(order) != list(range(count)):
        raise ValueError(
            f"class_order must have each class from 0 to {count - 1} once, got {order}"
        )
    if class_sizes is None:
        parts = count if num_tasks is None else num_tasks
        if count % parts:
            raise ValueError(
                f"the {count} classes of {dataset.name} cannot be split into {parts} "
                "equal tasks: give class_sizes, how many classes each task has"
            )
        sizes = [count // parts] * parts
    else:
        sizes = list(class_sizes)
        if sum(sizes) != count or num_tasks not in (None, len(sizes)):
            tasks = "" if num_tasks is None else f" for {num_tasks} tasks"
            raise ValueError(
                f"class_sizes must add up to the {count} classes of {dataset.name}"
                f"{tasks}, got {sizes}"
            )
    task_of_class = np.empty(count, dtype=np.int64)
    task_of_class[order] = np.repeat(np.arange(len(sizes)), sizes)
    return _grouped(
        task_of_class[dataset.train.targets],
        task_of_class[dataset.test.targets],
        len(sizes),
    )


def split_by_column(dataset: Dataset, num_tasks: int, column: int) -> list[Task]:
    """Tasks with neighboring ranges of one input, equally many training samples each.

    Args:
        dataset: one whose inputs are vectors.
        num_tasks: how many.
        column: number of the input.

    Returns:
        The tasks, from the lowest range to the highest.
    """
    shape = dataset.input_shape
    if len(shape) != 1:
        raise ValueError(
            f"cut='column' needs inputs that are vectors, those of {dataset.name} have "
            f"the shape {shape}"
        )
    if not is_whole(column) or not -shape[0] <= column < shape[0]:
        raise ValueError(
            f"column must be a whole number from 0 to {shape[0] - 1}, got {column!r}"
        )
    train = dataset.train.inputs[:, column]
    test = dataset.test.inputs[:, column]
    cuts = np.quantile(train, np.arange(1, num_tasks) / num_tasks)
    ranges = np.searchsorted(cuts, train, side="right")
    if len(np.unique(ranges)) < num_tasks:
        raise ValueError(
            f"column {column} of {dataset.name} has {len(np.unique(train))} different "
            f"values, which cannot be cut into {num_tasks} ranges: make fewer tasks"
        )
    return _grouped(ranges, np.searchsorted(cuts, test, side="right"), num_tasks)


def split_by_given(dataset: Dataset) -> list[Task]:
    """Tasks by the ids that came with the data, in their order.

    Args:
        dataset: one with task ids in both of its parts.

    Returns:
        The tasks.
    """
    train, test = dataset.train.task_ids, dataset.test.task_ids
    if train is None:
        raise ValueError(
            f"cut='given' needs task_ids, a whole number for each of the "
            f"{len(dataset.train)} samples of {dataset.name}"
        )
    if test is None:
        raise ValueError(
            "cut='given' needs test_task_ids, a whole number for each of the "
            f"{len(dataset.test)} test samples of {dataset.name}"
        )
    ids, numbers = np.unique(train, return_inverse=True)
    unknown = np.setdiff1d(test, ids)
    if len(unknown):
        raise ValueError(
            f"task {unknown[0]} appears only in the test set: add training samples of "
            "it or drop its test samples"
        )
    return _grouped(numbers, np.searchsorted(ids, test), len(ids))


def permute_pixels(dataset: Dataset, num_tasks: int) -> list[Task]:
    """Tasks with all samples, each with a random permutation of the pixels.

    Args:
        dataset: any.
        num_tasks: how many.

    Returns:
        The tasks.
    """
    (everything,) = whole(dataset)
    generator = np.random.Generator(np.random.PCG64(_PERMUTATION_SEED))
    pixels = int(np.prod(dataset.input_shape))
    return [
        Task(everything.train, everything.test, generator.permutation(pixels))
        for _ in range(num_tasks)
    ]


def whole(dataset: Dataset) -> list[Task]:
    """One task with all samples.

    Args:
        dataset: any.

    Returns:
        A list of one task.
    """
    return [Task(np.arange(len(dataset.train)), np.arange(len(dataset.test)))]


def _grouped(
    train: NDArray[np.int64], test: NDArray[np.int64], num_tasks: int
) -> list[Task]:
    """Tasks from the number of the task of each sample."""
    return [
        Task(np.flatnonzero(train == number), np.flatnonzero(test == number))
        for number in range(num_tasks)
    ]
