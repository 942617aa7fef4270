"""Settings that a run does not use: it comes out the same whatever they are."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from agents.supervised.experiment import Experiment
from agents.supervised.finetune import Finetune
from agents.supervised.unused import unused_settings
from tests.agents.supervised.helpers import small


@pytest.mark.parametrize(
    ("chosen", "changed", "unused"),
    [
        ({"policy": "rs"}, {"gamma": 2.0}, True),
        ({"policy": "cbrs"}, {"eta": 0.0}, True),
        ({"policy": "auto"}, {"decay": 0.5}, True),
        ({"policy": "wrs"}, {"noise": 2.0}, True),
        ({"policy": "infors"}, {"gamma_learnability": 2.0}, True),
        ({"policy": "infors", "criterion": "er"}, {"eta": 0.0}, True),
        ({"policy": "infors", "learner": "er"}, {"alpha": 3.0}, True),
        ({"policy": "infors", "learner": "er"}, {"beta": 3.0}, True),
        ({"policy": "rs", "learner": "er-ace"}, {"join": "sum"}, True),
        ({"policy": "none"}, {"capacity": 7}, True),
        ({"policy": "none"}, {"beta": 3.0}, True),
        ({"learner": "finetune"}, {"replay_batch_size": 3}, True),
        ({"policy": "infors"}, {"gamma": 2.0}, False),
        ({"policy": "infors"}, {"eta": 0.0}, False),
        ({"policy": "infogs"}, {"gamma_learnability": -9.0}, False),
        ({"policy": "auto"}, {"noise": 2.0}, False),
        ({"policy": "gss"}, {"gss_group_size": 2}, False),
        ({"policy": "coreset"}, {"coreset_parts": 2}, False),
        ({"policy": "rs"}, {"alpha": 3.0}, False),
        ({"policy": "rs", "learner": "er"}, {"join": "sum"}, False),
        ({"policy": "rs", "learner": "er", "join": "sum"}, {"beta": 3.0}, False),
    ],
    ids=str,
)
def test_the_outcome_depends_on_a_setting_if_it_is_used(
    chosen: dict[str, Any], changed: dict[str, Any], unused: bool
) -> None:
    config = small(**chosen, steps=40)
    (name,) = changed
    assert (name in unused_settings(config)) is unused
    other = small(**{**chosen, **changed}, steps=40)
    assert (_outcome(config) == _outcome(other)) is unused


def _outcome(config: Any) -> tuple[Any, ...]:
    found = Experiment(config).run()
    memory = found["memory"] or {}
    # The size is that of the capacity, which tells nothing of what was learned.
    told = {name: value for name, value in memory.items() if name != "capacity"}
    return found["prequential"], found["matrix"], told


class Pull(Finetune):
    """Uses ``alpha`` without a memory, as methods do that hold weights in place."""

    def __init__(self, network: Any, memory: Any, *, alpha: float, **options: Any):
        super().__init__(network, memory, **options)
        self.alpha = alpha


def test_of_an_own_policy_or_learner_its_own_options_are_used() -> None:
    config = small(policy="info_replay:InfoReservoirWriter")
    assert "gamma" not in unused_settings(config)
    assert "gss_group_size" in unused_settings(config)
    config = small(policy="none", learner=f"{__name__}:Pull")
    assert unused_settings(config) >= {"beta", "gamma", "capacity"}
    assert not unused_settings(config) & {"alpha", "replay_batch_size"}


def test_reading_results_does_not_import_torch() -> None:
    code = (
        "import sys, agents.sweeps, agents.sweeps.tuning; print('torch' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert told.stdout == "False\n"
