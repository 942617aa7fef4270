"""From a description of a sweep to its runs."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

import agents.sweeps
from agents.supervised.config import ExperimentConfig
from agents.sweeps import make_jobs
from agents.sweeps.grid import parse_values

PAPER = Path(agents.sweeps.__file__).parent / "paper"


@pytest.mark.parametrize(
    ("name", "given", "values"),
    [
        ("seed", "0-3", [0, 1, 2, 3]),
        ("seed", "7", [7]),
        ("seed", [1, "3-4", 1], [1, 3, 4]),
        ("imbalance", "1, 10", [1, 10]),
        ("gamma", "-0.3,0,1e-1", [-0.3, 0.0, 0.1]),
        ("decay", "none,0.99", [None, 0.99]),
        ("decay", [None, 0.5], [None, 0.5]),
        ("policy", "rs,infors", ["rs", "infors"]),
        ("validation", "true,no", [True, False]),
        ("class_order", "3,1,2", ["3,1,2"]),
        ("cut", "none", ["none"]),
    ],
)
def test_values_are_read(name: str, given: Any, values: list[Any]) -> None:
    assert parse_values(name, given) == values


def test_a_grid_has_every_combination_once() -> None:
    grid = {"policy": "rs,cbrs", "imbalance": [1, 3], "seed": "0-2", "capacity": "5,9"}
    jobs = make_jobs({"env": "SplitDigits", **grid})
    found = {
        (job.config.policy, job.config.imbalance, job.config.seed, job.config.capacity)
        for job in jobs
    }
    assert found == {*itertools.product(["rs", "cbrs"], [1, 3], range(3), [5, 9])}
    assert len({job.key for job in jobs}) == len(jobs) == 24
    assert {job.method for job in jobs} == {
        f"{policy} capacity={size}" for policy in ("rs", "cbrs") for size in (5, 9)
    }


def test_a_run_of_a_sweep_is_that_of_train_but_for_threads_and_evaluations() -> None:
    (job,) = make_jobs({"env": "SplitMNIST", "policy": "infors"})
    expected = ExperimentConfig.preset("SplitMNIST", threads=1, evaluations=0)
    assert job.config == expected
    assert (job.config.alpha, job.config.decay) == (1.0, 0.99)


def test_methods_have_names_and_their_settings_win() -> None:
    jobs = make_jobs(
        {
            "env": "SplitDigits",
            "eta": 1,
            "imbalance": "1,3",
            "methods": {
                "Plain": {"policy": "rs"},
                "Tuned": [
                    {"policy": "infors", "imbalance": 1, "eta": 0},
                    {"policy": "infors", "imbalance": 3},
                ],
            },
        }
    )
    found = {(job.method, job.config.imbalance, job.config.eta) for job in jobs}
    assert found == {("Plain", 1, 1), ("Plain", 3, 1), ("Tuned", 1, 0), ("Tuned", 3, 1)}


def test_what_was_tuned_wins_over_presets_only() -> None:
    tuned = {("SplitDigits", "rs", 3): {"alpha": 0.7, "beta": 0.2}}
    jobs = make_jobs(
        {"env": "SplitDigits", "policy": "rs", "imbalance": "1,3", "beta": 2.0}, tuned
    )
    found = {job.config.imbalance: (job.config.alpha, job.config.beta) for job in jobs}
    assert found == {1: (0.3, 2.0), 3: (0.7, 2.0)}


@pytest.mark.parametrize(
    "path", sorted(PAPER.glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_papers_tables_have_all_methods(path: Path) -> None:
    jobs = make_jobs(yaml.safe_load(path.read_text()))
    cells = {(job.method, job.config.imbalance) for job in jobs}
    methods = {job.method for job in jobs}
    assert {"RS", "WRS", "CBRS", "GSS", "FSS-Clust", "InfoGS", "InfoRS"} <= methods
    assert cells == {*itertools.product(methods, [1, 3, 10, 30])}


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"colour": "red"}, "'colour' is not a setting"),
        ({"methods": {"A": {"polcy": "rs"}}}, "'polcy' is not a setting"),
        ({"seed": []}, "seed must have at least one value"),
        ({"seed": ","}, "seed must have at least one value"),
        ({"seed": "3-1"}, "seed must go up, got '3-1'"),
        ({"seed": "x"}, "seed must be a whole number, got 'x'"),
        ({"eta": "1,y"}, "eta must be a number, got 'y'"),
        ({"validation": "maybe"}, "validation must be true or false"),
        ({"methods": {}}, "methods must be settings by the name"),
        ({"methods": ["rs"]}, "methods must be settings by the name"),
        ({"methods": {"A": "rs"}}, "method 'A' must have settings by name"),
        ({"policy": "nothing"}, "policy"),
        ({"env": "SplitNothing"}, "env must be one of"),
        ([1, 2], "described by names and values"),
    ],
    ids=str,
)
def test_a_wrong_description_is_named_in_one_line(
    description: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        make_jobs(description)
    assert "\n" not in str(raised.value)
