"""The registered ids, and the function behind those of streams: :func:`make_stream`."""

from __future__ import annotations

from typing import Any

import gymnasium

from continual_envs.benchmarks import BENCHMARKS
from continual_envs.classification import ClassificationStreamEnv
from continual_envs.control import MAX_EPISODE_STEPS
from continual_envs.environment import StreamEnv
from continual_envs.options import StreamOptions
from continual_envs.regression import RegressionStreamEnv

__all__ = ["CONTROL_IDS", "IDS", "make_stream", "register_all"]

#: Every registered id of a stream.
IDS = [f"continual_envs/{name}-v0" for name in BENCHMARKS]

_CONTROL_VARIANTS = {
    "continual_envs/ContinualCartPole-v0": "permuted",
    "continual_envs/ContinualCartPolePhysics-v0": "physics",
}

#: Every registered id of a sequence of control tasks.
CONTROL_IDS = list(_CONTROL_VARIANTS)


def make_stream(
    benchmark: str, *, render_mode: str | None = None, **options: Any
) -> StreamEnv:
    """A stream without gymnasium's wrappers.

    Args:
        benchmark: name of the benchmark, for example ``"SplitMNIST"``.
        render_mode: ``"rgb_array"`` for pictures.
        **options: see :class:`~continual_envs.options.StreamOptions`.

    Returns:
        The environment.

    Raises:
        ValueError: if there is no such benchmark or an option has a wrong value.
        TypeError: if there is no such option.
        DatasetError: if the data set is missing or damaged.

    Example:
        >>> env = make_stream("SplitDigits", batch_size=128, imbalance=10)
        >>> observation, info = env.reset(seed=3)
        >>> env.imbalanced_task, env.num_steps, env.boundaries
        (3, 33, [3, 5, 8, 31, 33])
    """
    if benchmark not in BENCHMARKS:
        raise ValueError(
            f"unknown benchmark {benchmark!r}, expected one of {list(BENCHMARKS)}"
        )
    entry = BENCHMARKS[benchmark]
    chosen = StreamOptions.of(benchmark, entry.drifts, options)
    kind = (
        RegressionStreamEnv if entry.dataset == "Diabetes" else ClassificationStreamEnv
    )
    return kind(benchmark, entry, chosen, render_mode)


def register_all() -> None:
    """Tell gymnasium of every benchmark, once."""
    for name, environment_id in zip(BENCHMARKS, IDS, strict=True):
        if environment_id not in gymnasium.registry:
            gymnasium.register(
                environment_id,
                entry_point="continual_envs.registration:make_stream",
                kwargs={"benchmark": name},
            )
    for environment_id, variants in _CONTROL_VARIANTS.items():
        if environment_id not in gymnasium.registry:
            gymnasium.register(
                environment_id,
                entry_point="continual_envs.control:TaskSequenceEnv",
                kwargs={"variants": variants},
                max_episode_steps=MAX_EPISODE_STEPS,
            )
