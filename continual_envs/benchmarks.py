"""The benchmarks by name: which data set, cut into which tasks.

:data:`BENCHMARKS` is the whole table; the registered ids are ``continual_envs/`` + name
+ ``-v0``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from continual_envs.datasets import Dataset
from continual_envs.tasks import Task, permute_pixels, split_by_input, split_by_label

__all__ = ["BENCHMARKS", "Benchmark"]


@dataclass(frozen=True)
class Benchmark:
    """A data set and how it is cut into tasks.

    Args:
        dataset: name of the data set.
        make_tasks: cuts it; a drifting stream has one task with all samples.
        drifts: whether class frequencies drift instead of changing at boundaries.
    """

    dataset: str
    make_tasks: Callable[[Dataset], list[Task]]
    drifts: bool = False


def _everything(dataset: Dataset) -> list[Task]:
    return [Task(np.arange(len(dataset.train)), np.arange(len(dataset.test)))]


_AGE = 0  # scikit-learn's first column of the diabetes data

BENCHMARKS = {
    "SplitMNIST": Benchmark("MNIST", partial(split_by_label, num_tasks=5)),
    "PermutedMNIST": Benchmark("MNIST", partial(permute_pixels, num_tasks=20)),
    "SplitCIFAR10": Benchmark("CIFAR10", partial(split_by_label, num_tasks=5)),
    "SplitMiniImageNet": Benchmark(
        "MiniImageNet", partial(split_by_label, num_tasks=10)
    ),
    "SplitDigits": Benchmark("Digits", partial(split_by_label, num_tasks=5)),
    "PermutedDigits": Benchmark("Digits", partial(permute_pixels, num_tasks=20)),
    "DriftMNIST": Benchmark("MNIST", _everything, drifts=True),
    "DriftCIFAR10": Benchmark("CIFAR10", _everything, drifts=True),
    "DriftDigits": Benchmark("Digits", _everything, drifts=True),
    "SplitDiabetes": Benchmark(
        "Diabetes", partial(split_by_input, num_tasks=5, column=_AGE)
    ),
}
