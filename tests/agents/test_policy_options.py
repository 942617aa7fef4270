"""Options of policies: all of them for ours, those that are given for the user's."""

from __future__ import annotations

from typing import Any

import pytest

from agents.policy_options import policy_options
from agents.q_learning.config import DQNConfig
from agents.q_learning.memory import memory_options
from agents.supervised.config import ExperimentConfig
from info_replay import MIC, InformationGain

NAMES = {"noise": "noise", "gss_groups": "groups"}


@pytest.mark.parametrize("policy", ["rs", "gss", "auto"])
def test_ours_get_every_option(policy: str) -> None:
    found = policy_options(ExperimentConfig(policy=policy), NAMES)
    assert found == {"noise": 0.3, "groups": 10, "criterion": MIC(1.0)}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, {}),
        ({"noise": 0.3}, {}),
        ({"noise": 0.5}, {"noise": 0.5}),
        ({"gss_groups": 4}, {"groups": 4}),
        ({"eta": 3.0}, {"criterion": MIC(3.0)}),
        ({"criterion": "ig"}, {"criterion": InformationGain(1.0)}),
    ],
    ids=str,
)
def test_a_policy_of_the_users_gets_what_is_not_the_default(
    chosen: dict[str, Any], expected: dict[str, Any]
) -> None:
    config = ExperimentConfig(policy="info_replay:ReservoirWriter", **chosen)
    assert policy_options(config, NAMES) == expected


def test_the_same_holds_for_q_learning() -> None:
    policy = "info_replay:BalancedInfoReservoirWriter"
    assert memory_options(DQNConfig(policy=policy)).keys() == {"recent"}
    assert memory_options(DQNConfig(policy=policy, gamma=0.5))["gamma"] == 0.5
    assert memory_options(DQNConfig(policy="infors"))["gamma"] == 0.0
