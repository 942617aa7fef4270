"""From the settings of a run to the options of its policy: :func:`policy_options`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from info_replay import make_criterion

__all__ = ["policy_options"]


class PolicySettings(Protocol):
    """Settings that choose a policy and its criterion."""

    @property
    def policy(self) -> str: ...
    @property
    def criterion(self) -> str: ...
    @property
    def eta(self) -> float: ...


def policy_options(config: PolicySettings, names: Mapping[str, str]) -> dict[str, Any]:
    """Options of :func:`make_replay_buffer`; policies ignore those of others.

    A policy of the user's (``"module:Name"``) is given those that differ from their
    defaults, so that its own defaults hold.

    Args:
        config: the settings, a dataclass.
        names: what writers call each setting.

    Returns:
        Values by the names that writers have for them, and the criterion.

    Example:
        >>> from agents.supervised.config import ExperimentConfig
        >>> config = ExperimentConfig(policy="info_replay:ReservoirWriter", noise=0.5)
        >>> policy_options(config, {"noise": "noise", "gamma": "gamma"})
        {'noise': 0.5}
    """
    defaults = {each.name: each.default for each in dataclasses.fields(config)}  # type: ignore[arg-type]
    given = {
        name for name, default in defaults.items() if getattr(config, name) != default
    }
    of_user = ":" in config.policy
    options = {
        own: getattr(config, name)
        for name, own in names.items()
        if name in given or not of_user
    }
    if not of_user or given & {"criterion", "eta"}:
        options["criterion"] = make_criterion(config.criterion, eta=config.eta)
    return options
