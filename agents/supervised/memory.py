"""From the settings of a run to its memory: :func:`make_memory`."""

from __future__ import annotations

import torch

from agents.policy_options import policy_options
from agents.supervised.checks import NO_REPLAY
from agents.supervised.config import ExperimentConfig
from agents.supervised.gradients import LossGradients
from agents.supervised.networks import FeatureNetwork
from agents.supervised.samplers import SubsetSampler
from info_replay import SelectiveReplayBuffer, make_replay_buffer

__all__ = ["WRITER_OPTIONS", "make_memory"]

#: What writers call the settings that are options of theirs.
WRITER_OPTIONS = {
    "gamma": "gamma",
    "gamma_learnability": "gamma_learnability",
    "noise": "noise",
    "jitter": "jitter",
    "decay": "decay",
    "coreset_parts": "parts",
    "gss_group_size": "group_size",
    "gss_groups": "groups",
}


def make_memory(
    config: ExperimentConfig, num_classes: int | None, network: FeatureNetwork
) -> SelectiveReplayBuffer | None:
    """The memory of a run.

    Every policy is given all options; those that it has no use for are ignored.

    Args:
        config: the settings.
        num_classes: of the stream, ``None`` for regression.
        network: that learns; ``"gss"`` looks at its gradients.

    Returns:
        The memory, ``None`` for no replay.

    Raises:
        ValueError: if the policy is not one that can be made from these options.
    """
    delay = config.update_delay
    if config.policy == NO_REPLAY:
        if delay is not None:
            raise ValueError(
                f"update_delay is of TaskTimingWriter, not of policy {NO_REPLAY!r}, "
                f"got {delay}"
            )
        return None
    device = config.torch_device
    try:
        return make_replay_buffer(
            config.policy,
            config.capacity,
            sampler=SubsetSampler(),
            # An augmented image has another feature each time.
            fixed_features=network.fixed_features and not config.augmented,
            device=device,
            generator=torch.Generator(device=device).manual_seed(config.seed),
            num_classes=num_classes,
            gradients=LossGradients(network, num_classes),
            **policy_options(config, WRITER_OPTIONS),
            # Only an oracle has it: any other policy refuses it by name.
            **({} if delay is None else {"delay": delay}),
        )
    except TypeError as error:  # not a policy, or one that needs other options
        raise ValueError(str(error)) from error
