"""A run that was interrupted or killed ends as one that never was, to the byte."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.checkpoint import CheckpointError
from agents.cli import main
from agents.config import ExperimentConfig
from agents.experiment import Experiment
from agents.run_folder import RunError, RunFolder
from tests.agents.helpers import finish, outcome, small

REPOSITORY = Path(__file__).parents[2]


def stop_at(last: int) -> Callable[[int, int, float, float], None]:
    """A progress that presses Ctrl-C after a step."""

    def progress(step: int, *_: float) -> None:
        if step == last:
            signal.raise_signal(signal.SIGINT)

    return progress


def run_in_parts(config: ExperimentConfig, path: Path, stops: list[int]) -> None:
    """Run, with an interruption after each of some steps."""
    for number, stop in enumerate(stops):
        part = Experiment(config, RunFolder(path), resume=number > 0)
        with pytest.raises(KeyboardInterrupt):
            part.run(stop_at(stop))
        assert part.step == stop
        assert (path / "checkpoint.pt").exists()
        assert not (path / "result.json").exists()
    rest = Experiment(config, RunFolder(path), resume=True)
    assert rest.step == stops[-1]
    rest.run()
    assert not (path / "checkpoint.pt").exists()


@pytest.mark.parametrize(
    "chosen",
    [
        {"policy": "rs", "augmented": True},
        {"policy": "wrs"},
        {"policy": "cbrs"},
        {"policy": "gss"},
        {"policy": "fss-clust"},
        {"policy": "coreset"},
        {"policy": "infogs"},
        {"policy": "infogs-rs"},
        {"policy": "infors"},
        {"policy": "none"},
        {"policy": "infors", "env": "SplitDiabetes", "batch_size": 8},
        {"policy": "fss-clust", "env": "SplitDiabetes", "batch_size": 8},
        {"policy": "infors", "env": "DriftDigits", "decay": 0.9},
    ],
    ids=lambda chosen: "-".join(map(str, chosen.values())),
)
def test_an_interrupted_run_goes_on_to_the_bit(
    tmp_path: Path, chosen: dict[str, Any]
) -> None:
    config = small(**chosen)
    steps = finish(config, tmp_path / "whole")["steps_done"]
    stops = sorted({1, 2, steps // 2 + 1, steps})
    run_in_parts(config, tmp_path / "parts", stops)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_a_run_from_before_a_setting_existed_goes_on_to_the_bit(
    tmp_path: Path,
) -> None:
    config = small(policy="rs", steps=10)
    finish(config, tmp_path / "whole")
    path = tmp_path / "old"
    with pytest.raises(KeyboardInterrupt):
        Experiment(config, RunFolder(path)).run(stop_at(4))
    settings = RunFolder(path).read("config.json")
    del settings["coreset_parts"]
    RunFolder(path).write("config.json", settings)
    Experiment(config, RunFolder(path), resume=True).run()
    assert outcome(path) == outcome(tmp_path / "whole")


PLACES: dict[str, Callable[[Experiment], tuple[Any, str]]] = {
    "before predicting": lambda run: (run.agent, "act"),
    "before the stream goes on": lambda run: (run.env, "step"),
    "before learning": lambda run: (run.agent, "learn"),
    "before the gradient step": lambda run: (run.agent.optimizer, "step"),
    "before remembering": lambda run: (run.agent.memory, "extend"),
    "while evaluating": lambda run: (run.agent, "predict"),
    "while saving": lambda run: (run, "save"),
}


@pytest.mark.parametrize("place", PLACES)
def test_ctrl_c_may_come_at_any_moment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    config = small(policy="infors", steps=20, checkpoint_every=0.01)
    finish(config, tmp_path / "whole")
    folder = RunFolder(tmp_path / "parts")
    experiment = Experiment(config, folder)
    owner, name = PLACES[place](experiment)
    method = getattr(owner, name)
    calls: list[None] = []

    def interrupted(*given: Any, **named: Any) -> Any:
        calls.append(None)
        # The seventh call is after the first evaluation and in the middle of a later.
        if len(calls) == 7:
            signal.raise_signal(signal.SIGINT)
        return method(*given, **named)

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    assert len(calls) >= 7
    assert folder.checkpoint.exists()
    Experiment(config, folder, resume=True).run()
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_lines_that_a_killed_run_noted_late_are_noted_once(tmp_path: Path) -> None:
    config = small(policy="rs")
    finish(config, tmp_path / "whole")
    folder = RunFolder(tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        Experiment(config, folder).run(stop_at(20))
    with folder.metrics.open("a") as file:
        file.write('{"kind": "evaluation", "step": 27, "scores": [0.1\n{"ki')
    Experiment(config, folder, resume=True).run()
    assert outcome(folder.path) == outcome(tmp_path / "whole")


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    config = small(policy="rs", steps=10)
    finish(config, tmp_path / "whole")
    folder = RunFolder(tmp_path / "parts")
    folder.create(config)
    folder.metrics.write_text('{"kind": "evaluation", "st')
    Experiment(config, folder, resume=True).run()
    assert outcome(folder.path) == outcome(tmp_path / "whole")


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    config = small(policy="rs", steps=5)
    result = finish(config, tmp_path)
    before = outcome(tmp_path)
    seen: list[int] = []
    again = Experiment(config, RunFolder(tmp_path), resume=True)
    assert again.run(lambda step, *_: seen.append(step)) == result
    assert not seen
    assert outcome(tmp_path) == before


def test_a_run_killed_between_its_result_and_the_end_leaves_no_checkpoint(
    tmp_path: Path,
) -> None:
    config = small(policy="rs", steps=5)
    result = finish(config, tmp_path)
    (tmp_path / "checkpoint.pt").write_bytes(b"of an earlier step")
    assert Experiment(config, RunFolder(tmp_path), resume=True).run() == result
    assert not (tmp_path / "checkpoint.pt").exists()


def test_another_run_cannot_be_continued(tmp_path: Path) -> None:
    finish(small(policy="rs", steps=3), tmp_path)
    with pytest.raises(RunError, match="policy='rs' as one with policy='wrs'"):
        Experiment(small(policy="wrs", steps=3), RunFolder(tmp_path), resume=True)


# -- broken and full disks ------------------------------------------------------------


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fills_up_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(policy="infors", steps=20)
    finish(config, tmp_path / "whole")
    folder = RunFolder(tmp_path / "parts")
    experiment = Experiment(config, folder)

    def progress(step: int, *_: Any) -> None:
        if step == 6:
            experiment.save()
        if step == 13:
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", full)
                experiment.save()

    with pytest.raises(CheckpointError, match=r"No space left.*is kept"):
        experiment.run(progress)
    rest = Experiment(config, folder, resume=True)
    assert rest.step == 6
    rest.run()
    assert outcome(folder.path) == outcome(tmp_path / "whole")


@pytest.mark.parametrize("name", ["timing.json", "memory.pt", "result.json"])
def test_a_disk_that_is_full_at_the_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    config = small(policy="rs", steps=5)
    finish(config, tmp_path / "whole")
    folder = RunFolder(tmp_path / "parts")
    replace = os.replace

    def filling(source: Any, target: Any) -> None:
        if str(target).endswith(name):
            full()
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", filling)
        with pytest.raises((CheckpointError, RunError), match="No space left"):
            Experiment(config, folder).run()
    assert not folder.is_finished
    Experiment(config, folder, resume=True).run()
    assert outcome(folder.path) == outcome(tmp_path / "whole")


def test_a_damaged_checkpoint_is_named_and_kept(tmp_path: Path) -> None:
    config = small(policy="rs", steps=10)
    folder = RunFolder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        Experiment(config, folder).run(stop_at(4))
    content = folder.checkpoint.read_bytes()[:-1000]
    folder.checkpoint.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"is damaged.*Delete it"):
        Experiment(config, folder, resume=True)
    assert folder.checkpoint.read_bytes() == content
    folder.checkpoint.unlink()
    assert Experiment(config, folder, resume=True).run()["steps_done"] == 10


@pytest.mark.parametrize("wrong", ["a list", "no step", "other network", "nothing"])
def test_a_checkpoint_of_something_else_is_named_and_kept(
    tmp_path: Path, wrong: str
) -> None:
    config = small(policy="rs", steps=10)
    folder = RunFolder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        Experiment(config, folder).run(stop_at(4))
    state: Any = torch.load(folder.checkpoint, weights_only=True)
    if wrong == "a list":
        state = [1, 2]
    elif wrong == "no step":
        del state["step"]
    elif wrong == "other network":
        state["agent"]["network"] = {"weight": torch.ones(3)}
    else:
        state = {}
    torch.save(state, folder.checkpoint)
    before = folder.checkpoint.read_bytes()
    with pytest.raises(CheckpointError, match=str(folder.checkpoint)) as told:
        Experiment(config, folder, resume=True)
    assert "\n" not in str(told.value)
    assert folder.checkpoint.read_bytes() == before


# -- a real process, really killed ----------------------------------------------------

#: Runs each command that it is given in a process of its own, and tells its number and
#: how it ended. It imports torch, which takes seconds, once.
_STARTER = """
import json, os, sys
from agents.cli import main
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        sys.stderr = open(os.devnull, "w")
        os._exit(main(json.loads(line)))
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture
def starter() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _STARTER],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
    )
    with process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def kill_when(
    starter: subprocess.Popen[str], command: list[str], ready: Callable[[], bool]
) -> None:
    """Start a command in a new process and kill it at some moment."""
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write(json.dumps(command) + "\n")
    starter.stdin.flush()
    child = int(starter.stdout.readline())
    end = time.monotonic() + 60
    try:
        while not ready() and time.monotonic() < end:
            time.sleep(0.001)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    line = starter.stdout.readline()
    while not line.strip().isdigit():  # what the run printed
        assert line, "the starter is gone"
        line = starter.stdout.readline()
    assert int(line) == signal.SIGKILL, "the run was over before it was killed"


def test_a_process_that_is_killed_goes_on_to_the_bit(
    tmp_path: Path, starter: subprocess.Popen[str]
) -> None:
    options = ["train", "--env", "SplitDigits", "--policy", "infors", "--epochs", "12"]
    options += ["--threads", "1", "--checkpoint-every", "0.05"]
    folder = tmp_path / "killed"
    checkpoint, result = folder / "checkpoint.pt", folder / "result.json"

    def written(times: int) -> Callable[[], bool]:
        """Whether the checkpoint was seen in so many versions."""
        seen: set[int] = set()

        def ready() -> bool:
            if checkpoint.exists():
                seen.add(checkpoint.stat().st_mtime_ns)
            return len(seen) >= times

        return ready

    def half_written() -> bool:
        return any(folder.glob(".checkpoint.pt-*"))

    moments = [(folder / "config.json").exists, written(1), half_written, written(4)]
    for number, ready in enumerate(moments):
        resume = ["--resume"] * (number > 0)
        command = [*options, "--out", str(folder), *resume]
        kill_when(starter, command, lambda ready=ready: ready() or result.exists())
        assert not result.exists()
    assert checkpoint.exists()
    assert main([*options, "--out", str(folder), "--resume"]) == 0
    assert main([*options, "--out", str(tmp_path / "whole")]) == 0
    assert outcome(folder) == outcome(tmp_path / "whole")
