"""Settings that a run ignores: :func:`unused_settings`.

What it looks at is imported when it is called: reading results needs no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from agents.objects import is_object
from agents.supervised.checks import NO_REPLAY
from agents.supervised.config import ExperimentConfig

__all__ = ["DECIDING", "unused_settings"]

#: Settings that decide which others are used.
DECIDING = ("policy", "criterion", "learner", "join")
_OF_LEARNERS = ("alpha", "beta", "join")


def unused_settings(config: ExperimentConfig) -> set[str]:
    """The settings that change nothing, whatever their values are.

    Args:
        config: the settings of a run; those in :data:`DECIDING` decide.

    Returns:
        Names of settings of the memory and of the learner.

    Example:
        >>> sorted(unused_settings(ExperimentConfig(policy="gss")))[:4]
        ['coreset_parts', 'criterion', 'decay', 'eta']
        >>> config = ExperimentConfig(policy="infors", learner="er-ace")
        >>> unused_settings(config) & {"alpha", "beta", "gamma"} == {"alpha", "beta"}
        True
    """
    return _of_policy(config) | _of_learner(config)


def _of_policy(config: ExperimentConfig) -> set[str]:
    from agents.supervised.memory import WRITER_OPTIONS
    from info_replay.registry import CRITERIA, POLICIES

    options = {**WRITER_OPTIONS, "criterion": "criterion", "eta": "criterion"}
    if config.policy == NO_REPLAY:
        return {*options, "capacity"}
    if is_object(config.policy):
        return set()
    make = POLICIES.get(config.policy)
    unused = {name for name, own in options.items() if not _takes(make, own)}
    if not _takes(CRITERIA.get(config.criterion), "eta"):
        unused.add("eta")
    return unused


def _of_learner(config: ExperimentConfig) -> set[str]:
    from agents.supervised.learner import LEARNERS, learner_options

    if is_object(config.learner):
        return set()
    is_ours = config.learner in LEARNERS.ours
    if is_ours and config.policy == NO_REPLAY:
        return {*_OF_LEARNERS, "replay_batch_size"}
    unused = {*_OF_LEARNERS} - learner_options(LEARNERS.get(config.learner)).keys()
    if config.learner == "er" and config.join == "mean":
        unused.add("beta")
    return unused


def _takes(make: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of a name, or any."""
    parameters = inspect.signature(make).parameters
    variadic = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return variadic or name in parameters
