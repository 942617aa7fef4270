"""Names that have moved can be imported from where they were documented."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("config", "supervised.config", "PRESETS ExperimentConfig"),
        ("derpp", "supervised.derpp", "DERPlusPlusAgent DivergenceError"),
        ("dqn", "q_learning.agent", "DQNAgent"),
        ("experiment", "supervised.experiment", "Experiment"),
        ("gradients", "supervised.gradients", "LossGradients"),
        ("networks", "supervised.networks", "FeatureNetwork make_network"),
        ("samplers", "supervised.samplers", "SubsetSampler"),
    ],
)
def test_the_old_place_has_the_names_of_the_new_one(
    old: str, new: str, names: str
) -> None:
    before, now = (importlib.import_module(f"agents.{name}") for name in (old, new))
    for name in names.split():
        assert getattr(before, name) is getattr(now, name)
        assert name in before.__all__
