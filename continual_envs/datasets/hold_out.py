"""Test data for those who have none: a share of the samples, held out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from continual_envs.datasets.base import Part

__all__ = ["hold_out"]


def hold_out(part: Part, labels: bool, share: float, seed: int) -> tuple[Part, Part]:
    """Split samples into a training and a test part.

    Of each of ``n`` samples of a class ``round(share * n)`` are held out; where targets
    are numbers, of each given task, else of all samples.

    Args:
        part: all samples.
        labels: whether the targets are labels.
        share: how much to hold out.
        seed: of the choice.

    Returns:
        The training and the test part, each in the order of the samples.

    Raises:
        ValueError: if there are too few samples of a class.

    Example:
        >>> everything = Part(np.zeros((10, 2)), np.repeat([0, 1], 5))
        >>> train, test = hold_out(everything, True, share=0.2, seed=0)
        >>> train.targets.tolist(), test.targets.tolist()
        ([0, 0, 0, 0, 1, 1, 1, 1], [0, 1])
    """
    random = np.random.Generator(np.random.PCG64(seed))
    held_out = np.zeros(len(part), dtype=bool)
    groups = part.targets if labels else part.task_ids
    if groups is None:
        groups = np.zeros(len(part), dtype=np.int64)
    for group in np.unique(groups):
        samples = np.flatnonzero(groups == group)
        count = round(share * len(samples))
        if not 0 < count < len(samples):
            whose = f"class {group}" if labels else "the data"
            raise ValueError(
                f"{whose} has {len(samples)} samples, too few to hold a share of "
                f"{share} out. Give test data as test=, another test_share, or more "
                "samples"
            )
        held_out[random.permutation(samples)[:count]] = True
    return _take(part, ~held_out), _take(part, held_out)


def _take(part: Part, rows: NDArray[np.bool_]) -> Part:
    ids = None if part.task_ids is None else part.task_ids[rows]
    return Part(part.inputs[rows], part.targets[rows], ids)
