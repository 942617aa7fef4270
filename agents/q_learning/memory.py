"""The replay buffer of a run of Q-learning: :func:`make_memory`."""

from __future__ import annotations

from typing import Any

import torch
from torchrl.data import (
    LazyTensorStorage,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
)
from torchrl.objectives import DQNLoss

from agents.policy_options import policy_options
from agents.q_learning.config import DQNConfig
from agents.q_learning.features import TransitionFeatures
from info_replay import make_replay_buffer

__all__ = ["choose_target", "make_memory", "memory_options"]

# What writers call the settings: the same.
_NAMES = {name: name for name in ("gamma", "noise", "jitter", "decay")}

# Beyond this many numbers, their changes are too many to explain at every frame.
_LARGEST_OBSERVATION = 64


def choose_target(config: DQNConfig, observation_shape: torch.Size) -> str:
    """What the memory is to explain, by the size of the observation if not given."""
    if config.target != "auto":
        return config.target
    return "dyn" if observation_shape.numel() <= _LARGEST_OBSERVATION else "td"


def memory_options(config: DQNConfig) -> dict[str, Any]:
    """Options of :func:`make_replay_buffer`; policies ignore those of others."""
    return {
        "recent": config.recent or None,
        **policy_options(config, _NAMES),
    }


def make_memory(
    config: DQNConfig, loss: DQNLoss, observation_shape: torch.Size
) -> TensorDictReplayBuffer:
    """The replay buffer of a run.

    Args:
        config: the settings.
        loss: whose network gives the features.
        observation_shape: of one environment.

    Returns:
        TorchRL's own buffer for ``"fifo"`` and ``"prioritized"``, ours for the others.

    Raises:
        ValueError: if the policy is not one that can be made from these options.
    """
    device = config.torch_device
    generator = torch.Generator(device=device).manual_seed(config.seed)
    if config.policy == "fifo":
        return TensorDictReplayBuffer(
            storage=LazyTensorStorage(config.capacity, device=device),
            generator=generator,
        )
    if config.policy == "prioritized":
        return TensorDictPrioritizedReplayBuffer(
            alpha=0.6,
            beta=0.4,
            storage=LazyTensorStorage(config.capacity, device=device),
            generator=generator,
        )
    options = memory_options(config)
    if config.keeps_features:
        target = choose_target(config, observation_shape)
        options["transform"] = TransitionFeatures(loss, target)
    try:
        return make_replay_buffer(
            config.policy,
            config.capacity,
            device=device,
            generator=generator,
            **options,
        )
    except TypeError as error:  # not a policy, or one that needs other options
        raise ValueError(str(error)) from error
