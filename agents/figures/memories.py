"""Memories selected from fixed features: :func:`select_memory`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict

from agents.figures.feature_files import Features
from agents.figures.settings import MemorySettings
from info_replay import MIC, make_replay_buffer

__all__ = ["check_size", "method_settings", "select_memory", "stream_order"]

# The writer has no switch for its learnability threshold: this is lower than any score.
_NO_THRESHOLD = -1e9


def method_settings(method: str, settings: MemorySettings) -> dict[str, Any]:
    """The settings that the memory of a method depends on.

    Args:
        method: one of :data:`~agents.figures.settings.METHODS`.
        settings: of a figure.

    Returns:
        The policy and, of InfoGS, its settings; ``gamma_learnability`` is ``None`` if
        there is no threshold.

    Example:
        >>> method_settings("rs", MemorySettings())
        {'policy': 'rs'}
        >>> method_settings("infogs-eta0", MemorySettings())["eta"]
        0.0
    """
    if method == "rs":
        return {"policy": "rs"}
    learns = method == "infogs"
    return {
        "policy": "infogs",
        "eta": settings.eta if learns else 0.0,
        "gamma": settings.gamma,
        "gamma_learnability": settings.gamma_learnability if learns else None,
        "noise": settings.noise,
        "jitter": settings.jitter,
    }


def stream_order(
    labels: NDArray[np.int64], *, classes_per_task: int, batch_size: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    """The batches of one epoch, task after task in the order of the classes.

    Args:
        labels: of all items, from 0.
        classes_per_task: classes that come together.
        batch_size: items of a batch; the last one of a task may have fewer.
        seed: of the order within a task.

    Yields:
        Numbers of items.

    Example:
        >>> labels = np.array([3, 2, 1, 0, 0])
        >>> order = stream_order(labels, classes_per_task=2, batch_size=2, seed=0)
        >>> [sorted(batch.tolist()) for batch in order][-1]
        [0, 1]
    """
    generator = np.random.default_rng(seed)
    tasks = labels // classes_per_task
    for task in np.unique(tasks):
        items = generator.permutation(np.flatnonzero(tasks == task))
        for start in range(0, len(items), batch_size):
            yield items[start : start + batch_size]


def check_size(features: Features, size: int) -> None:
    """Refuse a memory that is larger than the stream.

    Args:
        features: of the stream.
        size: of the memory.

    Raises:
        ValueError: naming both.
    """
    if size > len(features.train):
        raise ValueError(
            f"sizes must be at most {len(features.train)}, the number of training "
            f"items, got {size}"
        )


def select_memory(
    features: Features, method: str, size: int, seed: int, settings: MemorySettings
) -> NDArray[np.int64]:
    """The numbers of the training items that a memory has after one epoch.

    Args:
        features: of the stream.
        method: one of :data:`~agents.figures.settings.METHODS`.
        size: of the memory.
        seed: of the order of items and of the policy.
        settings: of the stream and of InfoGS.

    Returns:
        The numbers in ascending order.
    """
    options = method_settings(method, settings)
    if options["policy"] != "rs":
        options["criterion"] = MIC(options.pop("eta"))
        if options["gamma_learnability"] is None:
            options["gamma_learnability"] = _NO_THRESHOLD
    buffer = make_replay_buffer(
        options.pop("policy"),
        size,
        num_classes=len(features.names),
        generator=torch.Generator().manual_seed(seed),
        batch_size=settings.batch_size,
        **options,
    )
    inputs = torch.from_numpy(features.train)
    labels = torch.from_numpy(features.train_labels)
    order = stream_order(
        features.train_labels,
        classes_per_task=settings.classes_per_task,
        batch_size=settings.batch_size,
        seed=seed,
    )
    with _one_thread():
        for batch in order:
            items = torch.from_numpy(batch)
            contents = {
                "feature": inputs[items],
                "target": labels[items],
                "item": items,
            }
            buffer.extend(TensorDict(contents, batch_size=[len(items)]))
    return np.sort(buffer[:]["item"].numpy())


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """One thread: faster for small matrices, and sums are always in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
