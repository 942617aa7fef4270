"""Many runs as one: each done once, whatever happens in between."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.cli import main
from agents.runs.folder import RunError, RunFolder
from agents.supervised.callbacks import Callback, Run
from agents.supervised.config import ExperimentConfig
from agents.supervised.experiment import Experiment
from agents.supervised.snapshots import read_snapshots
from agents.sweeps import load_results, make_jobs, run_sweep
from agents.sweeps.results import read_rows

REPOSITORY = Path(__file__).parents[3]
GRID = {"env": "SplitDigits", "epochs": 1, "policy": "rs,infors", "seed": "0-1"}


class Dies(Callback):
    """Ends the process in the middle of a run of the policy rs."""

    def on_step(self, experiment: Run, reward: float) -> None:
        if experiment.config.policy == "rs" and experiment.step == 3:
            print("about to die", flush=True)
            os._exit(7)


class Fails(Callback):
    """Raises in the middle of a run."""

    def on_step(self, experiment: Run, reward: float) -> None:
        if experiment.step == 3:
            raise RuntimeError("this was meant to fail")


def table(folder: Path) -> dict[str, Any]:
    """Results without times."""
    return {
        row["key"]: (row["result"], row["evaluations"]) for row in read_rows(folder)
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that ran through."""
    folder = tmp_path_factory.mktemp("sweep")
    report = run_sweep(make_jobs(GRID), folder)
    assert (report.total, report.finished, report.failed) == (4, 4, {})
    return folder


def test_the_rows_are_what_single_runs_give(whole: Path) -> None:
    for job in make_jobs(GRID):
        result = Experiment(job.config).run()
        assert table(whole)[job.key][0] == json.loads(json.dumps(result))


def test_results_are_a_data_frame_with_settings_versions_and_commit(
    whole: Path,
) -> None:
    frame = load_results(whole)
    assert len(frame) == 4
    assert {*frame["method"]} == {"rs", "infors"}
    for name in ExperimentConfig.preset("SplitDigits").what_matters():
        assert name in frame or name == "metrics"
    assert frame["average"].between(0, 1).all()
    assert frame["torch_version"].nunique() == frame["commit"].nunique() == 1
    assert (frame["seconds"] > 0).all()
    assert {len(series) for series in frame["evaluations"]} == {6}  # before and 5 tasks


def test_what_is_finished_is_not_done_again(whole: Path) -> None:
    before = (whole / "results.jsonl").read_bytes()
    told = []
    report = run_sweep(make_jobs(GRID), whole, progress=lambda job, _: told.append(job))
    assert (report.finished, told) == (4, [None])
    assert (whole / "results.jsonl").read_bytes() == before


def test_a_killed_sweep_goes_on_to_the_same_table(whole: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "agents.cli", "sweep", "--out", str(tmp_path)]
    for name, values in GRID.items():
        command += [f"--{name}", str(values)]
    rng = random.Random(0)
    for _ in range(3):
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(rng.uniform(2, 7))
        process.kill()
        process.wait()
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    assert table(tmp_path) == table(whole)
    assert not [*(tmp_path / "runs").iterdir()]


def test_a_run_in_progress_goes_on_from_its_checkpoint(
    whole: Path, tmp_path: Path
) -> None:
    (job, *_) = make_jobs(GRID)
    folder = tmp_path / "runs" / job.key
    experiment = Experiment(job.config, RunFolder(folder))
    while experiment.step < 20:
        if experiment.step in (0, *experiment.evaluation_steps):
            experiment.evaluate()
        experiment.advance()
    experiment.save()
    experiment.folder.release()  # type: ignore[union-attr]
    begun = os.stat(folder / "config.json").st_mtime_ns
    run_sweep([job], tmp_path, keep=True)
    assert os.stat(folder / "config.json").st_mtime_ns == begun
    assert table(tmp_path)[job.key] == table(whole)[job.key]


def test_runs_that_are_kept_have_their_memories_along_the_way(
    whole: Path, tmp_path: Path
) -> None:
    jobs = make_jobs({**GRID, "policy": "rs,none", "seed": 0})
    assert [job.with_snapshots().key for job in jobs] == [job.key for job in jobs]
    run_sweep(jobs, tmp_path, keep=True)
    found = table(tmp_path)
    for job in jobs:
        result, series = found[job.key]
        snapshots = read_snapshots(tmp_path / "runs" / job.key)
        if job.config.policy == "none":
            assert snapshots == {}
            continue
        assert [*snapshots] == result["task_ends"]
        assert found[job.key] == table(whole)[job.key]
        for entry in series[1:]:  # not before the first step
            labels = snapshots[entry["step"]]["target"]
            counts = np.bincount(labels, minlength=10)
            assert counts.tolist() == entry["class_counts"]
    # Without keep, nothing stays.
    assert not [*whole.rglob("memories")]


def test_a_run_that_fails_is_told_of_and_stops_no_other(
    whole: Path, tmp_path: Path
) -> None:
    callback = f"{__name__}:Fails"
    bad = make_jobs({**GRID, "policy": "rs", "capacity": 7, "callback": callback})
    report = run_sweep([*make_jobs(GRID), *bad], tmp_path)
    assert (report.finished, len(report.failed)) == (4, 2)
    assert table(tmp_path) == table(whole)
    for reason, log in report.failed.values():
        assert "seed" in reason
        assert "this was meant to fail" in reason
        assert "Traceback" in log.read_text()


def test_a_process_that_dies_costs_its_own_run_only(
    whole: Path, tmp_path: Path
) -> None:
    jobs = make_jobs({**GRID, "callback": f"{__name__}:Dies"})
    report = run_sweep(jobs, tmp_path, workers=1)
    assert (report.finished, len(report.failed)) == (2, 2)
    for reason, log in report.failed.values():
        assert "ended with exit code 7" in reason
        assert "about to die" in log.read_text()
    assert {result["policy"] for result, _ in table(tmp_path).values()} == {"infors"}


def test_interrupting_says_how_to_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "agents.cli", "sweep", "--out", str(tmp_path)]
    command += ["--env", "SplitDigits", "--policy", "infors", "--epochs", "400"]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    runs = tmp_path / "runs"
    while not [*runs.glob("*/versions.json")]:
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(1)  # the first steps
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "to go on: info-replay sweep --out" in said
    assert [*runs.glob("*/checkpoint.pt")]


# -- bad input ------------------------------------------------------------------------


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["sweep", *arguments]) == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "error" in each]
    return line


def test_wrong_options_get_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "give a file, or values" in said(capsys)
    assert "there is no file nothing.yaml" in said(capsys, "nothing.yaml")
    (tmp_path / "odd.yaml").write_text("[1, 2")
    assert "odd.yaml is not YAML" in said(capsys, str(tmp_path / "odd.yaml"))
    (tmp_path / "list.yaml").write_text("[1, 2]")
    assert "must have names and values" in said(capsys, str(tmp_path / "list.yaml"))
    (tmp_path / "word.yaml").write_text("colour: red")
    assert "'colour' is not a setting" in said(capsys, str(tmp_path / "word.yaml"))
    assert "engine must be one of" in said(capsys, "--seed", "0", "--engine", "moon")
    assert "workers must be at least 1" in said(capsys, "--seed", "0", "--workers", "0")


def test_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("words")
    with pytest.raises(
        RunError, match=r"not the folder of a sweep: it has thesis\.tex"
    ):
        run_sweep(make_jobs(GRID), tmp_path)
    with pytest.raises(RunError, match=r"it has no results\.jsonl"):
        load_results(tmp_path)


def copied(whole: Path, folder: Path) -> Path:
    folder.mkdir()
    file = folder / "results.jsonl"
    file.write_bytes((whole / "results.jsonl").read_bytes())
    return file


def test_results_of_two_versions_are_not_mixed(whole: Path, tmp_path: Path) -> None:
    file = copied(whole, tmp_path / "old")
    rows = [json.loads(line) for line in file.read_text().splitlines()][:2]
    for row in rows:
        row["commit"] = "0123456789ab"
    content = "".join(json.dumps(row) + "\n" for row in rows)
    file.write_text(content)
    with pytest.raises(RunError, match="another version .commit 0123456789ab, now"):
        run_sweep(make_jobs(GRID), file.parent)
    assert file.read_text() == content
    run_sweep(make_jobs(GRID), file.parent, mixed=True)
    assert table(file.parent) == table(whole)


def test_a_line_that_was_cut_is_done_again(whole: Path, tmp_path: Path) -> None:
    file = copied(whole, tmp_path / "cut")
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(RunError, match="cut short in line 4: run its sweep again"):
        load_results(file.parent)
    run_sweep(make_jobs(GRID), file.parent)
    assert table(file.parent) == table(whole)


@pytest.mark.parametrize("separator", [b"\n", b"x"])
def test_a_file_of_something_else_is_damaged_in_line_1_and_not_cut_short(
    separator: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "results.jsonl"
    content = random.Random(0).randbytes(3000).replace(b"\n", separator)
    file.write_bytes(content)
    for read in (load_results, lambda path: run_sweep(make_jobs(GRID), path)):
        with pytest.raises(RunError, match="damaged: line 1 is not a result of a run"):
            read(tmp_path)
    assert file.read_bytes() == content


def test_results_can_be_kept_compressed(whole: Path, tmp_path: Path) -> None:
    packed = tmp_path / "results.jsonl.gz"
    packed.write_bytes(gzip.compress((whole / "results.jsonl").read_bytes()))
    assert load_results(packed).equals(load_results(whole))
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(RunError, match=f"^cannot read {packed}"):
        load_results(packed)


@pytest.mark.parametrize("damage", ["{}", "null", '{"key": "a', "[1]"])
def test_a_damaged_line_is_named_and_nothing_is_lost(
    damage: str, whole: Path, tmp_path: Path
) -> None:
    file = copied(whole, tmp_path / "damaged")
    first, _, *rest = file.read_text().splitlines()
    content = "\n".join([first, damage, *rest, ""])
    file.write_text(content)
    for read in (load_results, lambda path: run_sweep(make_jobs(GRID), path)):
        with pytest.raises(RunError, match="line 2 is not a result of a run"):
            read(file.parent)
    assert file.read_text() == content


def test_two_sweeps_of_one_folder_are_kept_apart(tmp_path: Path) -> None:
    def again(*_: Any) -> None:
        with pytest.raises(RunError, match="another sweep is at work"):
            run_sweep(make_jobs(GRID), tmp_path)

    run_sweep(make_jobs({**GRID, "seed": 0, "policy": "rs"}), tmp_path, progress=again)
