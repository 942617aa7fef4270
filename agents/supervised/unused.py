"""Settings that a run ignores: :func:`unused_settings`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from agents.objects import is_object
from agents.supervised.checks import NO_REPLAY
from agents.supervised.config import ExperimentConfig
from agents.supervised.learner import LEARNERS, learner_options
from agents.supervised.memory import WRITER_OPTIONS
from info_replay.registry import CRITERIA, POLICIES

__all__ = ["unused_settings"]

_OF_LEARNERS = ("alpha", "beta", "join")
_OF_REPLAY = (*_OF_LEARNERS, "replay_batch_size", "capacity")


def unused_settings(config: ExperimentConfig) -> set[str]:
    """The settings that change nothing, whatever their values are.

    Args:
        config: the settings of a run; its policy, criterion, learner and ``join``
            decide.

    Returns:
        Names of settings of the memory and of the learner.

    Example:
        >>> sorted(unused_settings(ExperimentConfig(policy="gss")))[:4]
        ['coreset_parts', 'criterion', 'decay', 'eta']
        >>> config = ExperimentConfig(policy="infors", learner="er-ace")
        >>> unused_settings(config) & {"alpha", "beta", "gamma"} == {"alpha", "beta"}
        True
    """
    of_policy = {**WRITER_OPTIONS, "criterion": "criterion", "eta": "criterion"}
    if config.policy == NO_REPLAY:
        return {*of_policy, *_OF_REPLAY}
    unused: set[str] = set()
    if not is_object(config.policy):
        make = POLICIES.get(config.policy)
        unused.update(name for name, own in of_policy.items() if not _takes(make, own))
    if not is_object(config.criterion):
        if not _takes(CRITERIA.get(config.criterion), "eta"):
            unused.add("eta")
    if not is_object(config.learner):
        options = learner_options(LEARNERS.get(config.learner))
        unused.update({*_OF_LEARNERS} - options.keys())
        if config.learner == "er" and config.join == "mean":
            unused.add("beta")
    return unused


def _takes(make: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of a name; if nobody can tell, it may."""
    try:
        parameters = inspect.signature(make).parameters
    except ValueError:
        return True
    variadic = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return variadic or name in parameters
