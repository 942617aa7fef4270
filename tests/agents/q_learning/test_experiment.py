"""Runs of Q-learning: the same for the same seed, and what they tell."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from agents.cli import main
from agents.q_learning.config import MEMORIES
from agents.q_learning.experiment import DQNExperiment, describe_memory, summarize
from agents.runs.divergence import DivergenceError
from agents.runs.folder import RunError, RunFolder
from info_replay import make_replay_buffer

from .helpers import IMAGES, small

#: Two tasks that both copies leave behind.
SHORT: dict[str, Any] = {"lengths": "24,24", "frames": 72, "evaluations": 3}


@functools.cache
def result_of(**chosen: Any) -> dict[str, Any]:
    return DQNExperiment(small(**{**SHORT, **chosen})).run()


# -- reproducible ---------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["infors", "rs", "fifo", "prioritized"])
def test_the_same_seed_gives_the_same_files(policy: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        torch.manual_seed(ord(name[0]))  # whatever happened before
        config = small(lengths="24,24", frames=40, evaluations=1, policy=policy)
        DQNExperiment(config, RunFolder(tmp_path / name)).run()
    for file in ("result.json", "metrics.jsonl", "config.json"):
        one, two = ((tmp_path / name / file).read_bytes() for name in ("one", "two"))
        assert one == two


def test_another_seed_is_another_run() -> None:
    one, two = result_of(), result_of(seed=1)
    assert one["evaluations"] != two["evaluations"]


def test_evaluations_do_not_change_what_is_learned() -> None:
    def weights(**chosen: Any) -> torch.Tensor:
        experiment = DQNExperiment(small(**{**SHORT, "frames": 40, **chosen}))
        experiment.run()
        network = experiment.agent.network
        return torch.nn.utils.parameters_to_vector(network.parameters())

    often, once = weights(evaluations=5), weights(evaluations=1, episodes=3)
    assert often.equal(once)
    assert not often.equal(weights(learning_rate=0.01))


# -- evaluations ----------------------------------------------------------------------


def evaluated_at(**chosen: Any) -> list[int]:
    """Frames of the evaluations of a run in which nothing is learned."""
    experiment = DQNExperiment(small(**chosen))
    batch = experiment.config.frames_per_batch

    def train(total: int) -> Any:
        return range(batch, total + batch, batch)

    def evaluate(frame: int) -> None:
        experiment.evaluations.append({"frame": frame, "returns": [1.0], "tasks": []})

    experiment.agent.train = train  # type: ignore[method-assign]
    experiment.evaluate = evaluate  # type: ignore[method-assign]
    return [event["frame"] for event in experiment.run()["evaluations"]]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"frames": 96, "evaluations": 3}, [32, 64, 96]),
        ({"frames": 96, "evaluations": 1}, [96]),
        ({"frames": 96, "evaluations": 0}, [96]),
        ({"frames": 100, "evaluations": 2}, [56, 104]),
        ({"frames": 24, "evaluations": 50}, [8, 16, 24]),
        ({"frames": 1, "evaluations": 2}, [8]),
    ],
)
def test_evaluations_are_spread_evenly(
    chosen: dict[str, int], expected: list[int]
) -> None:
    assert evaluated_at(env="CartPole-v1", **chosen) == expected


def test_no_evaluation_comes_a_batch_late() -> None:
    """21 / 28 of 1152 are 864 frames, but not in floating point."""
    found = evaluated_at(
        env="CartPole-v1", frames=1152, evaluations=28, frames_per_batch=32
    )
    assert 864 in found
    assert found == [-(-1152 * part // (28 * 32)) * 32 for part in range(1, 29)]


def test_an_evaluation_tells_of_returns_tasks_and_memory() -> None:
    events = result_of()["evaluations"]
    assert [event["frame"] for event in events] == [24, 48, 72]
    for event in events:
        assert len(event["returns"]) == 2
        assert all(value >= 1 for value in event["returns"])
        assert len(event["tasks"]) == 2
        assert event["size"] == 24
        assert event["write_count"] == event["frame"]
        assert 24 <= event["reservoir_count"] <= event["frame"]
        assert sum(event["task_shares"]) == pytest.approx(1)
    assert events[0]["tasks"] == [0, 0]
    assert events[0]["task_shares"] == [1, 0]


def test_the_result_holds_settings_summary_and_evaluations() -> None:
    result = result_of()
    config = small(**SHORT).what_matters()
    # These two settings give way to what came out.
    for name in ("frames", "evaluations"):
        del config[name]
    assert {key: result[key] for key in config} == config
    assert result["frames"] == 72
    summary = summarize(result["evaluations"])
    assert {key: result[key] for key in summary} == summary
    json.dumps(result)


def test_the_frames_of_a_result_are_those_collected() -> None:
    config = small(env="CartPole-v1", frames=35, evaluations=0)
    assert DQNExperiment(config).run()["frames"] == 40


def test_progress_is_told_after_each_batch() -> None:
    told: list[tuple[int, int, list[float]]] = []

    def progress(frames: int, total: int, returns: list[float]) -> None:
        told.append((frames, total, returns))

    config = small(env="CartPole-v1", frames=32, evaluations=2)
    result = DQNExperiment(config).run(progress)
    events = [event["returns"] for event in result["evaluations"]]
    expected = [[], events[0], events[0], events[1]]
    assert told == [(8 * i + 8, 32, expected[i]) for i in range(4)]


# -- summaries ------------------------------------------------------------------------


def event(tasks: list[int], *returns: float) -> dict[str, Any]:
    return {"tasks": tasks, "returns": list(returns)}


def test_a_sequence_is_summarized_by_old_and_current_tasks() -> None:
    summary = summarize(
        [
            event([0, 0], 100, 9, 8),
            event([1, 2], 60, 50, 10),  # one copy is not in the last task yet
            event([2, 2], 40, 70, 30),
            event([2, 2], 20, 30, 90),
        ]
    )
    assert summary == {
        "current_end": 90,
        "old_end": (20 + 30) / 2,
        "old_during": (40 + 70 + 20 + 30) / 4,
        "current_during": (30 + 90) / 2,
        "forgetting": ((100 - 20) + (70 - 30)) / 2,
        "mean_end": pytest.approx((20 + 30 + 90) / 3),
    }


def test_a_sequence_that_never_reached_its_last_task_says_so() -> None:
    summary = summarize([event([0, 0], 10, 20), event([0, 1], 30, 5)])
    assert summary["old_during"] is None
    assert summary["current_during"] is None
    assert summary["forgetting"] == 0
    assert summary["old_end"] == 30


def test_a_single_task_is_summarized_by_its_returns() -> None:
    assert summarize([event([], 10), event([], 40)]) == {"end": 40, "mean": 25}
    assert all(type(value) is float for value in summarize([event([], 1)]).values())


def transitions(contexts: list[int], ends: list[int]) -> TensorDict:
    count = len(contexts)
    context = torch.eye(3)[contexts]
    observation = torch.cat([torch.full((count, 2), 7.0), context], 1)
    over = torch.tensor(ends, dtype=torch.bool)[:, None]
    following = TensorDict(terminated=over, batch_size=[count])
    return TensorDict(observation=observation, next=following, batch_size=[count])


def test_a_memory_is_described_by_what_it_holds() -> None:
    memory = TensorDictReplayBuffer(storage=LazyTensorStorage(4))
    memory.extend(transitions([0, 0, 0], [0, 0, 0]))
    memory.extend(transitions([1, 2, 2], [1, 0, 1]))
    found = describe_memory(memory, 3)
    assert found == {
        "size": 4,
        "terminal_share": 0.5,
        "write_count": 6,
        "reservoir_count": 6,
        "task_shares": pytest.approx([1 / 4, 1 / 4, 2 / 4]),
    }
    assert "task_shares" not in describe_memory(memory, 1)


def test_an_empty_memory_can_be_described() -> None:
    memory = TensorDictReplayBuffer(storage=LazyTensorStorage(4))
    assert describe_memory(memory, 3)["size"] == 0


def test_a_memory_that_chooses_tells_what_passed() -> None:
    memory = make_replay_buffer("rs", 4)
    memory.extend(transitions([0, 0, 0], [0, 0, 1]))
    found = describe_memory(memory, 3)
    assert (found["size"], found["write_count"], found["reservoir_count"]) == (3, 3, 3)
    assert found["terminal_share"] == pytest.approx(1 / 3)


# -- files ----------------------------------------------------------------------------


def test_a_run_folder_holds_the_run(tmp_path: Path) -> None:
    config = small(env="CartPole-v1", frames=32, evaluations=2, tensorboard=True)
    folder = RunFolder(tmp_path / "new" / "run")
    result = DQNExperiment(config, folder).run()
    assert folder.read("config.json") == config.as_dict()
    assert folder.read("result.json") == result
    assert "torchrl" in folder.read("versions.json")
    assert set(folder.read("timing.json")) == {"learning", "evaluation"}
    assert all(value >= 0 for value in folder.read("timing.json").values())
    events = [
        {key: value for key, value in event.items() if key != "kind"}
        for event in folder.events("evaluation")
    ]
    assert events == result["evaluations"]
    assert len(events) == 2
    assert list(folder.path.rglob("*tfevents*"))


# -- environments ---------------------------------------------------------------------


def test_a_sequence_of_one_task_works() -> None:
    config = small(lengths="32", evaluations=1)
    assert len(DQNExperiment(config).run()["evaluations"][-1]["returns"]) == 1


def test_images_work_from_end_to_end() -> None:
    config = small(env=IMAGES, frames=80, capacity=30, evaluations=1, episodes=2)
    assert (config.policy, config.target) == ("infors", "auto")
    experiment = DQNExperiment(config)
    result = experiment.run()
    memory = experiment.agent.memory
    assert memory[:]["observation"].dtype == torch.bool
    assert memory[:]["observation"].shape == (30, 10, 10, 4)
    assert memory[:]["target"].shape == (30, 1)  # the TD target
    assert memory[:]["feature"].shape == (30, 3 * 8)
    assert 0 <= result["end"] <= 5
    # One frame in five is the last of an episode, whatever the policy.
    assert 0 < result["evaluations"][-1]["terminal_share"] < 1


# -- what ends a run ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "rate"),
    [("infors", 1e3), *((policy, 3e38) for policy in MEMORIES)],
)
def test_a_run_that_diverges_says_so(policy: str, rate: float) -> None:
    """At the lower rate features become too large, at the higher one infinite."""
    config = small(**{**SHORT, "frames": 400}, policy=policy, learning_rate=rate)
    with pytest.raises(DivergenceError, match=r"diverged: .*A smaller learning_rate"):
        DQNExperiment(config).run()


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("1e39", "learning_rate must be at least 0 and at most 3.4e+38, got 1e+39"),
        ("1e30", "learning has diverged: weights of the network are not finite."),
    ],
)
def test_a_learning_rate_that_is_too_large_gets_one_line(
    rate: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        f"dqn --lengths 64,64 --evaluations 1 --learning-starts 0 --out {tmp_path}/o"
    )
    assert main([*words.split(), "--learning-rate", rate]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    (line,) = [line for line in error.splitlines() if "info-replay:" in line]
    assert expected in line


def test_what_is_left_in_a_folder_is_not_continued(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    with pytest.raises(RunError, match="memory is of another run"):
        DQNExperiment(small(engine="ray", **SHORT), RunFolder(tmp_path))
    assert not (tmp_path / "config.json").exists()
