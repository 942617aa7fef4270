"""Tuning chooses what the results say, goes on after a kill, and loses nothing."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.cli import main
from agents.runs.folder import RunError
from agents.supervised.config import ExperimentConfig
from agents.sweeps.grid import Job, make_jobs
from agents.sweeps.local_pool import LocalPool
from agents.sweeps.results import read_rows
from agents.sweeps.tuning import TuneReport, run_tests, tune
from agents.sweeps.tuning_cases import Case, make_cases
from agents.sweeps.tuning_file import load_tuned
from agents.sweeps.tuning_grid import PAPER_GRIDS, find_grid, grid_size, read_grids
from agents.sweeps.tuning_optuna import tune_with_optuna
from agents.sweeps.worker import Failure

GRID = "learning_rate: [0.03, 0.1, 0.3]\ninfors:\n  eta: [0, 1, 3]\n"
DIGITS = {"env": "SplitDigits", "epochs": 1, "steps": 4}
#: A tuning of a few seconds: 2 settings, 2 seeds.
TUNE = (
    "tune --env SplitDigits --policy rs --epochs 1 --steps 4 --seeds 100,101 "
    "--workers 1"
).split()
Score = Callable[[ExperimentConfig], float | None]


class FakePool:
    """Makes results from settings at once; dies after so many of them."""

    def __init__(self, score: Score, dies_after: float = math.inf) -> None:
        self.score = score
        self.left = dies_after
        self.done: list[Job] = []

    def __call__(self, folder: Path, workers: int | None) -> FakePool:
        return self

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, dict[str, Any]]]:
        for job in jobs:
            if self.left <= 0:
                raise KeyboardInterrupt
            self.left -= 1
            self.done.append(job)
            config = job.config
            result = {**config.what_matters(), "stream": config.stream}
            result["average"] = self.score(config)
            if result["average"] is None:
                result["diverged_at_step"] = 3
            yield job, {"key": job.key, "method": job.method, "result": result}


def noise(config: ExperimentConfig) -> float | None:
    """Few different scores, so that means are equal often; some runs diverge."""
    told = f"{config.learning_rate} {config.eta} {config.seed} {config.imbalance}"
    drawn = random.Random(told).randrange(5)
    return None if drawn == 0 else drawn / 5


def smooth(config: ExperimentConfig) -> float:
    """Best at a learning rate of 0.1 and eta of 1, whatever the seed."""
    badness = abs(math.log(config.learning_rate / 0.1)) + abs(config.eta - 1)
    return 0.9 - 0.1 * badness + 0.001 * (config.seed % 10)


@pytest.fixture
def grid_file(tmp_path: Path) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    return path


def cases_of(
    grid: Path, seeds: Iterable[int] = range(100, 105), **options: Any
) -> list[Case]:
    return make_cases({**DIGITS, **options}, [*seeds], read_grids(grid))


def slow_choice(
    folder: Path, policy: str, imbalance: int
) -> tuple[dict[str, float], float, float]:
    """The best setting by the rows of the file, without the code under test."""
    scores: dict[tuple[float, float], list[float]] = {}
    for line in (folder / "grid" / "results.jsonl").read_text().splitlines():
        result = json.loads(line)["result"]
        if (result["policy"], result["imbalance"]) == (policy, imbalance):
            assert result["validation"] is True
            setting = result["learning_rate"], result["eta"]
            scores.setdefault(setting, []).append(result["average"] or 0.0)
    best: Any = None
    for rate in (0.03, 0.1, 0.3):
        for eta in (0.0, 1.0, 3.0):
            if (values := scores.get((rate, eta))) is None:
                continue
            mean = sum(values) / len(values)
            error = statistics.stdev(values) / len(values) ** 0.5
            better = best is None or mean > best[1] + 1e-12
            equal = best is not None and abs(mean - best[1]) <= 1e-12
            if better or (equal and error < best[2] - 1e-12):
                best = {"learning_rate": rate, "eta": eta}, mean, error
    return best


# -- grids ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "sizes"),
    [
        ("SplitMNIST", "rs 12, wrs 12, cbrs 12, gss 12, fss-clust 12, coreset 12, "),
        ("PermutedMNIST", "infogs 108, infogs-rs 108, infors 54"),
        ("SplitCIFAR10", "rs 8, wrs 8, cbrs 8, infogs 24, infogs-rs 24, infors 72"),
        ("SplitMiniImageNet", "rs 8, infors 72"),
    ],
)
def test_the_papers_grids_have_as_many_settings_as_its_table(
    env: str, sizes: str
) -> None:
    for policy, size in re.findall(r"(\S+) (\d+)", sizes):
        grid = find_grid(ExperimentConfig.preset(env, policy=policy))
        assert grid_size(grid) == int(size), policy


def test_a_grid_has_no_option_that_its_policy_does_not_use() -> None:
    of_information = {"eta", "gamma", "noise", "jitter", "decay"}
    for part in PAPER_GRIDS.values():
        for policy, grid in part.items():
            informed = policy.startswith("info")
            assert (of_information <= grid.keys()) == informed
            assert informed or not of_information & grid.keys()
            assert ("gamma_learnability" in grid) == policy.startswith("infogs")
    config = ExperimentConfig.preset("SplitMNIST", learner="er", criterion="er")
    assert not find_grid(config).keys() & {"alpha", "beta", "eta"}
    of_file: Any = {"": {"eta": (0.0, 1.0), "beta": (0.3, 1.0), "criterion": ("er",)}}
    assert find_grid(config, of_file).keys() == {"criterion"}
    of_file[""] |= {"criterion": ("er", "mic"), "join": ("mean", "sum")}
    assert find_grid(config, of_file).keys() == {"eta", "beta", "criterion", "join"}


def test_a_fixed_option_is_not_tuned(grid_file: Path) -> None:
    (case,) = cases_of(grid_file, policy="infors", eta="3")
    assert case.grid.keys() == {"learning_rate"}
    assert {job.config.eta for jobs in case.runs().values() for job in jobs} == {3.0}


# -- the choice -----------------------------------------------------------------------


@pytest.mark.parametrize("score", [noise, smooth])
def test_the_choice_is_what_a_slow_computation_from_the_rows_finds(
    tmp_path: Path, grid_file: Path, score: Score
) -> None:
    imbalances = [1, 3, 10, 30, 100, 300]
    cases = cases_of(grid_file, policy="infors", imbalance=imbalances)
    report = tune(cases, tmp_path / "out", make_pool=FakePool(score))
    assert [entry["imbalance"] for entry in report.chosen] == imbalances
    saved = json.loads((tmp_path / "out" / "tuned.json").read_text())["tuned"]
    for entry in saved:
        settings, mean, error = slow_choice(
            tmp_path / "out", "infors", entry["imbalance"]
        )
        assert entry["settings"] == settings
        assert entry["mean"] == pytest.approx(mean)
        assert entry["standard_error"] == pytest.approx(error)
        assert (entry["settings_tried"], entry["seeds"]) == (9, [*range(100, 105)])
        means = [each["mean"] for each in entry["best"]]
        assert len(means) == 5
        assert means == sorted(means, reverse=True)
        assert entry["best"][0]["settings"] == settings
        assert entry["made_by"][0]["versions"]["torch"]


def test_equal_means_are_told_apart_by_the_standard_error(
    tmp_path: Path, grid_file: Path
) -> None:
    def score(config: ExperimentConfig) -> float:
        spread = {0.03: 0.2, 0.1: 0.0, 0.3: 0.1}[config.learning_rate]
        return 0.5 + (spread if config.seed % 2 else -spread)

    cases = cases_of(grid_file, seeds=range(100, 104), policy="rs")
    report = tune(cases, tmp_path / "out", make_pool=FakePool(score))
    assert report.chosen[0]["settings"] == {"learning_rate": 0.1}


def test_a_diverged_run_is_never_better_than_a_negative_score(
    tmp_path: Path, grid_file: Path
) -> None:
    """Of streams with numbers to predict, scores are negative squared errors."""

    def score(config: ExperimentConfig) -> float | None:
        return {0.03: -2.0, 0.1: -1.0, 0.3: None}[config.learning_rate]

    cases = cases_of(grid_file, policy="rs")
    (entry,) = tune(cases, tmp_path / "out", make_pool=FakePool(score)).chosen
    assert entry["settings"] == {"learning_rate": 0.1}
    assert [each["diverged"] for each in entry["best"]] == [0, 0, 5]


def test_a_sweep_uses_tuned_settings_and_explicit_options_win(
    tmp_path: Path, grid_file: Path
) -> None:
    cases = cases_of(grid_file, policy="infors", imbalance="1", decay="0.9")
    tune(cases, tmp_path / "out", make_pool=FakePool(smooth))
    tuned = load_tuned(tmp_path / "out" / "tuned.json")
    assert tuned == load_tuned(tmp_path / "out")
    grid = {"env": "SplitDigits", "policy": "infors", "imbalance": "1,3", "seed": 0}
    one, three = sorted(make_jobs(grid, tuned), key=lambda job: job.config.imbalance)
    chosen = one.config.learning_rate, one.config.eta, one.config.decay
    assert chosen == (0.1, 1.0, 0.9)
    assert one.config.validation is False
    assert three.config == ExperimentConfig.preset(
        "SplitDigits", imbalance=3, evaluations=0, threads=1
    )
    (job,) = make_jobs({**grid, "imbalance": 1, "learning_rate": 0.5}, tuned)
    assert (job.config.learning_rate, job.config.decay) == (0.5, 0.9)


def test_test_runs_have_the_choice_and_the_whole_training_set(
    tmp_path: Path, grid_file: Path
) -> None:
    cases = cases_of(grid_file, policy="rs,infors")
    out, pool = tmp_path / "out", FakePool(smooth)
    tune(cases, out, make_pool=FakePool(smooth))
    report = run_tests(cases, out, range(3), make_pool=pool)
    assert (report.total, report.finished) == (6, 6)
    configs = [job.config for job in pool.done]
    assert {each.validation for each in configs} == {False}
    assert {each.learning_rate for each in configs} == {0.1}
    # A sweep with the file is the same runs.
    same = make_jobs({**DIGITS, "policy": "rs,infors", "seed": "0-2"}, load_tuned(out))
    assert {job.key for job in same} == {row["key"] for row in read_rows(out / "test")}


# -- going on -------------------------------------------------------------------------


@pytest.mark.parametrize("dies_after", [0, 7, 44])
@pytest.mark.parametrize("method", ["grid", "tpe", "random", "in order"])
def test_a_tuning_that_stopped_goes_on_and_repeats_nothing(
    tmp_path: Path, grid_file: Path, method: str, dies_after: int
) -> None:
    def go(folder: str, pool: FakePool) -> dict[str, Any]:
        cases = cases_of(grid_file, policy="infors")
        if method == "grid":
            report = tune(cases, tmp_path / folder, make_pool=pool)
        else:
            report = tune_with_optuna(
                cases,
                tmp_path / folder,
                trials=9,
                sampler=method.replace("in order", "grid"),
                pruner="none",
                workers=2,
                make_pool=pool,
            )
        return report.chosen[0]

    first, second = FakePool(noise, dies_after), FakePool(noise)
    with pytest.raises(KeyboardInterrupt):
        go("killed", first)
    entry = go("killed", second)
    keys = [job.key for job in (*first.done, *second.done)]
    assert len(keys) == len({*keys}) == 45
    # All settings were tried: the same choice as of a tuning that ran through, and as
    # by enumerating.
    assert entry == go("through", FakePool(noise))
    assert entry["settings"] == slow_choice(tmp_path / "killed", "infors", 1)[0]
    third = FakePool(noise)
    go("killed", third)
    assert third.done == []


@pytest.mark.parametrize("method", ["grid", "optuna --trials 9 --sampler random"])
def test_a_tuning_that_was_killed_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    grid, out = tmp_path / "grid.yaml", tmp_path / "out"
    grid.write_text("learning_rate: [0.03, 0.1]\n")
    command = [*TUNE, "--grid", str(grid), "--out", str(out), "--method"]
    command += method.split()
    results = out / "grid" / "results.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "agents.cli", *command],
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[3],
    )
    end = time.monotonic() + 120
    while not (results.exists() and results.read_bytes().count(b"\n") >= 1):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = results.read_bytes()
    assert main([*command, "--test", "0"]) == 0
    assert results.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    rows = read_rows(out / "grid")
    assert len(rows) == len({row["key"] for row in rows}) == 4
    by_setting: dict[float, float] = {}
    for row in rows:
        rate = row["result"]["learning_rate"]
        by_setting[rate] = by_setting.get(rate, 0.0) + row["result"]["average"] / 2
    (entry,) = json.loads((out / "tuned.json").read_text())["tuned"]
    assert entry["mean"] == pytest.approx(max(by_setting.values()))
    (tested,) = read_rows(out / "test")
    assert tested["result"]["learning_rate"] == entry["settings"]["learning_rate"]
    assert (tested["result"]["validation"], tested["result"]["steps"]) == (False, 4)


@pytest.mark.parametrize("method", ["grid", "optuna"])
def test_a_case_with_a_failed_run_has_no_choice_until_it_is_done(
    tmp_path: Path, grid_file: Path, method: str
) -> None:
    class Broken(FakePool):
        def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
            for job, row in super().run(jobs):
                bad = job.config.policy == "rs" and job.config.learning_rate == 0.1
                yield job, Failure("disk is full", "log") if bad else row

    def go(pool: FakePool) -> TuneReport:
        cases = cases_of(grid_file, seeds=[100, 101], policy="rs,cbrs")
        if method == "grid":
            return tune(cases, tmp_path / "out", make_pool=pool)
        return tune_with_optuna(cases, tmp_path / "out", trials=3, make_pool=pool)

    report = go(Broken(smooth))
    assert [entry["policy"] for entry in report.chosen] == ["cbrs"]
    reason, log = next(iter(report.failed.values()))
    assert re.search("SplitDigits, imbalance 1, seed 10.: disk is full", reason)
    assert log.read_text() == "log"
    assert [*load_tuned(tmp_path / "out")] == [("SplitDigits", "cbrs", 1)]
    again = FakePool(smooth)
    assert len(go(again).chosen) == 2
    assert {job.config.learning_rate for job in again.done} == {0.1}


def test_processes_stay_for_the_next_runs_and_dead_ones_are_replaced(
    tmp_path: Path,
) -> None:
    jobs = make_jobs({**DIGITS, "policy": "rs", "seed": "0-2"})
    pool = LocalPool(tmp_path, 1)
    try:
        answers = [*pool.run(jobs[:1])]
        (before,) = multiprocessing.active_children()
        answers += pool.run(jobs[1:2])
        assert multiprocessing.active_children() == [before]
        before.kill()
        before.join()
        answers += pool.run(jobs[2:])
    finally:
        pool.close()
    assert multiprocessing.active_children() == []
    assert [job for job, _ in answers] == jobs
    assert all(isinstance(answer, dict) for _, answer in answers)


# -- Optuna ---------------------------------------------------------------------------


def test_optuna_stops_bad_settings_early_and_tries_no_setting_twice(
    tmp_path: Path, grid_file: Path
) -> None:
    pool = FakePool(smooth)
    cases = cases_of(grid_file, policy="infors", alpha="1.0")
    report = tune_with_optuna(
        cases, tmp_path / "out", trials=8, make_pool=pool, workers=1
    )
    (entry,) = report.chosen
    assert entry["settings_tried"] == 8
    assert entry["settings_stopped_early"] > 0
    assert len(pool.done) == 40 - 3 * entry["settings_stopped_early"]
    assert len(pool.done) == len({job.key for job in pool.done})
    # More trials go on from there; the rest of the grid, too.
    more = FakePool(smooth)
    tune_with_optuna(cases, tmp_path / "out", trials=9, make_pool=more, workers=1)
    assert 0 < len(more.done) <= 5
    rest = FakePool(smooth)
    (entry,) = tune(cases, tmp_path / "out", make_pool=rest).chosen
    assert len(pool.done) + len(more.done) + len(rest.done) == 45
    assert entry["settings"] == {"learning_rate": 0.1, "eta": 1.0}


def test_the_rest_of_a_killed_write_to_optunas_journal_is_removed(
    tmp_path: Path, grid_file: Path
) -> None:
    cases, out = cases_of(grid_file, policy="rs"), tmp_path / "out"
    tune_with_optuna(cases, out, trials=2, make_pool=FakePool(smooth))
    with (out / "optuna.journal").open("ab") as file:
        file.write(b'{"op_code": 5, "wor')
    tune_with_optuna(cases, out, trials=3, make_pool=FakePool(smooth))
    lines = (out / "optuna.journal").read_bytes().splitlines()
    assert all(json.loads(line) for line in lines)
    (out / "optuna.journal").write_bytes(b"\n".join([lines[0], b"{", *lines[1:]]))
    with pytest.raises(RunError, match="damaged in line 2: delete it"):
        tune_with_optuna(cases, out, trials=3, make_pool=FakePool(smooth))


def test_without_optuna_one_line_says_what_to_install(
    tmp_path: Path,
    grid_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    out = tmp_path / "out"
    line = told("--method optuna", grid_file, out, capsys)
    assert "needs optuna, which is not installed: pip install 'info-replay[tune]'" in (
        line
    )
    assert not out.exists()


# -- one line for what is wrong -------------------------------------------------------


def told(
    options: str, grid: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> str:
    """The error of a command, which is the last line."""
    capsys.readouterr()
    command = [*TUNE, "--grid", str(grid), "--out", str(out), *options.split()]
    assert main(command) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback" not in "".join(lines)
    assert len([line for line in lines if not line.startswith("tuning folder")]) == 1
    assert lines[-1].startswith("info-replay: error: ")
    return lines[-1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--policy reservoir", "policy must be .*'auto', .*got 'reservoir'"),
        ("--learning-rate 0.1", "the grid of policy 'rs' is empty: every setting"),
        ("--alpha 0.1,0.3", "alpha must have one value, got '0.1,0.3'"),
        ("--alpha x", "alpha must be a number, got 'x'"),
        ("--env SplitDigit", "env must be one of .*got 'SplitDigit'"),
        ("--imbalance 0", "imbalance must be at least 1 .*got 0"),
        ("--seeds ,", "seed must have at least one value, got ','"),
        ("--test 5,101", "seed 101 is one of the tuning and of the test"),
        ("--method all", "method must be one of grid, optuna, got 'all'"),
        ("--trials 3", "trials is an option of --method optuna"),
        ("--method optuna --trials 0", "trials must be at least 1, got 0"),
        ("--method optuna --sampler best", "sampler must be one of tpe, .*'best'"),
        ("--method optuna --engine ray", "optuna runs on this machine only"),
        ("--workers 0", "workers must be at least 1, got 0"),
        ("--grid nowhere.yaml", "there is no file nowhere.yaml"),
        ("--grid cifar10 --policy gss", "grid for cifar10 has no policy 'gss', only"),
    ],
)
def test_a_wrong_option_gets_one_line_and_leaves_no_folder(
    tmp_path: Path,
    grid_file: Path,
    capsys: pytest.CaptureFixture[str],
    options: str,
    expected: str,
) -> None:
    out = tmp_path / "out"
    grid_file.write_text("learning_rate: [0.03, 0.1]\n")
    assert re.search(expected, told(options, grid_file, out, capsys))
    assert not out.exists()


def test_a_stream_that_the_paper_has_no_grid_for_needs_one() -> None:
    with pytest.raises(ValueError, match="no grid for SplitDigits: give a file, or a"):
        make_cases({"env": "SplitDigits"}, [100])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "is not a grid: .*got None"),
        ("{}", "is not a grid: .*got {}"),
        ("- 1", "is not a grid: "),
        ("learning_rate: [", "is not YAML: "),
        ("learning_rate: []", "learning_rate must have at least one value"),
        ("learnin_rate: 0.1", "not a setting; did you mean 'learning_rate'"),
        ("inforz: 0.1", "'inforz' is not a setting; did you mean 'infors'"),
        ("zzz: 1", "is not a setting: expected an option of 'info-replay train'"),
        ("eta: 1\neta: 2", "grid.yaml: 'eta' is there twice, again in line 2"),
        ("rs:\n  eta: [[1]]", "eta must be a number, or a list of such values, got"),
        ("seed: [1, 2]", "seed cannot be tuned"),
        ("infors: {}", "the grid has no settings for policy 'rs'"),
        ("rs:\n  eta: [-1]", "eta must be at least 0 .*got -1"),
        ("rs:\n  eta: [0, 1]", "grid of policy 'rs' is empty: .* not used \\(eta\\)$"),
    ],
)
def test_a_file_that_is_not_a_grid_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, expected: str
) -> None:
    grid, out = tmp_path / "grid.yaml", tmp_path / "out"
    grid.write_text(content)
    assert re.search(expected, told("", grid, out, capsys))
    assert not out.exists()


def test_a_folder_of_another_tuning_is_refused_and_stays(
    tmp_path: Path, grid_file: Path
) -> None:
    out, pool = tmp_path / "out", FakePool(smooth)
    tune(cases_of(grid_file, policy="rs"), out, make_pool=pool)
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    other = tmp_path / "other.yaml"
    other.write_text("learning_rate: [0.5]")
    for cases, expected in (
        (cases_of(grid_file, policy="rs", seeds=[7]), "seeds was .*, and is now .7."),
        (cases_of(grid_file, policy="rs", alpha="1"), 'fixed .* is now .*"alpha": 1'),
        (cases_of(other, policy="rs"), "grid of SplitDigits rs was"),
    ):
        with pytest.raises(RunError, match=f"holds another tuning: {expected}"):
            tune(cases, out, make_pool=pool)
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == files
    # Another policy or imbalance is added.
    tune(cases_of(grid_file, policy="infors", imbalance=3), out, make_pool=pool)
    tune(cases_of(grid_file, policy="rs"), out, make_pool=pool)
    assert [*load_tuned(out)] == [
        ("SplitDigits", "infors", 3),
        ("SplitDigits", "rs", 1),
    ]


def test_a_folder_of_something_else_is_refused(tmp_path: Path, grid_file: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"not the folder of a tuning: it has \w+\.\w+"):
        tune(cases_of(grid_file, policy="rs"), tmp_path, make_pool=FakePool(smooth))


def test_results_of_two_versions_are_not_mixed_unless_asked(
    tmp_path: Path, grid_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases, out = cases_of(grid_file, policy="rs"), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        tune(cases, out, make_pool=FakePool(smooth, dies_after=3))
    version = {"commit": "0123456789ab", "versions": {}}
    monkeypatch.setattr("agents.sweeps.sweep.code_version", lambda: version)
    for go in (tune, tune_with_optuna):
        options: dict[str, Any] = {} if go is tune else {"trials": 3}
        with pytest.raises(RunError, match="another version .*now 0123456789ab"):
            go(cases, out, make_pool=FakePool(smooth), **options)
    report = tune(cases, out, make_pool=FakePool(smooth), mixed=True)
    assert len(report.chosen[0]["made_by"]) == 2


def test_test_runs_of_an_earlier_choice_are_not_mixed_with_those_of_another(
    tmp_path: Path, grid_file: Path
) -> None:
    cases, out = cases_of(grid_file, policy="rs"), tmp_path / "out"
    tune(cases, out, make_pool=FakePool(smooth))
    run_tests(cases, out, [0], make_pool=FakePool(smooth))
    saved = (out / "tuned.json").read_text()
    (out / "tuned.json").write_text(saved.replace("0.1", "0.3"))
    with pytest.raises(RunError, match="learning_rate=0.1, now 0.3.: move or delete"):
        run_tests(cases, out, [1], make_pool=FakePool(smooth))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda text: text[: len(text) // 2], "is not a tuned.json of .*or is damaged"),
        (lambda text: "", "is not a tuned.json of 'info-replay tune', or is damaged$"),
        (lambda text: "env: SplitMNIST", "is not a tuned.json of 'info-replay tune'"),
        (lambda text: "[]", "is not a tuned.json of 'info-replay tune'"),
        (lambda text: "{}", "not a tuned.json of .*: it has no list of tuned settings"),
        (lambda text: '{"tuned": []}', "is not a tuned.json of .*: it has no list of"),
        (lambda text: '{"tuned": [3]}', "entry 1: expected names and values, got 3"),
        (lambda text: text.replace("policy", "polcy"), "entry 1: it has no 'policy'"),
        (lambda text: text.replace('"rs"', '"sr"'), "entry 1: policy must be .*'sr'"),
        (lambda text: text.replace("learning_rate", "lr"), "1: 'lr' is not a setting"),
        (lambda text: text.replace("learning_rate", "seed"), "entry 1: seed is not a"),
        (lambda text: text.replace(": 0.1\n", ': "x"\n'), "rate must be a finite"),
    ],
)
def test_a_damaged_file_of_tuned_settings_gets_one_line_and_is_not_overwritten(
    tmp_path: Path,
    grid_file: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[str], str],
    expected: str,
) -> None:
    cases, out = cases_of(grid_file, policy="rs"), tmp_path / "out"
    tune(cases, out, make_pool=FakePool(smooth))
    file = out / "tuned.json"
    file.write_text(damage(file.read_text()))
    damaged = file.read_text()
    command = "sweep --env SplitDigits --policy rs --seed 0".split()
    assert main([*command, "--tuned", str(file), "--out", str(tmp_path / "s")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(expected, line)
    assert not (tmp_path / "s").exists()
    with pytest.raises(RunError, match="delete it to have it made again"):
        tune(cases, out, make_pool=FakePool(smooth))
    assert file.read_text() == damaged


def test_a_sweep_says_which_runs_are_not_tuned(
    tmp_path: Path, grid_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune(cases_of(grid_file, policy="rs"), tmp_path / "out", make_pool=FakePool(smooth))
    tuned = ["--tuned", str(tmp_path / "out" / "tuned.json")]
    command = "sweep --env SplitDigits --seed 0 --policy".split()
    assert main([*command, "cbrs", *tuned, "--out", str(tmp_path / "s")]) == 2
    line = capsys.readouterr().err
    assert "has no settings for this sweep, only for SplitDigits, rs, imbalance 1" in (
        line
    )
    (tmp_path / "s").write_text("a file: nothing is run")
    assert main([*command, "rs,cbrs", *tuned, "--out", str(tmp_path / "s")]) == 2
    said = capsys.readouterr().err
    assert "not tuned, so with its preset: SplitDigits, cbrs, imbalance 1\n" in said


def test_a_stream_without_validation_data_cannot_be_tuned(
    tmp_path: Path, grid_file: Path
) -> None:
    class Blind(FakePool):
        def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, dict[str, Any]]]:
            for job, row in super().run(jobs):
                row["result"]["average"] = None
                yield job, row

    with pytest.raises(RunError, match="SplitDigits has nothing to validate on"):
        tune(cases_of(grid_file, policy="rs"), tmp_path / "o", make_pool=Blind(smooth))
