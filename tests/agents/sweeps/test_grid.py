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
from agents.sweeps.values import parse_values

PAPER = sorted((Path(agents.sweeps.__file__).parent / "paper").glob("*.yaml"))


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
        ("standardize", "off,on,none", [False, True, None]),
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


def test_whole_numbers_of_a_file_make_the_runs_of_the_command_line() -> None:
    given = {"env": "SplitMNIST", "policy": "rs"}
    (file,) = make_jobs({**given, "longtail": 100, "alpha": 1})
    (command,) = make_jobs({**given, "longtail": "100", "alpha": "1"})
    assert file.key == command.key


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


OWN: dict[str, Any] = {
    "env": "SplitDigits",
    "seed": "0-9",
    "methods": {
        "Plain": {"policy": "rs"},
        "Own": {"policy": "cbrs", "seed": "3-5"},
        "Parts": [
            {"policy": "infors", "imbalance": [1, 3], "eta": 0},
            {"policy": "infors", "imbalance": 10, "eta": 1},
        ],
    },
}


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (
            {"seed": "4"},
            {"Plain 1 4", "Own 1 4", "Parts 1 4", "Parts 3 4", "Parts 10 4"},
        ),
        ({"seed": "20", "imbalance": "10"}, {"Plain 10 20", "Parts 10 20"}),
        ({"seed": "2-3", "imbalance": 7}, {"Plain 7 2", "Plain 7 3", "Own 7 3"}),
        (
            {"seed": [0], "imbalance": "3,10"},
            {"Plain 3 0", "Plain 10 0", "Parts 3 0", "Parts 10 0"},
        ),
    ],
    ids=["seed", "both", "range", "list"],
)
def test_given_seeds_and_imbalances_restrict_those_of_a_method(
    given: dict[str, Any], left: set[str]
) -> None:
    jobs = make_jobs(OWN, given=given)
    configs = [(job.method, job.config.imbalance, job.config.seed) for job in jobs]
    assert {f"{method} {r} {seed}" for method, r, seed in configs} == left
    assert len(jobs) == len(left)
    etas = {c.imbalance: c.eta for job in jobs if (c := job.config).policy == "infors"}
    assert etas.items() <= {1: 0, 3: 0, 10: 1}.items()


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_part_of_the_papers_table_has_the_runs_of_the_whole_table(path: Path) -> None:
    table = yaml.safe_load(path.read_text())
    part = make_jobs(table, given={"imbalance": "10", "seed": "0"})
    whole = make_jobs(table)
    wanted = [
        job for job in whole if (job.config.imbalance, job.config.seed) == (10, 0)
    ]
    assert {job.key for job in part} == {job.key for job in wanted}
    assert len(part) == len({job.method for job in part}) > 2


def test_a_given_stream_restricts_those_of_a_method() -> None:
    methods = {"A": {"env": "SplitDigits,SplitMNIST"}, "B": {"env": "SplitMNIST"}}
    (job,) = make_jobs({"methods": methods}, given={"env": "SplitDigits"})
    assert (job.method, job.config.env) == ("A", "SplitDigits")


def test_given_data_takes_the_place_of_a_benchmark_and_the_other_way_round() -> None:
    (job,) = make_jobs({"env": "SplitDigits", "policy": "rs"}, given={"data": "a.npz"})
    assert (job.config.env, job.config.data) == (None, "a.npz")
    (job,) = make_jobs({"data": "a.npz", "policy": "rs"}, given={"env": "SplitDigits"})
    assert (job.config.env, job.config.data) == ("SplitDigits", None)


def test_what_is_given_wins_over_what_is_outside_of_methods() -> None:
    jobs = make_jobs({**OWN, "alpha": 0.3}, given={"alpha": "0.7", "seed": 4})
    assert {job.config.alpha for job in jobs} == {0.7}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policy": "rs"}, "policy is given, .* have their own: Plain; Own; Parts$"),
        ({"eta": "0", "seed": 99}, "eta is given, .* have their own: Parts$"),
        ({"seed": "x"}, "seed must be a whole number, got 'x'"),
    ],
    ids=str,
)
def test_what_cannot_be_given_is_named_in_one_line(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_jobs(OWN, given=given)


def test_values_that_no_method_has_leave_no_run() -> None:
    methods = {"A": {"seed": "0-4"}, "B": {"seed": 5}}
    with pytest.raises(ValueError, match="^no run is left with seed=7,8: methods have"):
        make_jobs({"methods": methods}, given={"seed": "7-8"})


def test_values_of_a_setting_that_a_method_does_not_use_are_one_run() -> None:
    told: list[str] = []
    given = {"policy": "rs,infors,gss", "gamma": "0.5,1", "gss_groups": "2,3"}
    jobs = make_jobs({"env": "SplitDigits", **given}, tell=told.append)
    assert {job.method: (job.config.gamma, job.config.gss_groups) for job in jobs} == {
        "rs": (0.0, 10),
        "infors gamma=0.5": (0.5, 10),
        "infors gamma=1.0": (1.0, 10),
        "gss gss_groups=2": (0.0, 2),
        "gss gss_groups=3": (0.0, 3),
    }
    assert told == [
        "rs does not use gamma, gss_groups: one run for all values",
        "infors does not use gss_groups: one run for all values",
        "gss does not use gamma: one run for all values",
    ]
    (plain,) = make_jobs({"env": "SplitDigits", "policy": "rs"})
    assert plain.key in {job.key for job in jobs}


def test_what_decides_whether_a_setting_is_used_is_named() -> None:
    told: list[str] = []
    methods = {"Info": {"policy": "infors"}, "Both": {"policy": "rs,infors"}}
    grid = {"eta": "0,1", "criterion": "er,mic", "methods": methods}
    jobs = make_jobs(grid, tell=told.append)
    infors = [("er", 1.0), ("mic", 0.0), ("mic", 1.0)]
    for method, expected in (("Info", infors), ("Both", [*infors, ("mic", 1.0)])):
        configs = [job.config for job in jobs if job.method == method]
        found = [(config.criterion, config.eta) for config in configs]
        assert sorted(found) == sorted(expected)
    assert told == [
        "Info criterion=er does not use eta: one run for all values",
        "Both policy=rs does not use criterion, eta: one run for all values",
        "Both criterion=er policy=infors does not use eta: one run for all values",
    ]


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_the_papers_tables_have_its_methods_at_each_imbalance(path: Path) -> None:
    methods = {"RS", "CBRS", "InfoRS"}
    if not path.stem.endswith("short"):
        methods |= {"WRS", "InfoGS"}
    if path.stem.endswith("_mnist"):
        methods |= {"GSS", "FSS-Clust", "InfoGS-RS"}
    jobs = make_jobs(yaml.safe_load(path.read_text()))
    cells = {(job.method, job.config.imbalance) for job in jobs}
    imbalances = {imbalance for _, imbalance in cells}
    assert len(imbalances) > 1
    assert {*itertools.product(methods, imbalances)} <= cells


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"colour": "red"}, "'colour' is not a setting"),
        ({"zzz": "red"}, "expected an option of 'info-replay train'"),
        ({"learning-rate": 1}, "not a setting; did you mean 'learning_rate'"),
        ({"method": {"A": {}}}, "'method' is not a setting; did you mean 'methods'"),
        ({"methods": {"A": {"polcy": "rs"}}}, "not a setting; did you mean 'policy'"),
        ({None: 1}, "None is not a setting"),
        ({"policy": {"a": 1}}, "policy must be text, or a list of such values, got {"),
        ({"seed": [[1, 2]]}, "seed must be a whole number, or a list of such values"),
        ({"methods": {"A": {"eta": {"b": 1}}}}, "eta must be a number, or a list of"),
        ({"validation": {}}, "validation must be true or false, or a list of"),
        ({"seed": "0-1000000000"}, "at most 100000 values, got '0-1000000000'"),
        ({"seed": "0-99999,200000"}, "seed must have at most 100000 values"),
        ({"seed": f"0-{'9' * 5000}"}, "seed must be a whole number, got '9999"),
        ({"seed": "0-9999", "eta": [*range(11)]}, "at most 100000 runs, got 110000"),
        (
            {"seed": "0-59999", "methods": {"A": {"eta": 0}, "B": {"eta": 1}}},
            "a sweep has at most 100000 runs, got 120000",
        ),
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
