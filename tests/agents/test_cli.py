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
from agents.commands.features import FeatureSettings
from agents.q_learning import DQNConfig
from agents.q_learning.agent import DQNAgent
from agents.supervised.config import ExperimentConfig
from agents.supervised.derpp import DERPlusPlusAgent
from agents.supervised.learner import LEARNERS
from agents.supervised.networks import NETWORKS
from info_replay.registry import CRITERIA, POLICIES
from tests.agents.supervised.helpers import file_names, outcome

TRAIN = "train --env SplitDigits --policy rs --steps 6".split()
#: A run of Q-learning of a fraction of a second.
DQN = (
    "dqn --recent 0 --lengths 24,24 --frames 48 --num-envs 2 --frames-per-batch 8 "
    "--batch-size 8 --updates-per-batch 2 --learning-starts 16 --width 8 "
    "--capacity 24 --evaluations 2 --episodes 1 --device cpu"
).split()
both_commands = pytest.mark.parametrize(
    "command", [TRAIN, DQN], ids=lambda value: value[0]
)


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


# -- wrong options --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--policy reservoir", "policy must be .*'auto', .*got 'reservoir'"),
        ("--policy gone:Policy", "cannot import the policy.*No module named 'gone'"),
        ("--policy json:dumps", "policy 'json:dumps' needs the option 'obj'"),
        ("--criterion x", "criterion must be 'mic', .*got 'x'"),
        ("--env SplitMnist", "env must be one of SplitMNIST, .*got 'SplitMnist'"),
        ("--preset paper", "preset must be one of mnist, .*got 'paper'"),
        ("--network vgg", "network must be 'fc', .*got 'vgg'"),
        ("--learning-rate -0.1", "learning_rate must be at least 0, got -0.1"),
        ("--beta nan", "beta must be a finite number, got nan"),
        ("--capacity 0", "capacity must be at least 1 .*, got 0"),
        ("--device tpu9", "device must be 'auto', .*got 'tpu9'"),
        ("--env SplitDiabetes --policy cbrs", "SplitDiabetes has none"),
        ("--env SplitDiabetes --network resnet18", "network.*resnet18"),
        ("--env SplitDiabetes --augmented", "augmented"),
    ],
)
def test_a_wrong_option_gets_one_line_and_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, expected: str
) -> None:
    out = tmp_path / "run"
    line = told([*TRAIN, *arguments.split(), "--out", str(out)], capsys)
    assert re.search(expected, line)
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--policy wrs", "policy must be one of auto, infors, rs, .*got 'wrs'"),
        ("--policy json:dumps", "policy 'json:dumps' needs the option 'obj'"),
        ("--engine slurm", "engine must be one of local, ray, got 'slurm'"),
        ("--env CartPol-v1", "env must be one of Continual.*got 'CartPol-v1'"),
        ("--env gone:CartPole-v1", "No module named 'gone'"),
        ("--env CartPole-v1", "lengths .* env 'CartPole-v1' is not one"),
        ("--lengths 24,1", "each at least 2, .* got '24,1'"),
        ("--num-envs 3", "frames_per_batch must be a multiple of num_envs=3"),
        ("--tau nan", "tau must be a finite number, got nan"),
        ("--device tpu9", "device must be 'auto', .*got 'tpu9'"),
    ],
)
def test_a_wrong_option_of_q_learning_gets_one_line_and_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, expected: str
) -> None:
    out = tmp_path / "run"
    line = told([*DQN, *arguments.split(), "--out", str(out)], capsys)
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
    line = told(["dqn", "--env", env, "--out", str(out)], capsys)
    assert re.search(expected, line)
    assert not out.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
@both_commands
def test_a_device_that_is_not_there_gets_one_line(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    line = told([*command, "--device", "cuda", "--out", str(out)], capsys)
    assert "device 'cuda' is not available here" in line
    assert not out.exists()


@both_commands
def test_a_folder_that_cannot_be_made_gets_one_line(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    line = told([*command, "--out", str(tmp_path / "file" / "run")], capsys)
    assert str(tmp_path / "file") in line


@pytest.mark.parametrize("number", ["-1e-1", "-.1", "-1E-01", "-0.1", "-10e-2"])
def test_a_negative_number_is_a_value_however_it_is_written(
    number: str, tmp_path: Path
) -> None:
    assert main([*TRAIN, "--gamma", number, "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "config.json").read_text())["gamma"] == -0.1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--gamma -inf", "gamma must be a finite number, got -inf"),
        ("--gamma -nan", "gamma must be a finite number, got nan"),
        ("--eta -1e-3", "eta must be at least 0 .*got -0.001"),
        ("--learning-rate -1e39", "learning_rate must be at least 0, got -1e"),
        (
            "--learning-rate 1e39",
            "learning_rate must be at least 0 and at most 1e.30, got 1e.39",
        ),
        ("--beta 1e300", "beta must be at least 0 and at most 1e.30, got 1e.300"),
        ("--jitter 1e-300", "jitter must be at least 1e-06 .*got 1e-300"),
        ("--noise 1e-200", "noise must be at least 1e-06 .*got 1e-200"),
        ("--data-dir ~nobody123/x", "~nobody123/x is in the home folder of a user who"),
    ],
)
def test_a_number_or_a_path_that_cannot_be_used_gets_one_line(
    arguments: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    line = told([*TRAIN, *arguments.split(), "--out", str(out)], capsys)
    assert re.search(expected, line)
    assert not out.exists()


@pytest.mark.parametrize(
    "command",
    [
        "train --env SplitDigits --out ~nobody123/x",
        "train --resume ~nobody123/x",
        "train --data ~nobody123/x",
        "features --data ~nobody123/x",
        "features --data Digits --out ~nobody123/x.npz",
        "features --data Digits --data-dir ~nobody123/x",
        "dqn --out ~nobody123/x",
        "show ~nobody123/x",
    ],
)
def test_the_home_folder_of_nobody_gets_one_line(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "in the home folder of a user who does not exist" in told(
        command.split(), capsys
    )
    assert not [*tmp_path.iterdir()]


def test_an_unknown_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as over:
        main(["train", "--polcy", "rs"])
    assert over.value.code == 2
    assert "--polcy" in capsys.readouterr().err


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


# -- help -----------------------------------------------------------------------------


def help_of(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as over:
        main([*command, "--help"])
    assert over.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("command", "settings", "others"),
    [
        ("train", ExperimentConfig, "--preset --out --resume SplitMNIST cifar10 none"),
        ("dqn", DQNConfig, "--out ContinualCartPole module:ID prioritized"),
        ("features", FeatureSettings, "--out DEFAULT"),
    ],
)
def test_help_names_every_option(
    command: str, settings: type, others: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of([command], capsys)
    for field in dataclasses.fields(settings):
        assert re.search(rf"--{field.name.replace('_', '-')}\b", text)
        assert field.metadata["help"].split(";")[0] in text
    for name in [*others.split(), "module:"]:
        assert name in text


def test_a_list_tells_what_every_policy_criterion_network_and_learner_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "policies", "criteria", "networks", "learners"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for name in (*POLICIES, *CRITERIA, *NETWORKS, *LEARNERS):
        assert re.search(rf" {re.escape(name)} \w+", text)
    assert "rs Keeps a uniform sample of the stream" in text
    assert "InfoGS-RS included. reservoir=True." in text


def test_help_names_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    commands = {"train", "dqn", "features", "show", "list"}
    assert commands <= set(help_of([], capsys).split())


@pytest.mark.parametrize("names", ["policy", "criterion", "network", "learner"])
def test_help_names_all_that_can_be_chosen(names: str) -> None:
    registries: dict[str, Any] = {
        "policy": POLICIES,
        "criterion": CRITERIA,
        "network": NETWORKS,
        "learner": LEARNERS,
    }
    (field,) = [f for f in dataclasses.fields(ExperimentConfig) if f.name == names]
    words = re.findall(r"[\w+-]+", field.metadata["help"])
    assert set(registries[names]) <= set(words)


# -- train ----------------------------------------------------------------------------


def test_training_prints_the_result_shows_its_progress_and_can_be_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    assert main([*TRAIN, "--out", str(out)]) == 0
    captured = capfd.readouterr()
    table = captured.out
    assert table.startswith("SplitDigits, rs, imbalance 1, seed 0: 6 steps of 235")
    assert not [record for record in caplog.records if record.name == "torchrl"]
    for part in ("average accuracy", "prequential", "transfer", "memory:", "time:"):
        assert part in table
    for part in (str(out), "6/6", "accuracy so far"):
        assert part in captured.err
    assert main(["show", str(out)]) == 0
    shown = capfd.readouterr().out
    assert shown.startswith(table)
    for name in ("tasks.png", "memory_classes.png", "memory_images.png"):
        assert str(out / name) in shown
        assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_a_run_that_exists_is_refused_unless_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*TRAIN, "--out", str(tmp_path)]
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
    line = told([*TRAIN, "--out", str(tmp_path / "gone"), "--resume"], capsys)
    assert f"there is no run to resume in {tmp_path / 'gone'}" in line
    assert not (tmp_path / "gone").exists()


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
    assert main([*TRAIN, "--out", str(whole)]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(DERPlusPlusAgent, "act", interrupted_at(4))
        assert main([*TRAIN, "--out", str(parts)]) == 130
    error = capsys.readouterr().err
    assert re.search(r"interrupted at step [34];", error)
    assert "--resume" in error
    assert "Traceback" not in error
    good = (parts / "checkpoint.pt").read_bytes()
    (parts / "checkpoint.pt").write_bytes(b"rubbish")
    line = told([*TRAIN, "--out", str(parts), "--resume"], capsys)
    assert re.search("is damaged.*Delete it", line)
    (parts / "checkpoint.pt").write_bytes(good)
    assert main([*TRAIN, "--out", str(parts), "--resume"]) == 0
    assert outcome(parts) == outcome(whole)


@pytest.mark.parametrize("found", ["as now", "other", "missing"])
def test_another_version_of_a_package_is_told_when_a_run_goes_on(
    found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, "--out", str(tmp_path)]) == 0
    (tmp_path / "result.json").unlink()
    file = tmp_path / "versions.json"
    versions = json.loads(file.read_text())
    if found == "other":
        file.write_text(json.dumps({**versions, "torch": "1.0"}))
    elif found == "missing":
        file.unlink()
    capsys.readouterr()
    assert main([*TRAIN, "--out", str(tmp_path), "--resume"]) == 0
    warned = f"torch was 1.0 and is {versions['torch']}" in capsys.readouterr().err
    assert warned == (found == "other")


@pytest.mark.parametrize("policy", ["rs", "infors"])
def test_a_run_that_diverges_ends_with_one_line(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--policy", policy, "--learning-rate", "1e6", "--out", str(tmp_path)]
    assert main([*TRAIN, *chosen]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("info-replay: error: learning has diverged")
    assert not (tmp_path / "result.json").exists()


def test_options_reach_the_run_and_name_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = "--capacity 9 --no-augmented --eta 0.5 --preset mnist --seed 3".split()
    assert main([*TRAIN, *chosen]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    words = "SplitDigits-rs-r1-seed3-batch-size128-epochs1-replay-batch-size128"
    assert folder.name == f"{words}-alpha1.0-capacity9-eta0.5-steps6"
    result = json.loads((folder / "result.json").read_text())
    assert (result["capacity"], result["augmented"], result["eta"]) == (9, False, 0.5)
    assert result["batch_size"] == 128


def test_a_number_of_the_preset_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = "--policy infors --preset mnist --decay none".split()
    assert main([*TRAIN, *chosen]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "config.json").read_text())["decay"] is None


# -- show -----------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["{}", '{"metric": "accuracy"}'])
def test_a_result_that_is_none_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    for name in ("result.json", "timing.json"):
        (tmp_path / name).write_text(content)
    assert "not those of a run" in told(["show", str(tmp_path)], capsys)


@pytest.mark.parametrize("content", ["null", "[]", '{"evaluation": null}'])
def test_a_file_of_a_finished_run_with_a_wrong_value_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    assert main([*TRAIN, "--out", str(tmp_path)]) == 0
    for name in ("timing.json", "metrics.jsonl", "config.json", "result.json"):
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text(content)
        for command in (["show", str(tmp_path)], ["train", "--resume", str(tmp_path)]):
            capsys.readouterr()
            status = main(command)
            errors = capsys.readouterr().err.splitlines()
            lines = [line for line in errors if "info-replay: error: " in line]
            assert (status, len(lines)) in {(0, 0), (2, 1)}, (name, command)
            assert "Traceback" not in "".join(errors)
        (tmp_path / name).write_text(before)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("missing", "does not exist"),
        ("unfinished", "not a finished run"),
        ("damaged", "damaged"),
        ("a file", "is a file"),
    ],
)
def test_only_a_finished_run_can_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, expected: str
) -> None:
    folder = tmp_path / "run"
    if kind == "a file":
        folder.write_text("{}")
    elif kind != "missing":
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    if kind == "damaged":
        (folder / "result.json").write_text('{"env": "Spl')
    line = told(["show", str(folder)], capsys)
    assert str(folder) in line
    assert expected in line


def test_pictures_that_cannot_be_written_get_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, "--out", str(tmp_path)]) == 0
    (tmp_path / "tasks.png").mkdir()
    capsys.readouterr()
    assert main(["show", str(tmp_path)]) == 2
    assert f"cannot draw into {tmp_path}" in capsys.readouterr().err


# -- Q-learning -----------------------------------------------------------------------


def test_q_learning_writes_its_folder_prints_a_table_and_can_be_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    assert main([*DQN, "--out", str(out)]) == 0
    captured = capfd.readouterr()
    table = captured.out
    assert table.startswith("ContinualCartPole, infors, 24 slots, seed 0: 48 frames\n")
    assert not [record for record in caplog.records if record.name == "torchrl"]
    for part in (
        "return of each task at the end: ",
        "last task, at the end",
        "other tasks, at the end",
        "forgetting",
        "memory: 24 of 48 trans",
        "by task: ",
        "time: learning",
    ):
        assert part in table
    for part in (str(out), "48/48", "returns"):
        assert part in captured.err
    assert file_names(out) == set(
        "config.json memory.pt metrics.jsonl network.pt result.json timing.json "
        "versions.json".split()
    )

    assert main(["show", str(out)]) == 0
    shown = capfd.readouterr().out
    assert shown.startswith(table)
    for name in ("returns.png", "memory_tasks.png"):
        assert str(out / name) in shown
        assert (out / name).read_bytes().startswith(b"\x89PNG")

    before = outcome(out)
    assert main([*DQN, "--out", str(out)]) == 2
    assert "holds a run already" in capfd.readouterr().err
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
    assert "not a finished run" in told(["show", str(tmp_path)], capsys)


def test_a_run_of_q_learning_without_a_folder_is_named_after_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = "continual_envs/ContinualCartPole-v0"
    policy = "info_replay:ReservoirWriter"
    assert main([*DQN, "--seed", "3", "--env", env, "--policy", policy]) == 0
    start = "continual_envs-ContinualCartPole-v0-dqn-info_replay-ReservoirWriter-seed3"
    (folder,) = (tmp_path / "runs").glob(f"{start}*")
    assert (folder / "result.json").exists()
