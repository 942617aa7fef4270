"""A run: test, then train, and tell all there is to know about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.config import ExperimentConfig
from agents.experiment import Experiment
from agents.metrics import (
    average_score,
    backward_transfer,
    class_variance,
    forward_transfer,
)
from agents.run_folder import RunError, RunFolder
from info_replay.registry import POLICIES
from tests.agents.helpers import finish, outcome, small


@pytest.mark.parametrize("policy", ["rs", "infors"])
def test_one_seed_gives_one_result_to_the_byte(tmp_path: Path, policy: str) -> None:
    config = small(policy=policy, imbalance=2, augmented=True)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002  nothing may depend on it
    finish(config, tmp_path / "one")
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    finish(config, tmp_path / "two")
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two")


def test_another_seed_gives_another_result() -> None:
    one, two = (Experiment(small(policy="rs", seed=seed)).run() for seed in (0, 1))
    assert one["first"] != two["first"]
    assert one["matrix"] != two["matrix"]


def test_a_run_without_a_folder_gives_the_same_result(tmp_path: Path) -> None:
    config = small(policy="infors", steps=10)
    assert Experiment(config).run() == finish(config, tmp_path / "run")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, list[float]]:
    """A finished run and the rewards of its steps."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "run")
    experiment = Experiment(small(policy="infors", imbalance=2, seed=1), folder)
    rewards = []
    step = experiment.env.step

    def watched(action: Any) -> Any:
        told = step(action)
        rewards.append(float(told[1]))
        return told

    experiment.env.step = watched  # type: ignore[method-assign]
    experiment.run()
    return experiment, rewards


def folder_of(experiment: Experiment) -> RunFolder:
    assert experiment.folder is not None
    return experiment.folder


def test_the_result_has_every_metric(run: tuple[Experiment, list[float]]) -> None:
    experiment, rewards = run
    result = folder_of(experiment).read("result.json")
    matrix = result["matrix"]
    assert np.shape(matrix) == (5, 5)
    assert np.shape(result["first"]) == (5,)
    assert result["average"] == average_score(matrix)
    assert result["backward_transfer"] == backward_transfer(matrix)
    assert result["forward_transfer"] == forward_transfer(matrix, result["first"])
    assert len(rewards) == result["steps_done"] == experiment.env.num_steps
    assert result["prequential"] == pytest.approx(np.mean(rewards))
    assert result["imbalanced_task"] == experiment.env.imbalanced_task == 1
    assert (result["policy"], result["seed"], result["imbalance"]) == ("infors", 1, 2)
    assert result["average"] > np.mean(result["first"])


def test_scores_are_those_of_the_test_data(run: tuple[Experiment, list[float]]) -> None:
    experiment, _ = run
    result = folder_of(experiment).read("result.json")
    expected = [
        np.mean(experiment.agent.predict(part.inputs) == part.targets)
        for part in experiment.env.evaluation_sets
    ]
    np.testing.assert_allclose(result["matrix"][-1], expected)


def test_a_run_is_evaluated_at_the_start_at_each_boundary_and_in_between(
    run: tuple[Experiment, list[float]],
) -> None:
    experiment, _ = run
    result = folder_of(experiment).read("result.json")
    events = {
        e["step"]: e["scores"] for e in folder_of(experiment).events("evaluation")
    }
    steps, ends = experiment.env.num_steps, experiment.env.boundaries
    between = [int(steps * part / 4) for part in (1, 2, 3, 4)]
    assert list(events) == sorted({0, *ends, *between})
    assert events[0] == result["first"]
    assert [events[end] for end in ends] == result["matrix"]


def test_the_memory_is_described_along_the_run(
    run: tuple[Experiment, list[float]],
) -> None:
    experiment, _ = run
    folder = folder_of(experiment)
    events = list(folder.events("memory"))
    assert [e["step"] for e in events] == [
        e["step"] for e in folder.events("evaluation")
    ]
    assert events[0]["size"] == events[0]["reservoir_count"] == 0
    assert events[-1]["size"] == 30
    for event in events:
        assert sum(event["class_counts"]) == event["size"]
        assert len(event["class_counts"]) == 10
        assert event["class_variance"] == class_variance(event["class_counts"])
    entered = [event["reservoir_count"] for event in events]
    assert entered == sorted(entered)
    last = {k: v for k, v in events[-1].items() if k not in ("kind", "step")}
    assert folder.read("result.json")["memory"] == last
    content = torch.load(folder.path / "memory.pt", weights_only=True)
    counts = content["target"].bincount(minlength=10).tolist()
    assert counts == last["class_counts"]
    assert content["observation"].shape == (30, 1, 8, 8)


def test_the_time_is_told_apart_and_no_checkpoint_is_left(
    run: tuple[Experiment, list[float]],
) -> None:
    folder = folder_of(run[0])
    seconds = folder.read("timing.json")
    assert set(seconds) == {"learning", "memory", "evaluation"}
    assert all(spent > 0 for spent in seconds.values())
    assert {path.name for path in folder.path.iterdir()} == {
        "config.json",
        "versions.json",
        "metrics.jsonl",
        "result.json",
        "timing.json",
        "memory.pt",
    }


def test_a_learner_is_told_observations_and_targets_alone() -> None:
    experiment = Experiment(small(policy="rs", batch_size=64))
    agent, env = experiment.agent, experiment.env
    act, learn = agent.act, agent.learn
    seen: list[Any] = []

    def watched_act(*given: Any, **named: Any) -> Any:
        assert not named
        (observation,) = given
        assert observation.shape == (64, 1, 8, 8)
        seen.append(observation)
        return act(*given)

    def watched_learn(*given: Any, **named: Any) -> None:
        assert not named
        observation, label, *rest = given
        assert observation is seen[-1]
        assert label.shape == (64,)
        assert rest in ([], [None])
        learn(*given)

    agent.act, agent.learn = watched_act, watched_learn  # type: ignore[method-assign]
    assert not env.options.expose_task_id
    experiment.run()
    assert len(seen) == env.num_steps
    held = [*vars(agent).values()]
    assert not any(thing is env or thing is experiment for thing in held)


def test_fewer_steps_make_a_shorter_run(tmp_path: Path) -> None:
    config = small(policy="rs", steps=12)
    seen: list[tuple[int, int]] = []
    experiment = Experiment(config, RunFolder(tmp_path))
    result = experiment.run(lambda step, steps, *_: seen.append((step, steps)))
    assert result["steps_done"] == 12
    assert seen == [(step, 12) for step in range(1, 13)]
    whole = Experiment(small(policy="rs"))
    whole.run()
    first = next(end for end in whole.env.boundaries if end <= 12)
    events = {e["step"]: e for e in RunFolder(tmp_path).events("evaluation")}
    assert max(events) == 12
    assert result["matrix"][0] == events[first]["scores"]
    assert result["matrix"][1:] == [events[12]["scores"]]  # of the task it ended in
    assert result["backward_transfer"] is result["forward_transfer"] is None


def test_more_steps_than_there_are_make_the_whole_run() -> None:
    one = Experiment(small(policy="rs", steps=10**6)).run()
    two = Experiment(small(policy="rs")).run()
    assert one["matrix"] == two["matrix"]
    assert one["steps_done"] == two["steps_done"]


def test_progress_tells_the_accuracy_so_far_and_of_late() -> None:
    rewards: list[float] = []
    told: list[tuple[float, ...]] = []
    experiment = Experiment(small(policy="rs", epochs=3, steps=80))
    step = experiment.env.step

    def watched(action: Any) -> Any:
        answer = step(action)
        rewards.append(float(answer[1]))
        return answer

    experiment.env.step = watched  # type: ignore[method-assign]
    experiment.run(lambda *values: told.append(values))
    for step in (10, 80):
        so_far, recent = np.mean(rewards[:step]), np.mean(rewards[:step][-50:])
        assert told[step - 1] == pytest.approx((step, 80, so_far, recent))


@pytest.mark.parametrize("policy", [*POLICIES, "none"])
def test_every_policy_runs_on_digits(policy: str) -> None:
    result = Experiment(small(policy=policy, steps=20)).run()
    assert (result["memory"] is None) == (policy == "none")
    assert result["metric"] == "accuracy"


@pytest.mark.parametrize(
    "policy", ["rs", "gss", "fss-clust", "infogs", "infors", "none"]
)
def test_regression_runs_and_is_judged_by_its_squared_error(policy: str) -> None:
    experiment = Experiment(small(env="SplitDiabetes", policy=policy, batch_size=16))
    result = experiment.run()
    assert result["metric"] == "negative squared error"
    part = experiment.env.evaluation_sets[0]
    error = np.square(experiment.agent.predict(part.inputs) - part.targets).mean()
    assert result["matrix"][-1][0] == pytest.approx(-error, rel=1e-5)
    if policy != "none":
        assert "class_counts" not in result["memory"]


@pytest.mark.parametrize("env", ["PermutedDigits", "DriftDigits"])
def test_the_other_streams_of_digits_run(env: str) -> None:
    result = Experiment(small(env=env, policy="infors", steps=15)).run()
    assert result["steps_done"] == 15
    assert 0 <= result["average"] <= 1


def test_validation_judges_by_what_was_held_out() -> None:
    experiment = Experiment(small(policy="rs", validation=True))
    result = experiment.run()
    sizes = [len(part) for part in experiment.env.evaluation_sets]
    train = experiment.env.dataset.train
    assert sum(sizes) == pytest.approx(len(train) / 10, rel=0.05)
    whole = Experiment(small(policy="rs"))
    assert result["steps_done"] < whole.num_steps
    for score, size in zip(result["matrix"][-1], sizes, strict=True):
        assert score * size == pytest.approx(round(score * size))


def test_tensorboard_files_change_nothing_else(tmp_path: Path) -> None:
    config = small(policy="rs", steps=8)
    finish(config, tmp_path / "without")
    chosen = {**config.as_dict(), "tensorboard": True}
    finish(ExperimentConfig(**chosen), tmp_path / "with")
    assert outcome(tmp_path / "without") == outcome(tmp_path / "with")
    assert list((tmp_path / "with").rglob("events.out.tfevents*"))
    assert not list((tmp_path / "without").rglob("events.out.tfevents*"))


def test_metrics_are_one_json_object_a_line(
    run: tuple[Experiment, list[float]],
) -> None:
    lines = folder_of(run[0]).metrics.read_text().splitlines()
    assert {json.loads(line)["kind"] for line in lines} == {"evaluation", "memory"}


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    config = small(policy="rs", steps=3)
    finish(config, tmp_path)
    before = outcome(tmp_path)
    with pytest.raises(RunError, match="--resume"):
        Experiment(config, RunFolder(tmp_path))
    assert outcome(tmp_path) == before
