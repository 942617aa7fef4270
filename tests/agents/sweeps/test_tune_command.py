"""``info-replay tune``: the commands that it ends with work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from agents.cli import main
from agents.commands import tune as command
from agents.sweeps import make_jobs
from agents.sweeps.tuning_file import load_tuned
from tests.agents.sweeps.test_tuning import FakePool, smooth


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A grid whose runs need no time."""
    monkeypatch.setattr(command, "_pool", lambda _: FakePool(smooth))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "grid.yaml"
    path.write_text("learning_rate: [0.03, 0.1]\n")
    return path


def ran(capsys: pytest.CaptureFixture[str], options: str, grid: Path) -> str:
    words = shlex.split(f"tune --env SplitDigits {options} --grid {grid}")
    assert main(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            "--policy rs,infors --imbalance 1,10",
            "--policy rs,infors --imbalance 1,10 --seed 0-9 --tuned "
            "tuning/SplitDigits/tuned.json",
        ),
        (
            "--policy rs --epochs 1 --device cpu --out 'my tuning'",
            "--policy rs --imbalance 1 --seed 0-9 --device cpu --tuned "
            "'my tuning/tuned.json'",
        ),
        (
            "--policy rs --seeds 0-4",  # a test has others
            "--policy rs --imbalance 1 --seed 5-14 --tuned "
            "tuning/SplitDigits/tuned.json",
        ),
    ],
)
def test_the_sweep_with_the_chosen_settings_is_told_in_full(
    options: str,
    expected: str,
    grid: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = ran(capsys, options, grid)
    (line,) = re.findall("^use them: (.*)$", said, re.MULTILINE)
    assert line == f"info-replay sweep --env SplitDigits {expected}"
    done: list[Any] = []
    monkeypatch.setattr(
        "agents.commands.sweep._run", lambda jobs, *_: done.extend(jobs) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        main(shlex.split(line)[1:])
    words = dict(zip(shlex.split(line)[2::2], shlex.split(line)[3::2], strict=True))
    tuned = load_tuned(words.pop("--tuned"))
    given = {name.strip("-"): value for name, value in words.items()}
    assert {job.key for job in done} == {job.key for job in make_jobs(given, tuned)}
    assert {job.config.learning_rate for job in done} == {0.1}


def test_a_test_is_followed_by_the_command_that_shows_its_table(
    grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ran(capsys, "--policy rs --test 0-2", grid)
    assert "--seed 0,1,2 --tuned" in said
    *_, line = said.splitlines()
    assert line == "see it: info-replay show tuning/SplitDigits/test"


def test_the_help_says_that_optuna_runs_on_this_machine_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "it runs on this machine only" in said
