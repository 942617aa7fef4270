"""Engine "ray" on a Ray of this machine: what happens when something dies.

``make test-ray`` runs these alone; they take a minute or two.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import ray
import torch
from gymnasium.envs.classic_control import CartPoleEnv

from agents.q_learning.config import DQNConfig
from agents.q_learning.experiment import DQNExperiment
from agents.q_learning.features import place_by_action
from agents.q_learning.ray_collector import RemoteCollector
from agents.q_learning.ray_engine import RayEngine
from agents.q_learning.ray_memory import RayMemory
from agents.runs.errors import EngineError
from agents.runs.folder import RunFolder
from tests.agents.q_learning.test_ray_parts import learner, small, weights
from tests.agents.supervised.helpers import assert_same_state

pytestmark = pytest.mark.ray

_LONGEST = 120.0


@pytest.fixture(scope="module", autouse=True)
def _local_ray() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Workers would otherwise yield to everything else on a busy machine.
        patch.setenv("RAY_worker_niceness", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        ray.init(
            address="local", num_cpus=4, include_dashboard=False, log_to_driver=False
        )
        yield
        ray.shutdown()


@pytest.fixture
def memory() -> Iterator[RayMemory]:
    """A memory in an actor; test_ray_parts.py has the states of all policies."""
    memory = RayMemory(small(recent=0.25))
    memory.start()
    yield memory
    memory.close()


def process_of(actor: Any) -> int:
    found: int = ray.get(actor.__ray_call__.remote(lambda self: os.getpid()))
    return found


def kill(actor: Any) -> None:
    """What the kernel does to a process that takes too much memory."""
    os.kill(process_of(actor), signal.SIGKILL)


def train_until(engine: RayEngine, training: Iterator[int], frames: int) -> None:
    deadline = time.monotonic() + _LONGEST
    for collected in training:
        if collected >= frames:
            return
        assert time.monotonic() < deadline, f"{collected} frames, not {frames}"


def frames_of(config: DQNConfig, batches: int) -> list[Any]:
    collector, state = RemoteCollector(config, 0), weights(learner(config))
    return [collector.make_batch(state, 0) for _ in range(batches)]


def stale_rows(engine: RayEngine) -> float:
    """The share of the memory whose features are not those of the network."""
    content = engine.memory.buffer[:]
    with torch.no_grad():
        output = engine.agent.network(content.select("observation"))
    fresh = place_by_action(output["hidden"], content["action"], 2)
    return float((fresh - content["feature"]).abs().amax(-1).gt(1e-5).float().mean())


class TestADeadCollector:
    def test_is_replaced_and_the_run_goes_on_to_its_end(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        config = small(
            lengths=None, frames=2000, learning_starts=100, evaluations=4, episodes=1
        )
        experiment = DQNExperiment(config, RunFolder(tmp_path / "run"))
        engine = experiment.engine
        assert isinstance(engine, RayEngine)
        victim, other = engine.places
        killed: list[int] = []
        done = {}

        def progress(frames: int, num_frames: int, returns: list[float]) -> None:
            if frames >= 600 and not killed:
                killed.append(process_of(victim.actor))
                os.kill(killed[0], signal.SIGKILL)
            if victim.lives == 2 and not done:
                done["victim"], done["other"] = victim.frames, other.frames
                # The rest of the run is so short that the new one would miss it.
                assert process_of(victim.actor) != killed[0]

        with caplog.at_level(logging.WARNING):
            result = experiment.run(progress)

        assert result["frames"] == 2000
        assert [event["frame"] for event in result["evaluations"]] == [
            512,
            1008,
            1504,
            2000,
        ]
        assert done["victim"] > 0
        assert victim.frames > done["victim"]
        assert other.frames > done["other"]
        assert victim.frames + other.frames == 2000
        # A batch that was written but not reported any more may come on top.
        assert result["evaluations"][-1]["write_count"] in (2000, 2016)
        lines = [record.getMessage() for record in caplog.records]
        assert [line for line in lines if "died" in line] == [
            f"collector 0 died after {done['victim']} frames; a new one takes its place"
        ]
        assert (tmp_path / "run" / "result.json").exists()


class TestADeadBuffer:
    def test_comes_back_bit_for_bit_as_it_was_saved(self, memory: RayMemory) -> None:
        batches = frames_of(memory.config, 12)
        for batch in batches[:8]:
            memory.client.extend(batch)
        sample = memory.sample(32)
        if "feature" in sample.keys():
            sample["feature"] += 1.0
        memory.update_tensordict_priority(sample)
        saved = memory.state_dict()
        for batch in batches[8:]:
            memory.client.extend(batch)
        onward = memory.buffer.state_dict()
        kill(memory.actor)
        memory.revive()
        assert_same_state(memory.buffer.state_dict(), saved)
        assert memory.buffer.write_count == 8 * 16
        # Counters, statistics and random numbers are back, too: what follows is decided
        # as it was decided before.
        for batch in batches[8:]:
            memory.client.extend(batch)
        assert_same_state(memory.buffer.state_dict(), onward)

    def test_does_not_end_the_training(self, caplog: pytest.LogCaptureFixture) -> None:
        engine = RayEngine(small(learning_starts=100, learning_rate=0.0))
        try:
            training = engine.train(1_000_000)
            train_until(engine, training, 320)
            saved = engine.state_dict()["memory"]["_writer"]["counts"]["write_count"]
            train_until(engine, training, engine.frames + 160)
            before = engine.frames
            with caplog.at_level(logging.WARNING):
                kill(engine.memory.actor)
                train_until(engine, training, before + 320)
            assert [place.lives for place in engine.places] == [1, 1]
            assert "a new one holds the 60 transitions" in caplog.text
            assert saved > 0
            assert engine.memory.buffer.write_count >= saved + 160
            assert self._makes_features_fresh(engine)
        finally:
            engine.close()

    def _makes_features_fresh(self, engine: RayEngine) -> bool:
        """Learning writes the features of the network as it is now to the memory."""
        for parameter in engine.agent.network.parameters():
            parameter.data.mul_(1.5)
        before = stale_rows(engine)
        engine.agent.learn(8)  # 512 draws from 60 slots, with a learning rate of 0
        return before > 0.9 and stale_rows(engine) < 0.05


class TestAnErrorThatIsNoDeath:
    def test_ends_the_run_at_once(self) -> None:
        # The learner knows this environment, the actors do not.
        gymnasium.register("OnlyHere-v0", CartPoleEnv, max_episode_steps=500)
        engine = RayEngine(small(env="OnlyHere-v0", lengths=None, collectors=1))
        try:
            with pytest.raises(EngineError, match="collector 0 died.*OnlyHere-v0"):
                train_until(engine, engine.train(1000), 1000)
            assert engine.places[0].lives == 1
        finally:
            engine.close()
