"""``info-replay sweep``: what it says, and what it refuses, in one line."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.cli import main
from agents.sweeps import make_jobs, run_sweep
from agents.sweeps.local_pool import run_folder
from tests.agents.sweeps.test_tuning import FakePool, smooth

GRID = {"env": "SplitDigits", "policy": "rs,cbrs", "seed": "0"}
METHODS = (
    "env: SplitDigits\nmethods:\n  A: {policy: rs, seed: 5}\n  B: {policy: cbrs}\n"
)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The only line that a command says, which is an error."""
    assert main(["sweep", *map(str, arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def finished(folder: Path) -> list[Any]:
    """A sweep without folders of runs."""
    jobs = make_jobs(GRID)
    run_sweep(jobs, folder, make_pool=FakePool(smooth))
    return jobs


def options(grid: dict[str, str]) -> list[str]:
    return [word for name, value in grid.items() for word in (f"--{name}", value)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("split_mnst", "split_mini_imagenet, split_mnist; did you mean 'split_mnist'?"),
        (
            "split-mnist.yaml",
            "no file split-mnist.yaml; the paper's are permuted_mnist, ",
        ),
        ("qqq", "there is no file qqq; the paper's are permuted_mnist, split_"),
        ("FOLDER", "is a folder: expected a YAML file"),
        ("FOLDER/s.yaml --policy rs", "policy is given, but these methods have their"),
        ("FOLDER/s.yaml --policy rs", "their own: A; B"),
        ("FOLDER/twice.yaml", "twice.yaml: 'A' is there twice, again in line 3"),
        ("FOLDER/s.yaml --seed 0-1000000000", "seed must have at most 100000 values"),
        ("--seed -1,0,2", "seed must be at least 0"),
        ("--tuned FOLDER/s.yaml --seed 0", "is not a tuned.json of 'info-replay tune'"),
        ("--seed 0 --out FOLDER/tuning/grid", "is in the folder of a tuning: give ano"),
        ("--seed 0 --out FOLDER/tuning/new", "is in the folder of a tuning: give ano"),
    ],
)
def test_what_cannot_be_run_gets_one_line_and_changes_nothing(
    arguments: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(METHODS)
    (tmp_path / "twice.yaml").write_text("methods:\n  A: {}\n  A: {}\n")
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "tuning.json").write_text("{}")
    before = {*tmp_path.rglob("*")}
    words = arguments.replace("FOLDER", str(tmp_path)).split()
    assert expected in refused(capsys, *words)
    assert {*tmp_path.rglob("*")} == before


def test_a_method_without_any_of_the_given_seeds_is_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text(METHODS)
    out = tmp_path / "out"
    expected = make_jobs(
        {"env": "SplitDigits", "seed": 7, "methods": {"B": {"policy": "cbrs"}}}
    )
    run_sweep(expected, out, make_pool=FakePool(smooth))
    command = [str(tmp_path / "s.yaml"), "--seed", "7", "--out", str(out)]
    assert main(["sweep", *command]) == 0
    told = capsys.readouterr()
    assert "1 of 1 runs finished" in told.out
    assert "no run with these values: A\n" in told.err


def test_the_last_line_is_the_command_that_shows_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my sweep"
    finished(out)
    assert main(["sweep", *options(GRID), "--out", str(out)]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert line == f"see it: info-replay show '{out}'"
    assert main(shlex.split(line.partition("info-replay ")[2])) == 0


def test_what_is_true_or_false_needs_no_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    expected = make_jobs({**GRID, "validation": True, "augmented": False})
    run_sweep(expected, out, make_pool=FakePool(smooth))
    before = (out / "results.jsonl").read_bytes()
    command = [*options(GRID), "--validation", "--augmented", "off", "--out", str(out)]
    assert main(["sweep", *command]) == 0
    assert (out / "results.jsonl").read_bytes() == before  # these are its runs
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(GRID))
    file = str(tmp_path / "s.yaml")
    command = ["--augmented", "off", "--validation", file, "--out", str(out)]
    assert main(["sweep", *command]) == 0  # the file is not a value of the option
    assert (out / "results.jsonl").read_bytes() == before
    capsys.readouterr()
    assert "validation must be true or false, got 'treu'" in refused(
        capsys, *options(GRID), "--validation", "treu"
    )


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (0, "2 runs were finished without --keep: their folders are gone; give "),
        (1, "1 run was finished without --keep: its folder is gone; give another"),
        (2, None),
    ],
)
def test_runs_that_were_finished_without_keep_are_told_of(
    kept: int,
    expected: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = finished(tmp_path)
    for job in jobs[:kept]:
        run_folder(tmp_path, job).mkdir(parents=True)
    assert main(["sweep", *options(GRID), "--out", str(tmp_path), "--keep"]) == 0
    said = capsys.readouterr().err
    assert (expected or "") in said
    assert ("without --keep" in said) == (expected is not None)
    assert main(["sweep", *options(GRID), "--out", str(tmp_path)]) == 0
    assert "without --keep" not in capsys.readouterr().err
