"""What a finished run leaves can be loaded, used and trusted."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from agents import load_run, train
from agents.runs.checkpoint import CheckpointError
from agents.runs.folder import RunError, RunFolder
from agents.supervised.experiment import Experiment
from tests.agents.supervised.helpers import assert_same_state, small


def test_the_network_and_the_whole_memory_come_back(tmp_path: Path) -> None:
    experiment = Experiment(small(policy="infors"), RunFolder(tmp_path))
    result = experiment.run()
    run = load_run(tmp_path)
    assert run.result == result
    assert run.config == experiment.config
    part = experiment.env.evaluation_sets[2]
    accuracy = np.mean(run.predict(part.inputs) == part.targets)
    assert accuracy == pytest.approx(result["matrix"][-1][2])
    assert run.memory is not None
    assert experiment.agent.memory is not None
    assert_same_state(run.memory.state_dict(), experiment.agent.memory.state_dict())
    assert not run.network.training


def test_the_memory_goes_on_where_it_was(tmp_path: Path) -> None:
    experiment = Experiment(small(policy="infors", steps=10), RunFolder(tmp_path))
    experiment.run()
    run = load_run(tmp_path)
    before = experiment.agent.memory
    assert before is not None
    assert run.memory is not None
    batch = before[:].clone()
    assert torch.equal(before.extend(batch), run.memory.extend(batch))


def test_numbers_are_predicted_in_the_units_of_the_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = 50 + 10 * rng.normal(size=(400, 3))
    y = 1000 + 20 * X[:, 0]
    train((X, y), folder=tmp_path, epochs=10, learning_rate=0.03, batch_size=20)
    run = load_run(tmp_path)
    error = np.abs(run.predict(X) - y).mean()
    assert error < 0.5 * np.abs(y - y.mean()).mean()
    assert run.predict(X).shape == (400,)


def test_predictions_are_those_that_were_evaluated(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    run = train((X, X[:, 0]), folder=tmp_path, standardize=False, batch_size=20)
    far = 50 * rng.normal(size=(30, 3)).astype(np.float32)  # beyond all targets
    expected = run.agent.predict(far)
    assert np.abs(expected).max() == pytest.approx(np.abs(X[:, 0]).max())
    np.testing.assert_allclose(load_run(tmp_path).predict(far), expected, rtol=1e-6)


def test_a_run_from_a_gpu_is_loaded_on_the_host(tmp_path: Path) -> None:
    Experiment(small(policy="rs", steps=2), RunFolder(tmp_path)).run()
    settings = RunFolder(tmp_path).read("config.json")
    RunFolder(tmp_path).write("config.json", {**settings, "device": "cuda"})
    assert load_run(tmp_path).memory is not None


@pytest.mark.parametrize("name", ["network", "policy", "criterion"])
def test_nothing_is_imported_that_only_the_folder_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Experiment(small(policy="rs", steps=2), RunFolder(tmp_path / "run")).run()
    (tmp_path / "planted.py").write_text("open('witness', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    settings = RunFolder("run").read("config.json")
    planted = {**settings, "learner": "planted:Learner", name: "planted:Thing"}
    RunFolder("run").write("config.json", planted)
    with pytest.raises(ValueError, match=f"the {name} of run is planted:Thing"):
        load_run("run")
    assert not (tmp_path / "witness").exists()


def test_inputs_of_another_shape_are_refused(tmp_path: Path) -> None:
    Experiment(small(policy="rs", steps=2), RunFolder(tmp_path)).run()
    run = load_run(tmp_path)
    for wrong in (np.zeros((3, 64), np.uint8), np.zeros((3, 1, 8, 8))):
        with pytest.raises(ValueError, match=r"must be uint8 of shape \(n, 1, 8, 8\)"):
            run.predict(wrong)


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 3)])
def test_images_are_predicted_as_they_were_given(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    X = np.random.default_rng(0).integers(0, 256, (60, *shape), dtype=np.uint8)
    run = train((X, np.arange(60) % 3), folder=tmp_path, steps=1)
    shown = X[:, None] if X.ndim == 3 else X.transpose(0, 3, 1, 2)
    expected = run.agent.predict(np.ascontiguousarray(shown))
    np.testing.assert_array_equal(load_run(tmp_path).predict(X), expected)


def test_another_network_is_named_in_one_line(tmp_path: Path) -> None:
    train("SplitDigits", network=Net(), feature="hidden", steps=1, folder=tmp_path)
    with pytest.raises(ValueError, match="this is not the network of") as told:
        load_run(tmp_path, network=Wider())
    assert "\n" not in str(told.value)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 12)
        self.last = nn.Linear(12, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.hidden(x.flatten(1))))


class Wider(Net):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.last = nn.Linear(64, 13), nn.Linear(13, 10)


def test_a_network_that_was_an_object_is_asked_for(tmp_path: Path) -> None:
    run = train(
        "SplitDigits", network=Net(), feature="hidden", steps=3, folder=tmp_path
    )
    with pytest.raises(ValueError, match=r"<Net> .* load_run\(folder, network=...\)"):
        load_run(tmp_path)
    again = load_run(tmp_path, network=Net())
    inputs = run.env.evaluation_sets[0].inputs
    np.testing.assert_array_equal(again.predict(inputs), run.agent.predict(inputs))


def test_without_replay_there_is_no_memory(tmp_path: Path) -> None:
    Experiment(small(policy="none", steps=2), RunFolder(tmp_path)).run()
    assert load_run(tmp_path).memory is None


def test_a_memory_that_was_not_made_from_the_settings_is_not_loaded(
    tmp_path: Path,
) -> None:
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    def make_memory(*_: object) -> TensorDictReplayBuffer:
        return TensorDictReplayBuffer(storage=LazyTensorStorage(40))

    config = small(steps=3)
    Experiment(config, RunFolder(tmp_path), make_memory=make_memory).run()
    assert load_run(tmp_path).memory is None


@pytest.mark.parametrize("name", ["network.pt", "memory.pt"])
@pytest.mark.parametrize("damage", ["missing", "cut", "a pickle"])
def test_files_that_are_missing_or_damaged_run_no_code(
    name: str, damage: str, tmp_path: Path
) -> None:
    Experiment(small(policy="rs", steps=2), RunFolder(tmp_path)).run()
    file, witness = tmp_path / name, tmp_path / "witness"

    class Planted:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (witness,)

    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-20])
    else:
        file.write_bytes(pickle.dumps({"weights": Planted()}))
    if (name, damage) == ("memory.pt", "missing"):
        assert load_run(tmp_path).memory is None
        return
    with pytest.raises(CheckpointError, match=name):
        load_run(tmp_path)
    assert not witness.exists()


def test_a_run_that_is_not_over_cannot_be_loaded(tmp_path: Path) -> None:
    Experiment(small(policy="rs", steps=2), RunFolder(tmp_path))
    with pytest.raises(RunError, match="not a finished run"):
        load_run(tmp_path)
