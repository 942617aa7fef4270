"""Shapes of streams that change which samples come, and with which label.

* :func:`subset`: no more than so many samples of each class;
* :func:`long_tail`: classes of exponentially different sizes;
* :func:`noisy_labels`: some samples of each class have a wrong label.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.randomness import Purpose, generator

__all__ = ["long_tail", "noisy_labels", "subset"]


def subset(
    labels: NDArray[Any], samples: NDArray[np.int64], count: int, seed: int
) -> NDArray[np.int64]:
    """At most ``count`` samples of each class.

    Args:
        labels: of the whole data set.
        samples: numbers of those to choose from.
        count: how many to keep.
        seed: of the samples.

    Returns:
        The numbers of the samples that are kept, in ascending order.

    Example:
        >>> labels = np.repeat([0, 1, 2], [5, 20, 40])
        >>> np.bincount(labels[subset(labels, np.arange(65), 10, seed=0)]).tolist()
        [5, 10, 10]
    """
    shuffled = generator(seed, Purpose.SUBSET).permutation(samples)
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    _, starts = np.unique(labels[by_class], return_index=True)
    parts = np.split(by_class, starts[1:])
    return np.sort(np.concatenate([part[:count] for part in parts]))


def long_tail(
    labels: NDArray[Any],
    samples: NDArray[np.int64],
    num_classes: int,
    ratio: float,
    seed: int,
) -> NDArray[np.int64]:
    """Samples of which the classes have exponentially different sizes.

    The class of rank ``k`` of ``K`` keeps ``ratio ** (-k / (K - 1))`` of its samples,
    rounded, at least one. Ranks are drawn from the seed, so that over many seeds every
    class is rare at times.

    Args:
        labels: of the whole data set.
        samples: numbers of those to choose from.
        num_classes: number of classes.
        ratio: of the shares that the first and the last class keep.
        seed: of the ranks and of the samples.

    Returns:
        The numbers of the samples that are kept, in ascending order.

    Example:
        >>> labels = np.repeat([0, 1, 2], 100)
        >>> kept = long_tail(labels, np.arange(300), 3, ratio=100, seed=0)
        >>> sorted(np.bincount(labels[kept]).tolist())
        [1, 10, 100]
    """
    random = generator(seed, Purpose.LONG_TAIL)
    ranks = random.permutation(num_classes)
    last = max(num_classes - 1, 1)
    kept = []
    for label, rank in enumerate(ranks.tolist()):
        mine = samples[labels[samples] == label]
        count = round(len(mine) * ratio ** (-rank / last))
        kept.append(random.permutation(mine)[: max(1, count)])
    return np.sort(np.concatenate(kept))


def noisy_labels(
    labels: NDArray[np.int64],
    samples: NDArray[np.int64],
    num_classes: int,
    share: float,
    seed: int,
) -> NDArray[np.int64]:
    """Labels of which a share is wrong.

    Of each class, ``round(share * n)`` of its ``n`` samples get another label, each of
    the others with the same probability.

    Args:
        labels: of the whole data set.
        samples: numbers of those that may change.
        num_classes: number of classes.
        share: of the samples of each class that changes.
        seed: of the samples and of their labels.

    Returns:
        The labels of the whole data set, a copy.

    Example:
        >>> labels = np.repeat([0, 1, 2], 10)
        >>> noisy = noisy_labels(labels, np.arange(30), 3, share=0.2, seed=0)
        >>> np.bincount(labels[noisy != labels]).tolist()
        [2, 2, 2]
    """
    random = generator(seed, Purpose.LABEL_NOISE)
    noisy = labels.copy()
    for label in range(num_classes):
        mine = samples[labels[samples] == label]
        wrong = random.permutation(mine)[: round(share * len(mine))]
        step = random.integers(1, num_classes, len(wrong)) if len(wrong) else 0
        noisy[wrong] = (label + step) % num_classes
    return noisy
