"""What a finished run of Q-learning leaves: its network and its memory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from agents.q_learning import load_dqn_run
from agents.q_learning.config import MEMORIES
from agents.q_learning.experiment import DQNExperiment
from agents.q_learning.memory import make_memory
from agents.q_learning.memory_state import memory_state
from agents.runs.checkpoint import CheckpointError
from agents.runs.folder import RunError, RunFolder
from tests.agents.supervised.helpers import assert_same_state

from .helpers import IMAGES, small


def finish(path: Path, **chosen: Any) -> DQNExperiment:
    config = small(**{"env": "CartPole-v1", "frames": 64, "evaluations": 1, **chosen})
    experiment = DQNExperiment(config, RunFolder(path))
    experiment.run()
    return experiment


@pytest.mark.parametrize("policy", [*MEMORIES, "info_replay:ReservoirWriter"])
def test_the_memory_is_that_of_the_end_and_goes_on_like_it(
    tmp_path: Path, policy: str
) -> None:
    memory = finish(tmp_path, policy=policy).agent.memory
    loaded = load_dqn_run(tmp_path, own_code=":" in policy).memory
    assert loaded is not None
    assert type(loaded) is type(memory)
    assert_same_state(memory_state(loaded), memory_state(memory))
    rows = memory[:10].exclude("index", "feature", "target")
    for each in (memory, loaded):
        each.extend(rows.clone())
    assert torch.equal(memory.sample(20)["index"], loaded.sample(20)["index"])


@pytest.mark.parametrize("env", ["CartPole-v1", "ContinualCartPole", IMAGES])
def test_the_network_acts_as_that_of_the_end(tmp_path: Path, env: str) -> None:
    experiment = finish(tmp_path, env=env)
    run = load_dqn_run(tmp_path)
    assert run.config == experiment.config
    assert run.result["frames"] == 64
    seen = experiment.agent.memory[:]["observation"]
    states = [TensorDict(observation=seen, batch_size=len(seen)) for _ in range(2)]
    expected, found = experiment.agent.network(states[0]), run.network(states[1])
    assert torch.equal(expected["action_value"], found["action_value"])


def test_a_memory_of_ones_own_is_not_saved(tmp_path: Path) -> None:
    config = small(env="CartPole-v1", frames=32, evaluations=1)

    def make(*given: Any) -> Any:
        memory = make_memory(*given)
        memory.state_dict = None  # nobody asks for what is not saved
        return memory

    DQNExperiment(config, RunFolder(tmp_path), make_memory=make).run()
    assert load_dqn_run(tmp_path).memory is None


def test_code_that_only_the_folder_names_is_not_imported(tmp_path: Path) -> None:
    finish(tmp_path, policy="info_replay:ReservoirWriter")
    with pytest.raises(ValueError, match=r"own_code=True\) imports it"):
        load_dqn_run(tmp_path)


class Planted:
    def __reduce__(self) -> Any:
        return (Path("planted").touch, ())


@pytest.mark.parametrize("name", ["network.pt", "memory.pt"])
def test_files_run_no_code(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finish(tmp_path / "run")
    torch.save({"weights": Planted()}, tmp_path / "run" / name)
    with pytest.raises(CheckpointError, match="more than plain values"):
        load_dqn_run(tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(pickle.dumps(Planted()))
    with pytest.raises(CheckpointError, match="is damaged"):
        load_dqn_run(tmp_path / "run")
    assert not Path("planted").exists()


@pytest.mark.parametrize("name", ["network.pt", "memory.pt"])
def test_a_file_of_another_run_is_named(tmp_path: Path, name: str) -> None:
    finish(tmp_path / "one")
    finish(tmp_path / "two", width=4, capacity=9)
    (tmp_path / "two" / name).replace(tmp_path / "one" / name)
    with pytest.raises(CheckpointError, match=f"{name} does not fit this run"):
        load_dqn_run(tmp_path / "one")


def test_a_run_that_is_not_finished_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a finished run"):
        load_dqn_run(tmp_path)
