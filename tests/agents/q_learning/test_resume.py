"""A run of Q-learning that was interrupted or killed ends as one that never was."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from torchrl.data import (
    LazyTensorStorage,
    SamplerWithoutReplacement,
    TensorDictReplayBuffer,
)

from agents.cli import main
from agents.q_learning.config import DQNConfig
from agents.q_learning.experiment import DQNExperiment
from agents.runs.checkpoint import CheckpointError
from agents.runs.folder import RunError, RunFolder

from .helpers import IMAGES, SMALL, small

REPOSITORY = Path(__file__).parents[3]
#: A run that most tests here interrupt somewhere: two tasks, all in 160 frames.
CONFIG = small(lengths="60,60", frames=160, evaluations=3, recent=0.25)
_FILES = ("result.json", "metrics.jsonl", "network.pt")


def outcome(path: Path) -> dict[str, Any]:
    """All that a run leaves but its times, with every tensor as its bytes.

    Not compared: the order of entries, which depends on the process, as sets have it.
    """
    memory = torch.load(path / "memory.pt", weights_only=True)
    files = {name: (path / name).read_bytes() for name in _FILES}
    return {**files, "memory.pt": as_bytes(memory)}


def as_bytes(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return str(state.dtype), state.shape, state.numpy().tobytes()
    if isinstance(state, dict):
        return {key: as_bytes(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [as_bytes(value) for value in state]
    return state


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The files of that run, never interrupted."""
    path = tmp_path_factory.mktemp("whole") / "run"
    DQNExperiment(CONFIG, RunFolder(path)).run()
    return outcome(path)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def interrupt(
    config: DQNConfig,
    folder: RunFolder,
    stop: int,
    number: signal.Signals = signal.SIGINT,
) -> None:
    """Run, or go on, until some frame."""

    def progress(frame: int, *_: Any) -> None:
        if frame == stop:
            signal.raise_signal(number)

    part = DQNExperiment(config, folder, resume=folder.path.exists())
    with pytest.raises(
        KeyboardInterrupt, match=f"{number.name} at frame {stop}, saved"
    ):
        part.run(progress)
    assert folder.checkpoint.exists()
    assert not folder.is_finished


def go_on(folder: RunFolder, config: DQNConfig = CONFIG) -> dict[str, Any]:
    return DQNExperiment(config, folder, resume=True).run()


@pytest.mark.parametrize(
    "chosen",
    [
        {"policy": "infors"},
        {"policy": "infors", "recent": 0.25, "target": "td", "double": True},
        {"policy": "rs", "recent": 0.25},
        {"policy": "fifo"},
        {"policy": "prioritized"},
        {"policy": "info_replay:ReservoirWriter"},
        {"policy": "infors", "env": "CartPole-v1", "lengths": None},
        {"policy": "infors", "env": IMAGES, "lengths": None, "capacity": 30},
    ],
    ids=lambda chosen: "-".join(map(str, chosen.values())),
)
def test_an_interrupted_run_goes_on_bit_for_bit(
    tmp_path: Path, folder: RunFolder, chosen: dict[str, Any]
) -> None:
    config = small(**{"lengths": "60,60", "frames": 160, "evaluations": 3, **chosen})
    torch.manual_seed(1)  # nothing depends on what others draw
    DQNExperiment(config, RunFolder(tmp_path / "whole")).run()
    for stop in (8, 24, 56, 104, 160):  # before learning, evaluated, ..., at the end
        torch.manual_seed(stop)
        interrupt(config, folder, stop)
    go_on(folder, config)
    assert not folder.checkpoint.exists()
    assert outcome(folder.path) == outcome(tmp_path / "whole")


PLACES: dict[str, Callable[[DQNExperiment], tuple[Any, str]]] = {
    "before collecting": lambda run: (run.agent.rollout, "collect"),
    "before storing": lambda run: (run.agent.memory, "extend"),
    "before learning": lambda run: (run.agent, "learn"),
    "before the gradient step": lambda run: (run.agent.optimizer, "step"),
    "before the target follows": lambda run: (run.agent.target_updater, "step"),
    "while saving": lambda run: (run, "save"),
}


@pytest.mark.parametrize("place", PLACES)
def test_sigterm_may_come_at_any_moment(
    folder: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    whole: dict[str, Any],
) -> None:
    often = small(
        lengths="60,60", frames=160, evaluations=3, recent=0.25, checkpoint_every=1e-6
    )
    experiment = DQNExperiment(often, folder)
    owner, name = PLACES[place](experiment)
    method = getattr(owner, name)
    calls: list[None] = []

    def interrupted(*given: Any, **named: Any) -> Any:
        calls.append(None)
        if len(calls) == 7:
            signal.raise_signal(signal.SIGTERM)
        return method(*given, **named)

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        experiment.run()
    assert len(calls) >= 7
    go_on(folder)  # with another interval, which changes nothing
    assert outcome(folder.path) == whole


def note_half_a_line(folder: RunFolder) -> None:
    with folder.metrics.open("a") as file:
        file.write('{"kind": "evaluation", "frame": 99, "returns": [0.1\n{"ki')


def lose_the_checkpoint(folder: RunFolder) -> None:
    """What a run is that was killed before its first one."""
    folder.checkpoint.unlink()


@pytest.mark.parametrize("change", [note_half_a_line, lose_the_checkpoint])
def test_a_run_goes_on_from_what_a_killed_process_left(
    folder: RunFolder, change: Callable[[RunFolder], None], whole: dict[str, Any]
) -> None:
    interrupt(CONFIG, folder, 104)
    change(folder)
    go_on(folder)
    assert outcome(folder.path) == whole


def test_a_finished_run_is_not_run_again(
    folder: RunFolder, whole: dict[str, Any]
) -> None:
    result = DQNExperiment(CONFIG, folder).run()
    folder.checkpoint.write_bytes(b"of a process that was killed at the very end")
    assert go_on(folder) == result
    assert not folder.checkpoint.exists()
    assert outcome(folder.path) == whole


DAMAGED = [
    *(("result.json", content) for content in ('{"frames": 1', "null", "{}", "")),
    ("result.json", '{"evaluations": [], "frames": 5}'),
    ("result.json", '{"evaluations": []}'),
    ("result.json", '{"evaluations": [], "frames": null}'),
    ("result.json", '{"evaluations": [{"frame": 5}], "frames": 5}'),
    *(("timing.json", content) for content in ("", '{"learning": null}')),
    ("metrics.jsonl", "{"),
    *((name, "{}") for name in ("network.pt", "memory.pt")),
    *((name, None) for name in ("timing.json", "network.pt", "memory.pt")),
]


@pytest.mark.parametrize(("name", "content"), DAMAGED)
def test_nothing_good_is_deleted_because_something_else_is_bad(
    folder: RunFolder, name: str, content: str | None, whole: dict[str, Any]
) -> None:
    interrupt(CONFIG, folder, 104)
    checkpoint = folder.checkpoint.read_bytes()
    go_on(folder)
    # Killed at the very end, before the checkpoint was deleted; then a disk went bad.
    folder.checkpoint.write_bytes(checkpoint)
    if content is None:
        (folder.path / name).unlink()
    else:
        (folder.path / name).write_text(content)
    before = {each: each.read_bytes() for each in folder.path.iterdir()}
    with pytest.raises((RunError, CheckpointError), match=name) as told:
        DQNExperiment(CONFIG, folder, resume=True)
    assert "\n" not in str(told.value)
    if name == "result.json":
        assert f"Delete {folder.path / name} to go on" in str(told.value)
    assert {each: each.read_bytes() for each in folder.path.iterdir()} == before
    if name != "metrics.jsonl":
        (folder.path / "result.json").unlink()
        go_on(folder)
        assert outcome(folder.path) == whole


@pytest.mark.parametrize("result", [c for n, c in DAMAGED if n == "result.json"])
def test_a_result_that_is_none_costs_no_checkpoint(
    folder: RunFolder, result: str
) -> None:
    interrupt(CONFIG, folder, 104)
    (folder.path / "result.json").write_text(result)
    before = {each: each.read_bytes() for each in folder.path.iterdir()}
    with pytest.raises(RunError, match=r"result\.json is damaged.*Delete"):
        DQNExperiment(CONFIG, folder, resume=True)
    assert {each: each.read_bytes() for each in folder.path.iterdir()} == before


def test_a_link_to_nowhere_is_not_the_beginning_of_a_run(folder: RunFolder) -> None:
    interrupt(CONFIG, folder, 104)
    events = folder.metrics.read_bytes()
    folder.checkpoint.unlink()
    folder.checkpoint.symlink_to(folder.path / "nowhere")
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        DQNExperiment(CONFIG, folder, resume=True)
    assert folder.metrics.read_bytes() == events


def test_another_run_cannot_be_continued(folder: RunFolder) -> None:
    interrupt(CONFIG, folder, 8)
    other = small(lengths="60,60", frames=160, evaluations=3, recent=0.25, seed=1)
    with pytest.raises(RunError, match="seed=0 as one with seed=1"):
        DQNExperiment(other, folder, resume=True)


def spoil(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        state = torch.load(path, weights_only=True)
        change(state)
        torch.save(state, path)

    return apply


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-999]), "is damaged.*Delete"),
        (spoil(lambda state: state.clear()), "does not fit this run"),
        (spoil(lambda s: s["engine"].update(agent={})), "does not fit this run"),
        (
            spoil(lambda s: s["engine"].update(memory=[])),
            "the state of a replay buffer",
        ),
        (
            spoil(lambda s: s["engine"]["rollout"]["actions"].bitwise_xor_(1)),
            "the environment does not repeat itself",
        ),
    ],
)
def test_a_checkpoint_that_is_none_is_named_and_kept(
    folder: RunFolder, change: Callable[[Path], None], expected: str
) -> None:
    interrupt(CONFIG, folder, 104)
    change(folder.checkpoint)
    before = folder.checkpoint.read_bytes()
    with pytest.raises(CheckpointError, match=expected) as told:
        DQNExperiment(CONFIG, folder, resume=True)
    assert str(folder.checkpoint) in str(told.value)
    assert "\n" not in str(told.value)
    assert folder.checkpoint.read_bytes() == before


class WhimsicalEnv(CartPoleEnv):
    """Draws from nobody's generator."""

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation + torch.rand(()).item(), *rest


def test_an_environment_that_does_not_repeat_itself_is_told(folder: RunFolder) -> None:
    gymnasium.register("tests/Whimsical-v0", WhimsicalEnv, max_episode_steps=500)
    config = small(env="tests/Whimsical-v0", frames=80)
    interrupt(config, folder, 16)
    torch.rand(7)
    with pytest.raises(CheckpointError, match="does not repeat itself"):
        DQNExperiment(config, folder, resume=True)


def test_without_a_folder_nothing_is_saved_and_nothing_else_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    often = dataclasses.replace(CONFIG, checkpoint_every=1e-6)
    experiment = DQNExperiment(often)
    monkeypatch.delattr(type(experiment.engine), "state_dict")

    def progress(frame: int, *_: Any) -> None:
        if frame == 24:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="^SIGINT at frame 24$"):
        experiment.run(progress)


# -- the command line -----------------------------------------------------------------


def words(folder: Path, **chosen: Any) -> list[str]:
    settings = {**SMALL, "lengths": "400,400", "threads": 1, **chosen}
    named = [(f"--{name.replace('_', '-')}", str(v)) for name, v in settings.items()]
    return ["dqn", *(word for pair in named for word in pair), "--out", str(folder)]


def test_ctrl_c_says_how_to_go_on_and_the_folder_is_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "in parts"
    assert main(words(whole)) == 0
    from agents.q_learning.agent import DQNAgent

    learn, calls = DQNAgent.learn, []

    def interrupted(self: DQNAgent, updates: int) -> None:
        calls.append(None)
        if len(calls) == 5:
            signal.raise_signal(signal.SIGTERM)
        learn(self, updates)

    with monkeypatch.context() as patch:
        patch.setattr(DQNAgent, "learn", interrupted)
        assert main(words(parts)) == 128 + signal.SIGTERM
    assert (
        f"interrupted at frame 48; to go on: info-replay dqn --resume '{parts}'\n"
        in capsys.readouterr().err
    )
    assert main(["dqn", "--resume", str(parts), "--seed", "1"]) == 2
    assert "seed=0 as one with seed=1" in capsys.readouterr().err
    assert main(["dqn", "--resume", str(parts)]) == 0
    assert outcome(parts) == outcome(whole)
    assert main(["dqn", "--resume", str(parts)]) == 0  # prints its result once more
    assert "return of each task" in capsys.readouterr().out
    assert outcome(parts) == outcome(whole)


def test_a_result_that_cannot_be_printed_is_named_in_one_line(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    DQNExperiment(CONFIG, folder).run()
    result = folder.read("result.json")
    del result["capacity"]
    folder.write("result.json", result)
    assert main(["dqn", "--resume", str(folder.path)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.endswith("are not those of a run: 'capacity'")


def start(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "agents.cli", *words],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("policy", ["infors", "prioritized"])
def test_a_process_that_is_killed_at_random_moments_goes_on_bit_for_bit(
    tmp_path: Path, policy: str
) -> None:
    chosen = {"policy": policy, "frames": 2400, "checkpoint_every": 0.02}
    folder, whole = tmp_path / "killed", tmp_path / "whole"
    luck, kills, resume = random.Random(policy), 0, []
    while not (folder / "result.json").exists() and kills < 3:
        process = start([*words(folder, **chosen), *resume])
        # Imports take seconds; what is to be hit are the frames after them.
        seen = (folder / "checkpoint.pt").stat().st_mtime_ns if resume else 0
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            path = folder / "checkpoint.pt"
            if path.exists() and path.stat().st_mtime_ns != seen:
                break
            time.sleep(0.002)
        time.sleep(luck.uniform(0, 0.6))
        process.kill()
        process.wait()
        kills += 1
        resume = ["--resume"]
    assert kills >= 2
    assert not (folder / "result.json").exists() or kills == 3
    assert main([*words(folder, **chosen), "--resume"]) == 0
    assert main(words(whole, **chosen)) == 0
    assert outcome(folder) == outcome(whole)
    events = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    assert [event["frame"] for event in events] == [1200, 2400]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_run_finishes_lets_it_finish(
    number: signal.Signals,
    folder: RunFolder,
    whole: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = RunFolder.write

    def interrupted(self: RunFolder, name: str, content: Any) -> None:
        if name == "timing.json":
            signal.raise_signal(number)
        write(self, name, content)

    monkeypatch.setattr(RunFolder, "write", interrupted)
    DQNExperiment(CONFIG, folder).run()
    assert outcome(folder.path) == whole


def test_a_memory_of_ones_own_goes_on_where_its_sampler_was(folder: RunFolder) -> None:
    def make_memory(config: DQNConfig, *_: Any) -> TensorDictReplayBuffer:
        return TensorDictReplayBuffer(
            storage=LazyTensorStorage(config.capacity),
            sampler=SamplerWithoutReplacement(),
            batch_size=config.batch_size,
        )

    experiment = DQNExperiment(CONFIG, folder, make_memory=make_memory)

    def stop(frame: int, *_: Any) -> None:
        if frame == 104:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        experiment.run(stop)
    options: Any = {"resume": True, "make_memory": make_memory}
    assert DQNExperiment(CONFIG, folder, **options).run()["frames"] == 160
