"""Whether a saved state is that of a learner with a memory."""

from __future__ import annotations

from typing import Any

import torch

from agents.runs.randomness import OwnRandomness
from agents.runs.saved_states import (
    check_generator,
    check_network_state,
    check_optimizer,
    check_parts,
    check_randomness,
)

__all__ = ["check_learner_state"]


def check_learner_state(
    state: Any,
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    randomness: OwnRandomness | None,
) -> None:
    """Refuse what is not the state of such a learner; its memory checks its own.

    Args:
        state: that was read.
        network: of the learner.
        optimizer: of the learner.
        generator: of the augmentation.
        randomness: of random layers, ``None`` if there are none.

    Raises:
        ValueError: naming the first part that does not fit.
    """
    parts = ("network", "optimizer", "memory", "generator")
    check_parts(state, *parts, name="the state of a learner")
    check_network_state(network, state["network"])
    check_optimizer(optimizer, state["optimizer"])
    check_generator(generator.get_state(), state["generator"])
    if randomness is not None and "randomness" in state:
        check_randomness(randomness, state["randomness"])
