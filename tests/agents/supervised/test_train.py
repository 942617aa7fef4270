"""A run on anything in one call: own data, network, learner, metrics, callbacks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score
from torch import nn

from agents import Callback, train
from agents.runs.checkpoint import CheckpointError
from agents.runs.folder import RunError, RunFolder
from agents.supervised.callbacks import Run
from agents.supervised.derpp import DERPlusPlusAgent
from agents.supervised.experiment import Experiment
from tests.agents.supervised.helpers import outcome

SMALL: dict[str, Any] = {"capacity": 20, "threads": 1, "evaluations": 2}


def blobs(count: int = 300, classes: int = 6) -> tuple[NDArray[Any], NDArray[Any]]:
    """Classes that are easy to tell apart."""
    rng = np.random.default_rng(0)
    y = np.arange(count) % classes
    return rng.normal(size=(count, 8)) + 4 * np.eye(classes, 8)[y], y


def worst_class(targets: NDArray[Any], predictions: NDArray[Any]) -> float:
    hits = predictions == targets
    return min(hits[targets == each].mean() for each in np.unique(targets))


class Dropped(nn.Module):
    """A network with dropout, so that training draws random numbers of its own."""

    def __init__(self, input_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Linear(input_shape[0], 16), nn.ReLU(), nn.Dropout(0.3)
        )
        self.last = nn.Linear(16, num_outputs)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.hidden(x)
        return features, self.last(features)


class Wide(Dropped):
    def __init__(self, input_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__(input_shape, num_outputs)
        self.last = nn.Linear(16, num_outputs, bias=False)


# -- data -----------------------------------------------------------------------------


def test_arrays_become_a_run() -> None:
    run = train(blobs(), tasks=3, policy="rs", epochs=3, **SMALL)
    result = run.result()
    assert (result["stream"], result["data"], result["env"]) == (
        "arrays",
        "<arrays>",
        None,
    )
    assert np.shape(result["matrix"]) == (3, 3)
    assert result["average"] > 0.6


def test_test_data_may_be_given() -> None:
    X, y = blobs()
    run = train((X, y), test=(X[:60], y[:60]), tasks=2, policy="rs", **SMALL)
    assert sum(map(len, run.env.evaluation_sets)) == 60


def test_a_benchmark_is_the_same_as_by_its_settings() -> None:
    run = train("SplitDigits", policy="infors", steps=9, **SMALL)
    assert run.result() == Experiment(run.config).run()


def test_lists_are_options_like_any_other() -> None:
    run = train(
        blobs(), class_order=[5, 4, 3, 2, 1, 0], class_sizes=[1, 5], steps=2, **SMALL
    )
    labels = [set(part.targets.tolist()) for part in run.env.evaluation_sets]
    assert labels == [{5}, {0, 1, 2, 3, 4}]


def test_several_numbers_can_be_predicted() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    Y = 100 + X @ rng.normal(size=(5, 3))
    run = train((X, Y), policy="infors", epochs=5, learning_rate=0.05, **SMALL)
    result = run.result()
    assert result["metric"] == "negative squared error"
    assert result["first"][0] < result["average"] < 0
    assert run.agent.predict(run.env.evaluation_sets[0].inputs).shape == (120, 3)


def endless() -> Iterator[tuple[NDArray[Any], int]]:
    rng = np.random.default_rng(1)
    for number in itertools.count():
        yield (rng.normal(size=4) + number % 3).astype(np.float32), number % 3


def test_a_stream_without_an_end_needs_no_test_data(tmp_path: Path) -> None:
    run = train(endless, num_classes=3, steps=30, folder=tmp_path, **SMALL)
    result = run.result()
    assert (result["average"], result["matrix"]) == (None, [[]])
    assert result["prequential"] > 0.4
    assert result["steps_of_stream"] is None
    X, y = zip(*itertools.islice(endless(), 90), strict=True)
    judged = train(
        endless, test=(np.array(X), np.array(y)), steps=30, policy="rs", **SMALL
    )
    assert judged.result()["average"] > 0.4


def test_a_stream_that_ends_unannounced_ends_the_run() -> None:
    X, y = blobs(100)
    run = train(zip(X, y, strict=True), num_classes=6, batch_size=30, **SMALL)
    assert (run.step, run.is_over, run.num_steps) == (4, True, 4)


def test_a_stream_that_ends_before_its_steps_ends_the_run(tmp_path: Path) -> None:
    X, y = blobs(100)
    run = train(
        lambda: zip(X, y, strict=True),
        num_classes=6,
        batch_size=30,
        steps=50,
        folder=tmp_path,
        **SMALL,
    )
    assert run.result()["steps_done"] == 4


def test_numbers_of_numpy_are_settings_like_any_other() -> None:
    given: dict[str, Any] = {"seed": np.int64(1), "learning_rate": np.float32(0.5)}
    run = train(blobs(), capacity=np.int64(5), steps=np.int32(2), **given)
    settings = run.config.as_dict()
    assert [settings[name] for name in ("capacity", "seed", "steps")] == [5, 1, 2]
    assert type(settings["capacity"]) is int
    assert settings["learning_rate"] == 0.5


def test_a_name_is_no_path_even_if_there_is_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Digits").mkdir()
    monkeypatch.chdir(tmp_path)
    run = train("Digits", tasks=5, policy="rs", steps=1, **SMALL)
    assert run.config.data == "Digits"
    assert run.env.dataset.num_classes == 10


def test_test_data_may_be_named_and_one_number_is_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    for number in range(12):
        file = tmp_path / "images" / f"class{number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6 + number % 3, 9)).save(file)
    monkeypatch.chdir(tmp_path)
    run = train("images", image_size=8, tasks=2, policy="rs", steps=1, **SMALL)
    assert run.env.dataset.input_shape == (3, 8, 8)
    (tmp_path / "named.py").write_text(
        "import numpy as np\n"
        "def some():\n"
        "    return np.arange(40.0).reshape(20, 2), np.arange(20) % 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = train("named:some", test="named:some", policy="rs", steps=1, **SMALL)
    assert sum(map(len, run.env.evaluation_sets)) == 20


def test_several_columns_of_a_table_are_the_inputs() -> None:
    datasets = pytest.importorskip("datasets")
    X, y = blobs(60)
    columns = {name: X[:, number] for number, name in enumerate("abc")}
    table = datasets.Dataset.from_dict({**columns, "label": y})
    run = train(table, input_key=["a", "c"], target_key="label", steps=1)
    assert run.env.dataset.input_shape == (2,)


# -- network and learner --------------------------------------------------------------


def test_a_network_and_a_learner_of_ones_own_are_used() -> None:
    class Careful(DERPlusPlusAgent):
        steps = 0

        def learn(self, *given: Any) -> None:
            self.steps += 1
            super().learn(*given)

    run = train(blobs(), network=Dropped, learner=Careful, policy="rs", **SMALL)
    assert isinstance(run.agent, Careful)
    assert run.agent.steps == run.step
    assert run.agent.network.feature_dim == 16
    assert run.config.network.endswith("test_train:Dropped")
    assert run.config.learner == "<Careful>"


@pytest.mark.parametrize("learner", ["der++", "er", "er-ace", "finetune"])
def test_every_learner_learns_by_its_name(learner: str) -> None:
    policy = "none" if learner == "finetune" else "rs"
    run = train(blobs(), learner=learner, tasks=2, policy=policy, epochs=5, **SMALL)
    assert run.result()["learner"] == learner
    assert run.result()["prequential"] > 0.4  # a sixth is chance
    assert (run.agent.memory is None) == (learner == "finetune")


def test_frozen_features_are_never_written_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("features that do not change were written back")

    monkeypatch.setattr("info_replay.SelectionWriter.update_features", refuse)
    run = train(blobs(), network="linear", policy="infors", **SMALL)
    assert run.agent.memory is not None
    assert run.agent.memory.fixed_features
    with pytest.raises(AssertionError, match="were written back"):
        train(blobs(), network="mlp", policy="infors", **SMALL)


# -- metrics and callbacks ------------------------------------------------------------


def test_metrics_of_ones_own_are_in_the_results(tmp_path: Path) -> None:
    run = train(
        blobs(),
        tasks=2,
        metrics=[worst_class, "sklearn.metrics:balanced_accuracy_score"],
        folder=tmp_path,
        **SMALL,
    )
    metrics = run.result()["metrics"]
    assert list(metrics) == ["worst_class", "balanced_accuracy_score"]
    parts = run.env.evaluation_sets
    for name, function in (
        ("worst_class", worst_class),
        ("balanced_accuracy_score", balanced_accuracy_score),
    ):
        expected = [
            function(part.targets, run.agent.predict(part.inputs)) for part in parts
        ]
        assert metrics[name]["matrix"][-1] == pytest.approx(expected)
        assert metrics[name]["average"] == pytest.approx(np.mean(expected))
    events = list(RunFolder(tmp_path).events("metrics"))
    assert events[-1]["worst_class"] == metrics["worst_class"]["matrix"][-1]


def test_metrics_of_numbers_are_in_the_users_units() -> None:
    X, _ = blobs()
    y = 1e6 + 1e5 * X[:, 0]

    def mean_error(targets: NDArray[Any], predictions: NDArray[Any]) -> float:
        assert targets.min() > 1e5
        return float(np.abs(targets - predictions).mean())

    run = train((X, y), metrics=[mean_error], steps=1, **SMALL)
    assert run.result()["metrics"]["mean_error"]["average"] > 1000


@pytest.mark.parametrize("value", [None, "good", float("nan"), [1, 2]])
def test_a_metric_that_gives_no_number_is_named(value: Any) -> None:
    with pytest.raises(ValueError, match="metric 'odd' must give a finite number, got"):
        train(blobs(), metrics={"odd": lambda targets, predictions: value}, **SMALL)


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"a": 3}, "metric 'a' must be a function of targets and predictions, got 3"),
        ({"step": worst_class}, "a name other than 'step', got 'step'"),
        ([worst_class, worst_class], "got 'worst_class' twice"),
        ({"broken": lambda targets: 0.0}, "takes 1 positional argument"),
    ],
)
def test_a_wrong_metric_is_refused_before_anything_is_written(
    metrics: Any, expected: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, TypeError), match=expected):
        train(blobs(), metrics=metrics, folder=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_metric_need_not_be_finite_for_perfect_predictions() -> None:
    X, _ = blobs()

    def precision(targets: NDArray[Any], predictions: NDArray[Any]) -> float:
        return 1 / float(np.square(targets - predictions).mean())

    result = train((X, X[:, 0]), metrics=[precision], steps=1, **SMALL).result()
    assert result["metrics"]["precision"]["average"] > 0


def test_one_metric_needs_no_list() -> None:
    name = "sklearn.metrics:balanced_accuracy_score"
    result = train(blobs(), metrics=name, steps=1, **SMALL).result()
    assert list(result["metrics"]) == ["balanced_accuracy_score"]


def test_metrics_need_something_to_evaluate_on() -> None:
    with pytest.raises(ValueError, match="metrics need test data"):
        train(endless, num_classes=3, steps=2, metrics=[worst_class])


@pytest.mark.parametrize("wrong", [3, Callback])
def test_what_is_not_a_callback_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="on_step and on_evaluation.*got "):
        train(blobs(), callbacks=[wrong])


def test_one_callback_needs_no_list() -> None:
    train(blobs(), steps=1, callbacks=Callback())  # type: ignore[arg-type]


def test_callbacks_are_told_of_steps_and_evaluations() -> None:
    class Watch(Callback):
        def __init__(self) -> None:
            self.told: list[Any] = []

        def on_step(self, experiment: Experiment, reward: float) -> None:
            self.told.append((experiment.step, reward))

        def on_evaluation(self, experiment: Experiment, scores: list[float]) -> None:
            self.told.append((experiment.step, scores))

    watch = Watch()
    run = train(blobs(), tasks=2, steps=2, callbacks=[watch], policy="rs", **SMALL)
    kinds = [(step, type(value)) for step, value in watch.told]
    assert kinds == [(0, list), (1, float), (1, list), (2, float), (2, list)]
    assert watch.told[-1][1] == run.result()["matrix"][-1]


# -- resuming -------------------------------------------------------------------------

SOURCES: dict[str, Any] = {
    "arrays": {
        "data": blobs(),
        "tasks": 3,
        "batch_size": 10,
        "evaluations": 40,
        "longtail": 3,
        "label_noise": 0.1,
    },
    "endless": {"data": endless, "num_classes": 3, "steps": 18},
}


class Stop(Callback):
    """Saves after a step, before the evaluation that may be due, and is killed."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, experiment: Run, reward: float) -> None:
        if experiment.step == self.step:
            experiment.save()
        if experiment.step == self.step + 2:
            raise InterruptedError("killed")


@pytest.mark.parametrize("source", SOURCES)
def test_a_run_with_everything_of_ones_own_goes_on_bit_for_bit(
    source: str, tmp_path: Path
) -> None:
    given = {
        **SMALL,
        **SOURCES[source],
        "network": Dropped,
        "learner": "er-ace",
    }
    data = given.pop("data")
    if source == "arrays":
        given["metrics"] = {"worst": worst_class}

    train(data, folder=tmp_path / "whole", **given)
    with pytest.raises(InterruptedError):
        train(data, folder=tmp_path / "parts", callbacks=[Stop(5)], **given)
    train(data, folder=tmp_path / "parts", resume=True, **given)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    for name in ("network.pt", "memory.pt"):
        one, two = (
            torch.load(tmp_path / part / name, weights_only=True)
            for part in ("whole", "parts")
        )
        assert str(one) == str(two)


def test_a_finished_run_comes_back_as_it_ended(tmp_path: Path) -> None:
    given: dict[str, Any] = {"tasks": 2, "policy": "infors", "folder": tmp_path}
    first = train(blobs(), **given, **SMALL)
    again = train(blobs(), resume=True, **given, **SMALL)
    assert again.result() == first.result()
    assert (again.step, again.is_over) == (first.step, True)
    inputs = first.env.evaluation_sets[0].inputs
    np.testing.assert_array_equal(
        again.agent.predict(inputs), first.agent.predict(inputs)
    )
    assert again.agent.memory is not None
    assert len(again.agent.memory) == 20
    assert again.mean_reward == pytest.approx(first.mean_reward)
    assert again.task_ends == first.task_ends
    other = {**given, "network": lambda shape, outputs: Wide(shape, outputs)}
    RunFolder(tmp_path).write(
        "config.json", {**first.config.as_dict(), "network": "<lambda>"}
    )
    with pytest.raises(ValueError, match="this is not the network of") as told:
        train(blobs(), resume=True, **other, **SMALL)
    assert "\n" not in str(told.value)


def test_a_learner_that_could_not_be_read_back_is_refused_at_the_start(
    tmp_path: Path,
) -> None:
    class Noting(DERPlusPlusAgent):
        def state_dict(self) -> dict[str, Any]:
            return {**super().state_dict(), "notes": np.zeros(3)}

    with pytest.raises(ValueError, match="cannot be saved: .*plain values and tensors"):
        train(blobs(), learner=Noting, folder=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_class_with_the_four_methods_is_a_learner(tmp_path: Path) -> None:
    class Guess:
        """Predicts the last label that it was told."""

        def __init__(self, network: nn.Module, memory: Any) -> None:
            self.last = 0

        def act(self, observation: NDArray[Any]) -> NDArray[Any]:
            return np.full(len(observation), self.last)

        def learn(self, observation: Any, target: Any, mask: Any = None) -> None:
            self.last = int(target[target >= 0][-1])

        def state_dict(self) -> dict[str, Any]:
            return {"last": self.last}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.last = state_dict["last"]

    run = train(blobs(), tasks=2, learner=Guess, folder=tmp_path, **SMALL)
    part = run.env.evaluation_sets[1]
    expected = np.mean(part.targets == run.agent.last)  # type: ignore[attr-defined]
    assert run.result()["matrix"][-1][1] == pytest.approx(expected)


def test_the_lock_of_a_run_that_cannot_be_resumed_is_released(tmp_path: Path) -> None:
    with pytest.raises(InterruptedError):
        train(blobs(), policy="rs", folder=tmp_path, callbacks=[Stop(2)], **SMALL)
    good = (tmp_path / "checkpoint.pt").read_bytes()
    (tmp_path / "checkpoint.pt").write_bytes(b"rubbish")
    with pytest.raises(CheckpointError) as held:
        train(blobs(), policy="rs", folder=tmp_path, resume=True, **SMALL)
    (tmp_path / "checkpoint.pt").write_bytes(good)
    train(blobs(), policy="rs", folder=tmp_path, resume=True, **SMALL)
    assert held.value is not None


def test_other_data_or_another_network_cannot_continue_a_run(tmp_path: Path) -> None:
    X, y = blobs()
    experiment = Experiment(
        train((X, y), steps=1, policy="rs", **SMALL).config,
        RunFolder(tmp_path),
        env=train((X, y), steps=1, policy="rs", **SMALL).env,
    )
    experiment.save()
    experiment.folder.release()  # type: ignore[union-attr]
    with pytest.raises(RunError, match="the data is not that of the run"):
        train((X + 1, y), steps=1, policy="rs", folder=tmp_path, resume=True, **SMALL)
    with pytest.raises(RunError, match="network='fc' as one with network="):
        train(
            (X, y),
            steps=1,
            policy="rs",
            folder=tmp_path,
            resume=True,
            network=Dropped,
            **SMALL,
        )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"network": nn.Linear(3, 3)}, "shape|mat1|features"),
        ({"metrics": ["gone:f1"]}, "cannot import the metric"),
        ({"logger": "paper"}, "logger must be one of csv"),
        ({"policy": "rs", "tasks": 4}, "tasks|classes"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(
    options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=expected) as told:
        train(blobs(), folder=tmp_path / "run", **{**SMALL, **options})
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()


def test_an_unknown_option_is_named_with_the_one_that_is_meant() -> None:
    with pytest.raises(TypeError, match="'polcy'; did you mean 'policy'"):
        train(blobs(), polcy="rs")


@pytest.mark.parametrize("finished", [True, False])
def test_other_data_is_refused_from_the_first_step_on(
    finished: bool, tmp_path: Path
) -> None:
    X, y = blobs()
    train((X, y), steps=1, policy="rs", folder=tmp_path, **SMALL)
    if not finished:  # killed before there was a checkpoint
        (tmp_path / "result.json").unlink()
    with pytest.raises(RunError, match="the data is not that of the run"):
        train((X + 1, y), steps=1, policy="rs", folder=tmp_path, resume=True, **SMALL)


def test_nothing_is_no_data() -> None:
    with pytest.raises(ValueError, match="data must be given, got None"):
        train(None)
