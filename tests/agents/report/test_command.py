"""The command of a row makes a run with the same settings."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.cli import _make_parser
from agents.options import chosen_settings
from agents.report.command import given_settings, train_command
from agents.supervised.config import ExperimentConfig
from agents.sweeps.grid import make_jobs
from agents.sweeps.results import read_rows


def parsed(command: str) -> ExperimentConfig:
    """The settings that ``info-replay train`` would run with."""
    program, *arguments = shlex.split(command)
    assert program == "info-replay"
    options = _make_parser().parse_args(arguments)
    chosen = chosen_settings(options, ExperimentConfig)
    env = chosen.pop("env", None)
    return ExperimentConfig.preset(env, options.preset, **chosen)


def assert_same(config: ExperimentConfig) -> str:
    command = train_command(config.what_matters())
    assert command is not None
    assert parsed(command).what_matters() == config.what_matters()
    return command


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"env": "SplitMNIST", "policy": "infors", "decay": None},
        {"env": "SplitMNIST", "policy": "rs", "alpha": 0.3, "threads": 1},
        {"env": "SplitCIFAR10", "augmented": False, "epochs": 1, "gamma": -0.3},
        {"env": "SplitDigits", "policy": "none", "validation": True},
        {"env": "SplitDigits", "learner": "finetune", "policy": "none"},
        {"env": "SplitDigits", "gamma": -1e-9, "class_order": "3,1,2", "seed": 7},
        {"data": "my data's.npz", "policy": "cbrs", "num_classes": 3, "cut": "label"},
        {"data": "Digits", "batched": False, "image_size": "8,8"},
    ],
    ids=str,
)
def test_parsing_the_command_gives_the_same_settings(settings: dict[str, Any]) -> None:
    assert_same(ExperimentConfig.preset(settings.pop("env", None), **settings))


@given(
    st.sampled_from(["SplitMNIST", "PermutedMNIST", "SplitCIFAR10", "SplitDigits"]),
    st.fixed_dictionaries(
        {},
        optional={
            "policy": st.sampled_from(["rs", "wrs", "coreset", "infogs", "infors"]),
            "imbalance": st.sampled_from([1, 3, 10, 30]),
            "imbalanced_task": st.sampled_from([None, 0, 3]),
            "seed": st.integers(0, 2**63 - 1),
            "learning_rate": st.floats(0, 1e6),
            "gamma": st.floats(-1e6, 1e6),
            "eta": st.floats(0, 3),
            "decay": st.none() | st.floats(0.001, 0.999),
            "augmented": st.booleans(),
            "steps": st.none() | st.integers(1, 1000),
            "criterion": st.sampled_from(["mic", "ig", "er"]),
            "threads": st.none() | st.integers(1, 4),
            "capacity": st.integers(1, 1000),
        },
    ),
)
def test_any_settings_come_back(env: str, settings: dict[str, Any]) -> None:
    assert_same(ExperimentConfig.preset(env, **settings))


def test_only_options_that_differ_are_told() -> None:
    config = ExperimentConfig.preset(
        "SplitMNIST", policy="infors", seed=3, imbalance=10
    )
    assert assert_same(config) == (
        "info-replay train --env SplitMNIST --policy infors --imbalance 10 --seed 3"
    )


def test_what_was_made_in_python_has_no_command() -> None:
    assert train_command({"env": "SplitMNIST", "network": "<lambda>"}) is None
    assert train_command({"data": "<arrays>"}) is None


def test_results_have_the_settings_that_their_runs_were_given(sweep: Path) -> None:
    named = {name: {"policy": name} for name in ("rs", "cbrs", "infors")}
    grid = {"env": "SplitDigits", "imbalance": "1,3", "seed": "0-1", "epochs": 1}
    jobs = make_jobs({**grid, "evaluations": 4, "methods": named})
    rows = {row["key"]: row for row in read_rows(sweep)}
    for job in jobs:
        command = train_command(given_settings(rows[job.key]["result"]))
        assert command is not None
        assert parsed(command).what_matters() == job.config.what_matters()


@pytest.mark.parametrize("task", [None, 2])
def test_the_task_that_comes_more_often_is_told_if_it_was_chosen(
    task: int | None,
) -> None:
    from agents.supervised.experiment import Experiment

    config = ExperimentConfig.preset(
        "DriftDigits", policy="rs", imbalance=3, imbalanced_task=task, steps=3, seed=13
    )
    given = given_settings(Experiment(config).run())
    assert given["imbalanced_task"] == task
