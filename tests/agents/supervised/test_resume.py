"""A run that was interrupted or killed ends as one that never was, byte for byte."""

from __future__ import annotations

import contextlib
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

from agents.cli import main
from agents.runs.checkpoint import CheckpointError
from agents.runs.folder import RunError, RunFolder
from agents.supervised.config import ExperimentConfig
from agents.supervised.experiment import Experiment
from tests.agents.runs.test_files import full
from tests.agents.supervised.helpers import file_names, finish, outcome, small

REPOSITORY = Path(__file__).parents[3]
#: A run that most tests here interrupt somewhere.
CONFIG = small(policy="infors", steps=20, checkpoint_every=1e-6)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """The files of that run, never interrupted."""
    path = tmp_path_factory.mktemp("whole") / "run"
    finish(CONFIG, path)
    return outcome(path)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def stop_at(last: int) -> Callable[[int, int, float, float], None]:
    """A progress that presses Ctrl-C after a step."""

    def progress(step: int, *_: float) -> None:
        if step == last:
            signal.raise_signal(signal.SIGINT)

    return progress


def interrupt(config: ExperimentConfig, folder: RunFolder, stop: int) -> None:
    """Run, or go on, until some step."""
    part = Experiment(config, folder, resume=folder.path.exists())
    with pytest.raises(KeyboardInterrupt):
        part.run(stop_at(stop))
    assert part.step == stop
    assert folder.checkpoint.exists()
    assert not folder.is_finished


def go_on(folder: RunFolder, config: ExperimentConfig = CONFIG) -> dict[str, Any]:
    return Experiment(config, folder, resume=True).run()


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
        {"policy": "infors", "env": "DriftDigits", "decay": 0.9, "criterion": "ig"},
    ],
    ids=lambda chosen: "-".join(map(str, chosen.values())),
)
def test_an_interrupted_run_goes_on_bit_for_bit(
    tmp_path: Path, folder: RunFolder, chosen: dict[str, Any]
) -> None:
    config = small(**chosen, steps=24)
    finish(config, tmp_path / "whole")
    for stop in (1, 2, 13, 24):
        interrupt(config, folder, stop)
    go_on(folder, config)
    assert not folder.checkpoint.exists()
    assert outcome(folder.path) == outcome(tmp_path / "whole")


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
    folder: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    whole: tuple[bytes, bytes],
) -> None:
    experiment = Experiment(CONFIG, folder)
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
    go_on(folder)
    assert outcome(folder.path) == whole


def forget_a_setting(folder: RunFolder) -> None:
    settings = folder.read("config.json")
    del settings["criterion"], settings["coreset_parts"]
    folder.write("config.json", settings)


def note_half_a_line(folder: RunFolder) -> None:
    with folder.metrics.open("a") as file:
        file.write('{"kind": "evaluation", "step": 17, "scores": [0.1\n{"ki')


def leave_half_a_file(folder: RunFolder) -> None:
    name = f".checkpoint.pt-{32 * 'a'}.partial"
    (folder.path / name).write_bytes(b"half of it")


def lose_the_checkpoint(folder: RunFolder) -> None:
    """What a run is that was killed before its first one."""
    folder.checkpoint.unlink()


@pytest.mark.parametrize(
    "change",
    [forget_a_setting, note_half_a_line, leave_half_a_file, lose_the_checkpoint],
)
def test_a_run_goes_on_from_what_an_old_version_or_a_killed_process_left(
    folder: RunFolder, change: Callable[[RunFolder], None], whole: tuple[bytes, bytes]
) -> None:
    interrupt(CONFIG, folder, 12)
    change(folder)
    go_on(folder)
    assert outcome(folder.path) == whole
    assert not [name for name in file_names(folder.path) if name.startswith(".")]


def test_a_finished_run_is_not_run_again(folder: RunFolder) -> None:
    result = finish(CONFIG, folder.path)
    before = outcome(folder.path)
    folder.checkpoint.write_bytes(b"of a process that was killed at the very end")
    again = Experiment(CONFIG, folder, resume=True)
    seen: list[int] = []
    assert again.run(lambda step, *_: seen.append(step)) == result
    assert not seen
    assert outcome(folder.path) == before
    assert not folder.checkpoint.exists()


@pytest.mark.parametrize("name", ["result.json", "network.pt", "memory.pt"])
@pytest.mark.parametrize(
    "content", [b"null", b"{}", b"", b'{"steps_done": 20}', b'{"steps_done": null}']
)
def test_nothing_good_is_deleted_because_something_else_is_bad(
    folder: RunFolder, name: str, content: bytes, whole: tuple[bytes, bytes]
) -> None:
    interrupt(CONFIG, folder, 12)
    checkpoint, events = folder.checkpoint.read_bytes(), folder.metrics.read_bytes()
    go_on(folder)
    # Killed at the very end, before the checkpoint was deleted; then a disk went bad.
    folder.checkpoint.write_bytes(checkpoint)
    (folder.path / name).write_bytes(content)
    before = {each: each.read_bytes() for each in folder.path.iterdir()}
    with pytest.raises((RunError, CheckpointError), match=f"{name} is") as told:
        Experiment(CONFIG, folder, resume=True)
    assert "\n" not in str(told.value)
    assert {each: each.read_bytes() for each in folder.path.iterdir()} == before
    assert folder.metrics.read_bytes().startswith(events)
    # What the message advises helps.
    (folder.path / "result.json").unlink()
    go_on(folder)
    assert outcome(folder.path) == whole


@pytest.mark.parametrize("name", ["timing.json", "network.pt", "memory.pt"])
def test_a_checkpoint_stays_while_a_file_of_the_finished_run_is_missing(
    folder: RunFolder, name: str
) -> None:
    finish(CONFIG, folder.path)
    folder.checkpoint.write_bytes(b"of a process that was killed at the very end")
    (folder.path / name).unlink()
    with pytest.raises((RunError, CheckpointError), match=name):
        Experiment(CONFIG, folder, resume=True)
    assert folder.checkpoint.exists()


def test_without_a_folder_an_interrupted_run_does_not_say_that_it_was_saved() -> None:
    with pytest.raises(KeyboardInterrupt, match="^SIGINT at step 3$"):
        Experiment(CONFIG).run(stop_at(3))


def test_another_run_cannot_be_continued(folder: RunFolder) -> None:
    finish(small(policy="rs", steps=3), folder.path)
    with pytest.raises(RunError, match="policy='rs' as one with policy='wrs'"):
        Experiment(small(policy="wrs", steps=3), folder, resume=True)


# -- broken and full disks ------------------------------------------------------------


def test_a_disk_that_fills_up_costs_nothing_but_time(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, whole: tuple[bytes, bytes]
) -> None:
    experiment = Experiment(small(policy="infors", steps=20), folder)

    def progress(step: int, *_: Any) -> None:
        if step == 6:
            experiment.save()
        if step == 13:
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", full)
                experiment.save()

    with pytest.raises(RunError, match=r"No space left.*is kept"):
        experiment.run(progress)
    rest = Experiment(CONFIG, folder, resume=True)
    assert rest.step == 6
    rest.run()
    assert outcome(folder.path) == whole


@pytest.mark.parametrize("name", ["timing.json", "memory.pt", "result.json"])
def test_a_disk_that_is_full_at_the_end_is_named(
    folder: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    whole: tuple[bytes, bytes],
) -> None:
    replace = os.replace

    def filling(source: Any, target: Any) -> None:
        if str(target).endswith(name):
            full()
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", filling)
        with pytest.raises((CheckpointError, RunError), match="No space left"):
            Experiment(CONFIG, folder).run()
    assert not folder.is_finished
    go_on(folder)
    assert outcome(folder.path) == whole


def change_nothing_but_the_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def replace_the_state(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        torch.save(change(torch.load(path, weights_only=True)), path)

    return apply


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (change_nothing_but_the_end, "is damaged.*Delete it"),
        (replace_the_state(lambda _: [1, 2]), "does not fit this run"),
        (replace_the_state(lambda _: {}), "does not fit this run"),
        (replace_the_state(lambda s: {**s, "agent": {}}), "no 'network'"),
        (
            replace_the_state(
                lambda s: {
                    **s,
                    "agent": {**s["agent"], "network": {"weight": torch.ones(3)}},
                }
            ),
            "does not fit this run",
        ),
    ],
)
def test_a_checkpoint_that_is_none_is_named_and_kept(
    folder: RunFolder, spoil: Callable[[Path], None], expected: str
) -> None:
    interrupt(CONFIG, folder, 4)
    spoil(folder.checkpoint)
    before = folder.checkpoint.read_bytes()
    with pytest.raises(CheckpointError, match=expected) as told:
        Experiment(CONFIG, folder, resume=True)
    assert str(folder.checkpoint) in str(told.value)
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
os._exit(0)
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


def test_a_process_that_is_killed_goes_on_bit_for_bit(
    tmp_path: Path, starter: subprocess.Popen[str]
) -> None:
    options = ["train", "--env", "SplitDigits", "--policy", "infors", "--epochs", "6"]
    options += ["--threads", "1", "--checkpoint-every", "0.05"]
    folder = tmp_path / "killed"
    checkpoint, result = folder / "checkpoint.pt", folder / "result.json"
    seen: set[int] = set()

    def written_twice() -> bool:
        if checkpoint.exists():
            seen.add(checkpoint.stat().st_mtime_ns)
        return len(seen) >= 2

    def half_written() -> bool:
        return any(folder.glob(".checkpoint.pt-*"))

    moments = [(folder / "config.json").exists, half_written, written_twice]
    for number, ready in enumerate(moments):
        resume = ["--resume"] * (number > 0)
        command = [*options, "--out", str(folder), *resume]
        kill_when(starter, command, lambda ready=ready: ready() or result.exists())
        assert not result.exists()
    assert checkpoint.exists()
    assert main([*options, "--out", str(folder), "--resume"]) == 0
    assert main([*options, "--out", str(tmp_path / "whole")]) == 0
    assert outcome(folder) == outcome(tmp_path / "whole")
