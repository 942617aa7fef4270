"""The parts of engine "ray" that need no Ray to run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.q_learning.agent import DQNAgent
from agents.q_learning.config import DQNConfig
from agents.q_learning.engine import make_engine
from agents.q_learning.features import TransitionFeatures
from agents.q_learning.local_engine import LocalEngine
from agents.q_learning.memory_state import memory_state, restore_memory
from agents.q_learning.ray_collector import RemoteCollector
from agents.q_learning.ray_memory import buffer_parts
from agents.runs.checkpoint import load_checkpoint, save_checkpoint
from tests.agents.supervised.helpers import assert_same_state


def small(**chosen: Any) -> DQNConfig:
    """Settings of a small run on Ray."""
    options: dict[str, Any] = {
        "engine": "ray",
        "lengths": "400,400",
        "recent": 0.0,
        "capacity": 60,
        "num_envs": 2,
        "frames_per_batch": 16,
        "width": 16,
        "threads": 1,
        "device": "cpu",
    }
    return DQNConfig(**{**options, **chosen})


def learner(config: DQNConfig) -> DQNAgent:
    """An agent whose weights are not those that all begin with."""
    agent = DQNAgent(config, memory=lambda *_: None)
    generator = torch.Generator().manual_seed(1)
    for parameter in agent.loss.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator))
    agent.target_updater.step()
    return agent


def weights(agent: DQNAgent) -> dict[str, Any]:
    return dict(agent.loss.state_dict())


class TestEpsilon:
    def test_falls_with_the_frames_of_all_collectors_then_stays(self) -> None:
        config = small(epsilon_start=1.0, epsilon_end=0.2, epsilon_frames=100)
        found = [config.epsilon_after(frames) for frames in (0, 50, 100, 5000)]
        assert found == pytest.approx([1.0, 0.6, 0.2, 0.2])

    def test_a_collector_explores_by_the_frames_that_it_is_told(self) -> None:
        config = small(epsilon_end=0.0, epsilon_frames=100)
        collector = RemoteCollector(config, 0)
        agent = learner(config)
        batch = collector.make_batch(weights(agent), 100)
        best = agent.network(batch.select("observation"))["action"]
        assert torch.equal(batch["action"], best)
        explored = collector.make_batch(weights(agent), 0)
        best = agent.network(explored.select("observation"))["action"]
        assert not torch.equal(explored["action"], best)


class TestACollector:
    def test_does_not_remember_actions_that_nobody_asks_for(self) -> None:
        config = small()
        collector = RemoteCollector(config, 0)
        collector.make_batch(weights(learner(config)), 0)
        with pytest.raises(ValueError, match="not recorded cannot be saved"):
            collector.agent.rollout.state_dict()


class TestCollectedFrames:
    @pytest.mark.parametrize("target", ["td", "dyn"])
    def test_have_features_and_targets_of_the_learners_weights(
        self, target: str
    ) -> None:
        config = small(target=target)
        agent = learner(config)
        batch = RemoteCollector(config, 0).make_batch(weights(agent), 0)
        expected = TransitionFeatures(agent.loss, target).inv(
            batch.exclude("feature", "target")
        )
        assert batch["feature"].shape == (16, 2 * 16)
        torch.testing.assert_close(batch["feature"], expected["feature"])
        torch.testing.assert_close(batch["target"], expected["target"])

    @pytest.mark.parametrize("policy", ["infors", "rs", "fifo", "prioritized"])
    def test_bring_what_is_stored_and_nothing_else(self, policy: str) -> None:
        config = small(policy=policy)
        agent = learner(config)
        batch = RemoteCollector(config, 0).make_batch(weights(agent), 0)
        wanted = set(agent.loss.in_keys)
        if policy == "infors":
            wanted |= {"feature", "target"}
        assert set(batch.keys(True, True)) == wanted

    def test_differ_between_collectors_and_between_lives(self) -> None:
        config = small()
        state = weights(learner(config))
        first, other, later, again = (
            RemoteCollector(config, index, life).make_batch(state, 0)["observation"]
            for index, life in [(0, 0), (1, 0), (0, 1), (0, 0)]
        )
        assert not torch.equal(first, other)
        assert not torch.equal(first, later)
        assert torch.equal(first, again)


class TestTasksOfASequence:
    def test_are_shared_among_all_copies_of_all_collectors(self) -> None:
        collector = RemoteCollector(small(collectors=4), 0)
        copies = collector.env.envs
        assert [copy.unwrapped.lengths for copy in copies] == [(50, 50)] * 2

    @pytest.mark.parametrize(("frames", "task"), [(0, 0), (2 * 80, 0), (2 * 160, 1)])
    def test_go_on_where_the_collector_before_was(self, frames: int, task: int) -> None:
        config = small()  # two collectors of two copies: 100 frames a task
        collector = RemoteCollector(config, 0, life=1, frames=frames)
        batch = collector.make_batch(weights(learner(config)), 0)
        assert batch["observation"][:, -2:].argmax(-1).tolist() == [task] * len(batch)


class TestTheStateOfAMemory:
    @pytest.mark.parametrize("policy", ["infors", "rs", "fifo", "prioritized"])
    def test_brings_back_everything_from_a_file(
        self, policy: str, tmp_path: Path
    ) -> None:
        config = small(policy=policy)
        collector, state = RemoteCollector(config, 0), weights(learner(config))
        batches = [collector.make_batch(state, 0) for _ in range(8)]
        first, second = (self._make(config) for _ in range(2))
        for batch in batches[:6]:
            first.extend(batch.clone())
        sample = first.sample(32)
        sample["td_error"] = torch.rand(len(sample))
        first.update_tensordict_priority(sample)
        save_checkpoint(tmp_path / "memory.pt", memory_state(first))
        restore_memory(second, load_checkpoint(tmp_path / "memory.pt"))
        assert_same_state(memory_state(second), memory_state(first))
        for memory in (first, second):
            for batch in batches[6:]:
                memory.extend(batch.clone())
        assert_same_state(memory_state(second), memory_state(first))
        drawn, again = (memory.sample(50)["index"] for memory in (first, second))
        assert torch.equal(drawn, again)
        assert second.write_count == 8 * 16

    @pytest.mark.parametrize("policy", ["infors", "rs", "fifo", "prioritized"])
    def test_of_an_empty_one_is_that_of_a_new_one(self, policy: str) -> None:
        first, second = (self._make(small(policy=policy)) for _ in range(2))
        restore_memory(second, memory_state(first))
        assert len(second) == 0

    def test_is_refused_by_another_kind(self) -> None:
        fifo, prioritized = (
            self._make(small(policy=policy)) for policy in ("fifo", "prioritized")
        )
        with pytest.raises(ValueError, match="a buffer with a PrioritizedSampler"):
            restore_memory(prioritized, memory_state(fifo))
        state = memory_state(prioritized)
        state["_sampler"]["_sum_tree"] = state["_sampler"]["_sum_tree"][:7]
        with pytest.raises(ValueError, match="expected _sum_tree of 60 finite numbers"):
            restore_memory(prioritized, state)

    def _make(self, config: DQNConfig) -> Any:
        kind, options = buffer_parts(config)
        return kind(delayed_init=False, **options)  # as RayReplayBuffer does


class TestMakeEngine:
    def test_is_local_unless_asked_for(self) -> None:
        assert isinstance(make_engine(small(engine="local")), LocalEngine)

    def test_says_how_to_get_ray(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ValueError, match=r"pip install 'info-replay\[ray\]'"):
            make_engine(small())

    def test_refuses_a_memory_of_ones_own(self) -> None:
        with pytest.raises(ValueError, match="makes its memory itself"):
            make_engine(small(), memory=lambda *_: None)
