"""Checks of single settings; what they look at is imported when they are called."""

from __future__ import annotations

import inspect

from agents.objects import is_object
from agents.settings import check_choice

__all__ = [
    "NO_REPLAY",
    "check_learner",
    "check_network",
    "check_policy",
    "check_weights",
    "needs_classes",
    "numbers_of",
]

#: Instead of a policy: no memory at all.
NO_REPLAY = "none"
# A larger step size, or weight of a loss, is beyond what 32 bits can multiply with.
_LARGEST_WEIGHT = 1e30


def check_policy(name: str) -> None:
    """Refuse what is neither a policy nor :data:`NO_REPLAY`."""
    from info_replay.registry import POLICIES

    if name == NO_REPLAY or is_object(name):
        return
    try:
        POLICIES.get(name)
    except ValueError as error:
        if ":" in name:
            raise
        raise ValueError(f"{error} ({NO_REPLAY!r} for no replay)") from None


def check_network(name: str) -> None:
    """Refuse what is not a network."""
    if not is_object(name):
        check_choice("network", name, "agents.supervised.networks:NETWORKS")


def check_learner(name: str) -> None:
    """Refuse what is not a learner."""
    if not is_object(name):
        check_choice("learner", name, "agents.supervised.learner:LEARNERS")


def check_weights(**weights: float) -> None:
    """Refuse weights of a loss, by their names, that cannot be computed with.

    Raises:
        ValueError: naming the first.
    """
    for name, value in weights.items():
        if not 0 <= value <= _LARGEST_WEIGHT:
            raise ValueError(
                f"{name} must be at least 0 and at most {_LARGEST_WEIGHT:g}, got "
                f"{value!r}"
            )


def numbers_of(text: str) -> list[int]:
    """Whole numbers with commas in between.

    Args:
        text: of them.

    Raises:
        ValueError: if they are none.

    Example:
        >>> numbers_of("3,1,2")
        [3, 1, 2]
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"expected whole numbers with commas in between, such as 3,1,2, got "
            f"{text!r}"
        ) from None


def needs_classes(policy: str) -> bool:
    """Whether a policy cannot be used where targets are numbers."""
    from info_replay.registry import POLICIES

    if policy == NO_REPLAY or is_object(policy):
        return False
    parameters = inspect.signature(POLICIES.get(policy)).parameters
    classes = parameters.get("num_classes")
    required = classes is not None and classes.default is classes.empty
    # "wrs" weighs items by how sure a classifier is; its signature does not tell.
    return required or policy == "wrs"
