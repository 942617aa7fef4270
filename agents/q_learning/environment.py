"""The environments of a run of Q-learning, as gymnasium's and as TorchRL's.

A run collects from several copies of an environment in turn, which share its frames. A
sequence of tasks (:class:`continual_envs.TaskSequenceEnv`) is shared, too: each copy
goes through all tasks with its part of their frames.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv
from torchrl.envs import GymWrapper

from agents.q_learning.config import DQNConfig
from continual_envs import CONTROL_IDS, TaskSequenceEnv

__all__ = [
    "SHORT_NAMES",
    "current_tasks",
    "environment_id",
    "make_task_envs",
    "make_torchrl_env",
    "num_frames",
    "skip_frames",
]

_DEFAULT_FRAMES = 30_000
_LONGEST_EPISODE = 30_000
#: This package's sequences of tasks by short names.
SHORT_NAMES = {name.split("/")[1].split("-")[0]: name for name in CONTROL_IDS}


def environment_id(config: DQNConfig) -> str:
    """The id of the environment at gymnasium.

    Args:
        config: the settings; those of this package may be given by their short names.

    Raises:
        ValueError: if there is no such environment, or it has lengths but is not a
            sequence of tasks.
    """
    own = ", ".join(SHORT_NAMES)
    name = SHORT_NAMES.get(config.env, config.env)
    try:
        module, colon, plain = name.rpartition(":")
        if colon:
            importlib.import_module(module)  # registers its environments
        gymnasium.spec(plain)
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        raise ValueError(
            f"env must be one of {own} or an id of gymnasium, got {config.env!r}: "
            f"{error}"
        ) from error
    if plain in CONTROL_IDS:
        return plain
    if config.lengths is not None:
        raise ValueError(
            f"lengths are those of a sequence of tasks ({own}): env {config.env!r} is "
            "not one"
        )
    return name


def _single(config: DQNConfig, copies: int = 1) -> dict[str, Any]:
    """Options of one of several copies that share the frames."""
    if environment_id(config) not in CONTROL_IDS:
        return {}
    lengths = config.task_lengths or TaskSequenceEnv().lengths
    return {"lengths": tuple(length // copies for length in lengths)}


def num_frames(config: DQNConfig) -> int:
    """Frames of a run."""
    if config.frames is not None:
        return config.frames
    return sum(_single(config).get("lengths", (_DEFAULT_FRAMES,)))


def make_torchrl_env(config: DQNConfig, copies: int | None = None) -> GymWrapper:
    """Copies of the environment, stepped together.

    Args:
        config: the settings.
        copies: that share the frames of the run, by default as many as there are envs;
            more if there are several collectors.

    Returns:
        A TorchRL environment with ``batch_size=[num_envs]`` and categorical actions.

    Raises:
        ValueError: if it cannot be made, or Q-learning cannot act in it.
    """
    name = environment_id(config)
    try:
        envs = gymnasium.make_vec(
            name,
            num_envs=config.num_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.DISABLED},
            **_single(config, copies or config.num_envs),
        )
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        raise ValueError(f"env {config.env!r} cannot be made: {error}") from error
    _check_spaces(config, envs)
    return GymWrapper(
        envs, categorical_action_encoding=True, device=config.torch_device
    )


def _check_spaces(config: DQNConfig, envs: VectorEnv) -> None:
    observation, action = envs.single_observation_space, envs.single_action_space
    if not isinstance(action, gymnasium.spaces.Discrete) or action.start != 0:
        raise ValueError(
            f"Q-learning needs discrete actions 0, 1, ...; {config.env!r} has {action}"
        )
    if not isinstance(observation, gymnasium.spaces.Box) or len(
        observation.shape
    ) not in (1, 3):
        raise ValueError(
            "Q-learning needs vectors or images with channels to look at; "
            f"{config.env!r} has {observation}"
        )


def make_task_envs(config: DQNConfig) -> list[list[gymnasium.Env[Any, Any]]]:
    """Environments to evaluate in: for every task as many as there are episodes."""
    name = environment_id(config)
    if name not in CONTROL_IDS:
        return [[_limited(gymnasium.make(name)) for _ in range(config.episodes)]]
    sequence = gymnasium.make(name, **_single(config)).unwrapped
    assert isinstance(sequence, TaskSequenceEnv)
    return [
        [sequence.make_task(task) for _ in range(config.episodes)]
        for task in range(len(sequence.lengths))
    ]


def _limited(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """An environment whose episodes end, so that an evaluation does."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return env
    return gymnasium.wrappers.TimeLimit(env, _LONGEST_EPISODE)


def _sequences(env: GymWrapper) -> list[gymnasium.Env[Any, Any]]:
    """The copies in a TorchRL environment, if they are sequences of tasks."""
    copies: list[gymnasium.Env[Any, Any]] = env.envs
    return [copy for copy in copies if isinstance(copy.unwrapped, TaskSequenceEnv)]


def current_tasks(env: GymWrapper) -> list[int]:
    """The task that each copy of a sequence is in; nothing for a single task."""
    return [copy.unwrapped.task for copy in _sequences(env)]  # type: ignore[attr-defined]


def skip_frames(env: GymWrapper, frames: int) -> None:
    """Bring sequences of tasks to where others are; a single task needs no such thing.

    Args:
        env: of :func:`make_torchrl_env`, seeded and to be reset afterwards.
        frames: to be played by each copy, whatever they look like.
    """
    for copy in _sequences(env):
        for _ in range(frames):
            _, _, terminated, truncated, _ = copy.step(0)
            if terminated or truncated:
                copy.reset()
