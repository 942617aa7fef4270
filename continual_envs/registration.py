"""The registered ids: :func:`register_all` tells gymnasium of them."""

from __future__ import annotations

import gymnasium

from continual_envs.benchmarks import BENCHMARKS
from continual_envs.control import MAX_EPISODE_STEPS

__all__ = ["CONTROL_IDS", "IDS", "STREAM_ID", "register_all"]

#: Every registered id of a benchmark.
IDS = [f"continual_envs/{name}-v0" for name in BENCHMARKS]

#: The id for data of one's own: ``gymnasium.make(STREAM_ID, data=(X, y))``.
STREAM_ID = "continual_envs/Stream-v0"

_CONTROL_VARIANTS = {
    "continual_envs/ContinualCartPole-v0": "permuted",
    "continual_envs/ContinualCartPolePhysics-v0": "physics",
}

#: Every registered id of a sequence of control tasks.
CONTROL_IDS = list(_CONTROL_VARIANTS)


def register_all() -> None:
    """Tell gymnasium of every benchmark, once."""
    streams: dict[str, dict[str, str]] = {STREAM_ID: {}}
    streams |= {
        environment_id: {"data": name}
        for name, environment_id in zip(BENCHMARKS, IDS, strict=True)
    }
    for environment_id, options in streams.items():
        if environment_id not in gymnasium.registry:
            gymnasium.register(
                environment_id,
                entry_point="continual_envs.factory:make_stream",
                kwargs=options,
            )
    for environment_id, variants in _CONTROL_VARIANTS.items():
        if environment_id not in gymnasium.registry:
            gymnasium.register(
                environment_id,
                entry_point="continual_envs.control:TaskSequenceEnv",
                kwargs={"variants": variants},
                max_episode_steps=MAX_EPISODE_STEPS,
            )
