"""The command line: what it prints, and one clear line for whatever is wrong."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from agents.cli import main
from agents.config import ExperimentConfig
from agents.derpp import DERPlusPlusAgent
from agents.dqn import DQNAgent
from agents.q_learning import DQNConfig
from tests.agents.helpers import outcome

SMALL = ["train", "--env", "SplitDigits", "--policy", "rs", "--steps", "6"]
#: A run of Q-learning of a second.
DQN = (
    "dqn --recent 0 --lengths 24,24 --frames 48 --num-envs 2 --frames-per-batch 8 "
    "--batch-size 8 --updates-per-batch 2 --learning-starts 16 --width 8 "
    "--capacity 24 --evaluations 2 --episodes 1 --device cpu"
).split()


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a wrong command gets."""
    capsys.readouterr()
    assert main(arguments) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("info-replay: error: ")
    assert "Traceback" not in captured.out
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--policy", "reservoir"], "policy must be one of rs, .*got 'reservoir'"),
        (["--env", "SplitMnist"], "env must be one of SplitMNIST, .*got 'SplitMnist'"),
        (["--preset", "paper"], "preset must be one of mnist, .*got 'paper'"),
        (["--network", "vgg"], "network must be one of fc, resnet18, got 'vgg'"),
        (["--learning-rate", "-0.1"], "learning_rate must be at least 0, got -0.1"),
        (["--alpha", "-1"], "alpha must be at least 0, got -1"),
        (["--beta", "nan"], "beta must be a finite number, got nan"),
        (["--batch-size", "0"], "batch_size must be at least 1, got 0"),
        (["--capacity", "0"], "capacity must be at least 1, got 0"),
        (["--steps", "0"], "steps must be at least 1, got 0"),
        (["--decay", "2"], "decay must be between 0 and 1, got 2"),
        (["--device", "tpu9"], "device must be 'auto', .*got 'tpu9'"),
        (["--env", "SplitDiabetes", "--policy", "cbrs"], "SplitDiabetes has none"),
        (["--env", "SplitDiabetes", "--network", "resnet18"], "network.*resnet18"),
        (["--env", "SplitDiabetes", "--augmented"], "augmented"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_option_gets_one_line_that_says_what_was_expected(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    out = tmp_path / "run"
    line = told([*SMALL, *arguments, "--out", str(out)], capsys)
    assert re.search(expected, line)
    assert not out.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    line = told([*SMALL, "--device", "cuda", "--out", str(out)], capsys)
    assert "cuda" in line.lower()
    assert not out.exists()


def test_a_folder_that_cannot_be_made_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    line = told([*SMALL, "--out", str(tmp_path / "file" / "run")], capsys)
    assert str(tmp_path / "file") in line


def test_a_run_that_exists_is_refused_unless_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*SMALL, "--out", str(tmp_path)]
    assert main(arguments) == 0
    before = outcome(tmp_path)
    line = told(arguments, capsys)
    assert "holds a run already" in line
    assert "--resume" in line
    line = told([*arguments, "--resume", "--capacity", "7"], capsys)
    assert "capacity=50 as one with capacity=7" in line
    assert main([*arguments, "--resume"]) == 0
    assert "average accuracy" in capsys.readouterr().out
    assert outcome(tmp_path) == before


def test_nothing_cannot_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = told([*SMALL, "--out", str(tmp_path / "gone"), "--resume"], capsys)
    assert f"there is no run to resume in {tmp_path / 'gone'}" in line
    assert not (tmp_path / "gone").exists()


def test_a_data_set_that_is_missing_gets_one_line_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", offline)
    empty, out = tmp_path / "data", tmp_path / "run"
    empty.mkdir()
    arguments = ["train", "--env", "SplitMNIST", "--data-dir", str(empty)]
    line = told([*arguments, "--out", str(out)], capsys)
    assert "by hand" in line
    assert str(empty) in line
    assert not out.exists()


@pytest.mark.parametrize("content", ["{}", "[]", '{"metric": "accuracy"}'])
def test_a_result_that_is_none_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    for name in ("result.json", "timing.json"):
        (tmp_path / name).write_text(content)
    assert "not those of a run" in told(["show", str(tmp_path)], capsys)


def test_a_file_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    file.write_text("{}")
    assert f"cannot read {file / 'result.json'}" in told(["show", str(file)], capsys)


@pytest.mark.parametrize("kind", ["missing", "empty", "unfinished", "damaged"])
def test_only_a_finished_run_can_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    folder = tmp_path / "run"
    if kind != "missing":
        folder.mkdir()
    if kind == "unfinished":
        (folder / "config.json").write_text("{}")
    if kind == "damaged":
        (folder / "result.json").write_text('{"env": "Spl')
    line = told(["show", str(folder)], capsys)
    assert str(folder / "result.json") in line
    assert ("damaged" if kind == "damaged" else "no finished run") in line


def test_a_damaged_checkpoint_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*SMALL, "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(DERPlusPlusAgent, "act", interrupted_at(3))
        assert main(arguments) == 130
    (tmp_path / "checkpoint.pt").write_bytes(b"rubbish")
    line = told([*arguments, "--resume"], capsys)
    assert "is damaged" in line
    assert "Delete it" in line
    assert (tmp_path / "checkpoint.pt").read_bytes() == b"rubbish"


def interrupted_at(last: int) -> Any:
    """Predicts, until Ctrl-C is pressed before a step."""
    act, calls = DERPlusPlusAgent.act, []

    def patched(self: DERPlusPlusAgent, observation: Any) -> Any:
        calls.append(None)
        if len(calls) == last:
            signal.raise_signal(signal.SIGINT)
        return act(self, observation)

    return patched


def test_ctrl_c_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main([*SMALL, "--out", str(whole)]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(DERPlusPlusAgent, "act", interrupted_at(4))
        assert main([*SMALL, "--out", str(parts)]) == 130
    error = capsys.readouterr().err
    assert re.search(r"interrupted at step [34];", error)
    assert "--resume" in error
    assert "Traceback" not in error
    assert main([*SMALL, "--out", str(parts), "--resume"]) == 0
    assert outcome(parts) == outcome(whole)


def test_training_prints_the_result_and_shows_its_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    for part in ("SplitDigits", "rs", "average accuracy", "prequential", "transfer"):
        assert part in captured.out
    for part in ("memory:", "entered reservoir sampling", "time:"):
        assert part in captured.out
    assert str(tmp_path / "run") in captured.err
    assert "6/6" in captured.err
    assert "accuracy so far" in captured.err


@pytest.mark.parametrize("found", ["as now", "other", "missing"])
def test_another_version_of_a_package_is_told_when_a_run_goes_on(
    found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, "--out", str(tmp_path)]) == 0
    (tmp_path / "result.json").unlink()
    file = tmp_path / "versions.json"
    versions = json.loads(file.read_text())
    if found == "other":
        file.write_text(json.dumps({**versions, "torch": "1.0"}))
    elif found == "missing":
        file.unlink()
    capsys.readouterr()
    assert main([*SMALL, "--out", str(tmp_path), "--resume"]) == 0
    warned = f"torch was 1.0 and is {versions['torch']}" in capsys.readouterr().err
    assert warned == (found == "other")


@pytest.mark.parametrize("policy", ["rs", "infors"])
def test_a_run_that_diverges_ends_with_one_line(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--policy", policy, "--learning-rate", "1e6", "--out", str(tmp_path)]
    assert main([*SMALL, *chosen]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("info-replay: error: learning has diverged")
    assert not (tmp_path / "result.json").exists()


def test_what_is_printed_is_the_result_and_nothing_else(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert main([*SMALL, "--out", str(tmp_path)]) == 0
    assert capfd.readouterr().out.startswith("SplitDigits, rs, imbalance 1, seed 0")
    # TorchRL logs to the standard output of its first import, which is not seen here.
    assert not [record for record in caplog.records if record.name == "torchrl"]


def test_a_run_without_a_folder_is_named_after_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, "--seed", "3", "--imbalance", "2"]) == 0
    assert (tmp_path / "runs" / "SplitDigits-rs-r2-seed3" / "result.json").exists()


def test_options_reach_the_run(tmp_path: Path) -> None:
    chosen = ["--capacity", "9", "--no-augmented", "--eta", "0.5", "--preset", "mnist"]
    assert main([*SMALL, *chosen, "--out", str(tmp_path)]) == 0
    result = (tmp_path / "result.json").read_text()
    for part in ('"capacity": 9', '"augmented": false', '"eta": 0.5'):
        assert part in result
    assert '"batch_size": 128' in result


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as over:
        main(["train", "--help"])
    assert over.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    names = [field.name for field in dataclasses.fields(ExperimentConfig)]
    for name in [*names, "preset", "out", "resume"]:
        assert f"--{name.replace('_', '-')} " in text
    for field in dataclasses.fields(ExperimentConfig):
        assert field.metadata["help"].split(";")[0] in text


def test_help_names_both_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as over:
        main(["--help"])
    assert over.value.code == 0
    text = capsys.readouterr().out
    assert "train" in text
    assert "show" in text


def test_an_unknown_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as over:
        main(["train", "--polcy", "rs"])
    assert over.value.code == 2
    assert "--polcy" in capsys.readouterr().err


# -- Q-learning -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--policy", "wrs"], "policy must be one of infors, rs, .*got 'wrs'"),
        (["--target", "reward"], "target must be one of auto, td, dyn, got 'reward'"),
        (["--engine", "slurm"], "engine must be one of local, ray, got 'slurm'"),
        (["--env", "CartPol-v1"], "env must be one of Continual.*got 'CartPol-v1'"),
        (["--env", "gone:CartPole-v1"], "No module named 'gone'"),
        (["--env", ".gone:CartPole-v1"], "got '.gone:CartPole-v1'"),
        (["--env", "CartPole-v1"], "lengths .* env 'CartPole-v1' is none"),
        (["--lengths", "24;24"], "lengths must be whole numbers .*got '24;24'"),
        (["--lengths", "24,1"], "each at least 2, .* got '24,1'"),
        (["--frames", "0"], "frames must be at least 1, got 0"),
        (["--capacity", "0"], "capacity must be at least 1, got 0"),
        (["--num-envs", "3"], "frames_per_batch must be a multiple of num_envs=3"),
        (["--learning-rate", "-1"], "learning_rate must be at least 0, got -1"),
        (["--discount", "1.5"], "discount must be from 0 to 1, got 1.5"),
        (["--tau", "nan"], "tau must be a finite number, got nan"),
        (["--recent", "1"], "recent must be from 0 to below 1, got 1"),
        (["--noise", "0"], "noise must be above 0, got 0"),
        (["--decay", "2"], "decay must be between 0 and 1, got 2"),
        (["--device", "tpu9"], "device must be 'auto', .*got 'tpu9'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_option_of_q_learning_gets_one_line_and_leaves_no_folder(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    out = tmp_path / "run"
    line = told([*DQN, *arguments, "--out", str(out)], capsys)
    assert re.search(expected, line)
    assert not out.exists()


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("Pendulum-v1", "needs discrete actions 0, 1, ...; 'Pendulum-v1' has Box"),
        ("Blackjack-v1", "needs vectors or images .*'Blackjack-v1' has Tuple"),
        ("FrozenLake-v1", "needs vectors or images .*'FrozenLake-v1' has Discrete"),
        ("tests/NotInstalled-v0", "'tests/NotInstalled-v0' cannot be made: .*gone"),
    ],
)
def test_an_environment_without_q_learning_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], env: str, expected: str
) -> None:
    if env not in gymnasium.registry:
        gymnasium.register(env, "gone_for_good:Env")
    out = tmp_path / "run"
    line = told(["dqn", "--env", env, "--recent", "0", "--out", str(out)], capsys)
    assert re.search(expected, line)
    assert not out.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_q_learning_lacks_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    line = told([*DQN, "--device", "cuda", "--out", str(out)], capsys)
    assert "device 'cuda' is not available here" in line
    assert not out.exists()


def test_a_folder_that_cannot_be_made_for_q_learning_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    line = told([*DQN, "--out", str(tmp_path / "file" / "run")], capsys)
    assert str(tmp_path / "file") in line


def test_q_learning_writes_its_folder_prints_a_table_and_can_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main([*DQN, "--out", str(out)]) == 0
    captured = capsys.readouterr()
    table = captured.out
    assert table.startswith("ContinualCartPole, infors, 24 slots, seed 0: 48 frames\n")
    for part in ("return of each task at the end: ", "last task, at the end"):
        assert part in table
    for part in ("other tasks, at the end", "forgetting", "memory: 24 of 48 trans"):
        assert part in table
    for part in ("by task: ", "time: learning"):
        assert part in table
    assert str(out) in captured.err
    assert "48/48" in captured.err
    assert "returns" in captured.err
    files = {path.name for path in out.iterdir()}
    assert files == {
        "config.json",
        "metrics.jsonl",
        "result.json",
        "timing.json",
        "versions.json",
    }

    assert main(["show", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(table)
    for name in ("returns.png", "memory_tasks.png"):
        assert str(out / name) in shown
        assert (out / name).read_bytes().startswith(b"\x89PNG")

    before = outcome(out)
    line = told([*DQN, "--out", str(out)], capsys)
    assert "holds a run already" in line
    assert outcome(out) == before


def test_a_single_task_is_printed_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [part for part in DQN if part not in ("--lengths", "24,24")]
    arguments += ["--env", "CartPole-v1", "--policy", "fifo", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert main(["show", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "return at the end" in text
    assert "mean return along the run" in text
    assert "by task" not in text
    assert (tmp_path / "returns.png").exists()
    assert not (tmp_path / "memory_tasks.png").exists()


def test_what_q_learning_prints_is_the_result_and_nothing_else(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert main([*DQN, "--out", str(tmp_path)]) == 0
    assert capfd.readouterr().out.startswith("ContinualCartPole, infors, 24 slots")
    assert not [record for record in caplog.records if record.name == "torchrl"]


def test_ctrl_c_ends_q_learning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: DQNAgent, updates: int) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(DQNAgent, "learn", interrupted)
    assert main([*DQN, "--out", str(tmp_path)]) == 130
    error = capsys.readouterr().err
    assert "interrupted" in error
    assert "Traceback" not in error
    line = told(["show", str(tmp_path)], capsys)
    assert "no finished run" in line


def test_a_run_of_q_learning_without_a_folder_is_named_after_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = "continual_envs/ContinualCartPole-v0"
    assert main([*DQN, "--seed", "3", "--env", env, "--policy", "rs"]) == 0
    name = "continual_envs-ContinualCartPole-v0-dqn-rs-seed3"
    assert (tmp_path / "runs" / name / "result.json").exists()


def test_help_of_q_learning_names_every_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as over:
        main(["dqn", "--help"])
    assert over.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for field in dataclasses.fields(DQNConfig):
        assert re.search(rf"--(no-)?{field.name.replace('_', '-')}\b", text)
        assert field.metadata["help"].split(";")[0] in text
    for name in ("--out", "ContinualCartPole", "module:id", "prioritized"):
        assert name in text
