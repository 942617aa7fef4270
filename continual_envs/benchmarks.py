"""The benchmarks by name: a data set and options of its stream.

:data:`BENCHMARKS` is the whole table; the registered ids are ``continual_envs/`` + name
+ ``-v0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

__all__ = ["BENCHMARKS", "Benchmark"]


@dataclass(frozen=True)
class Benchmark:
    """A data set and how its stream is made.

    Args:
        dataset: name of the data set.
        options: of :func:`~continual_envs.make_stream`, which a user may override.
    """

    dataset: str
    options: Mapping[str, Any]


def _benchmark(dataset: str, **options: Any) -> Benchmark:
    return Benchmark(dataset, MappingProxyType(options))


_AGE = 0  # scikit-learn's first column of the diabetes data

BENCHMARKS = {
    "SplitMNIST": _benchmark("MNIST", cut="label", tasks=5),
    "PermutedMNIST": _benchmark("MNIST", cut="permuted", tasks=20),
    "SplitCIFAR10": _benchmark("CIFAR10", cut="label", tasks=5),
    "SplitMiniImageNet": _benchmark("MiniImageNet", cut="label", tasks=10),
    "SplitDigits": _benchmark("Digits", cut="label", tasks=5),
    "PermutedDigits": _benchmark("Digits", cut="permuted", tasks=20),
    "DriftMNIST": _benchmark("MNIST", cut="drift"),
    "DriftCIFAR10": _benchmark("CIFAR10", cut="drift"),
    "DriftDigits": _benchmark("Digits", cut="drift"),
    "SplitDiabetes": _benchmark("Diabetes", cut="column", tasks=5, column=_AGE),
}
