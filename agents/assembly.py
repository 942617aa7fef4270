"""From the settings of a run to its memory and its learner."""

from __future__ import annotations

from typing import Any

import torch

from agents.config import ExperimentConfig
from agents.derpp import DERPlusPlusAgent
from agents.gradients import LossGradients
from agents.networks import FeatureNetwork, make_network
from agents.samplers import SubsetSampler
from continual_envs import StreamEnv
from info_replay import MIC, SelectiveReplayBuffer, make_replay_buffer

__all__ = ["make_agent", "make_memory"]


def make_memory(
    config: ExperimentConfig, num_classes: int | None, network: FeatureNetwork
) -> SelectiveReplayBuffer | None:
    """The memory of a run.

    Args:
        config: the settings.
        num_classes: of the stream, ``None`` for regression.
        network: that learns; ``"gss"`` looks at its gradients.

    Returns:
        The memory, ``None`` if there is no replay.
    """
    if config.policy == "none":
        return None
    options: dict[str, Any] = {}
    if config.policy == "cbrs":
        options = {"num_classes": num_classes}
    if config.policy == "coreset":
        options = {"num_classes": num_classes, "parts": config.coreset_parts}
    if config.policy == "gss":
        options = {"group_size": config.gss_group_size, "groups": config.gss_groups}
        options["gradients"] = LossGradients(network, num_classes)
    if config.policy.startswith("info"):
        options = {
            "criterion": MIC(config.eta),
            "gamma": config.gamma,
            "noise": config.noise,
            "jitter": config.jitter,
            "decay": config.decay,
            "num_classes": num_classes,
        }
    if config.policy.startswith("infogs"):
        options["gamma_learnability"] = config.gamma_learnability
    device = config.torch_device
    return make_replay_buffer(
        config.policy,
        config.capacity,
        sampler=SubsetSampler(),
        device=device,
        generator=torch.Generator(device=device).manual_seed(config.seed),
        **options,
    )


def make_agent(config: ExperimentConfig, env: StreamEnv) -> DERPlusPlusAgent:
    """The learner of a run.

    Args:
        config: the settings.
        env: the stream that it will learn from.

    Returns:
        The agent.
    """
    num_classes = env.dataset.num_classes
    shape = env.dataset.input_shape
    network = make_network(config.network, shape, num_classes or 1, config.seed)
    return DERPlusPlusAgent(
        network,
        make_memory(config, num_classes, network),
        num_classes=num_classes,
        learning_rate=config.learning_rate,
        alpha=config.alpha,
        beta=config.beta,
        replay_batch_size=config.replay_batch_size,
        augmented=config.augmented,
        device=config.torch_device,
        seed=config.seed,
    )
