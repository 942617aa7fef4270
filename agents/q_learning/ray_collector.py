"""A collector in an actor of Ray: :class:`RemoteCollector`, and where it belongs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch
from tensordict import TensorDictBase

from agents.q_learning.agent import DQNAgent
from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import (
    current_tasks,
    make_torchrl_env,
    skip_frames,
)
from agents.q_learning.features import TransitionFeatures
from agents.q_learning.memory import choose_target
from agents.runs.saved_states import check_numbers, check_parts, check_whole

__all__ = ["CollectorPlace", "RemoteCollector", "Report"]


@dataclass(frozen=True)
class Report:
    """What a collector says of a batch that it has written.

    Attributes:
        frames: their number.
        tasks: that its copies of a sequence are in.
    """

    frames: int
    tasks: list[int]


class RemoteCollector:
    """Collects frames, with what the memory wants to know of them.

    It computes on the CPU and has all of an agent but a memory: the policy chooses the
    actions, and the loss, with the learner's weights, gives features and targets.

    Args:
        config: the settings.
        index: of this collector among all.
        life: how many collectors were in its place before.
        frames: that these had collected.
    """

    def __init__(
        self, config: DQNConfig, index: int, life: int = 0, frames: int = 0
    ) -> None:
        config = dataclasses.replace(config, device="cpu", compiled=False)
        # Apart from the seeds of the evaluation; a new life has new luck.
        seeds = np.random.SeedSequence([config.seed, 2, index, life])
        seed = int(seeds.generate_state(1)[0]) >> 1
        torch.manual_seed(seed)  # of exploration
        self.config = config
        copies = config.collectors * config.num_envs
        self.env = make_torchrl_env(config, copies=copies)
        self.env.set_seed(seed)
        skip_frames(self.env, frames // config.num_envs)
        # Nobody asks a collector for its state: a new one starts new episodes.
        self.agent = DQNAgent(config, self.env, memory=lambda *_: None, recorded=False)
        self._stored = list(self.agent.loss.in_keys)
        self._features: TransitionFeatures | None = None
        if config.keeps_features:
            observation = self.env.observation_spec_unbatched["observation"]
            target = choose_target(config, observation.shape)
            self._features = TransitionFeatures(self.agent.loss, target)
            self._stored += ["feature", "target"]

    def collect(self, weights: dict[str, Any], frames: int, buffer: Any) -> Report:
        """Collect a batch and write it to the buffer.

        Args:
            weights: state of the learner's loss.
            frames: of all collectors so far, which exploration depends on.
            buffer: where to write to.

        Returns:
            What was written.
        """
        batch = self.make_batch(weights, frames)
        buffer.extend(batch)
        return Report(len(batch), current_tasks(self.env))

    def make_batch(self, weights: dict[str, Any], frames: int) -> TensorDictBase:
        """Collect a batch.

        Args:
            weights: state of the learner's loss.
            frames: of all collectors so far.

        Returns:
            What is to be stored of it.
        """
        self.agent.loss.load_state_dict(weights)
        self.agent.exploration.eps.fill_(self.config.epsilon_after(frames))
        steps = self.config.frames_per_batch // self.config.num_envs
        batch = self.agent.rollout.collect(steps).reshape(-1)
        if self._features is not None:
            batch = self._features.inv(batch)
        return batch.select(*self._stored)


@dataclass
class CollectorPlace:
    """The place of a collector, which may see several of them.

    Attributes:
        config: the settings.
        index: its number.
        tasks: that its copies of a sequence were in when last heard of.
        frames: that were collected here.
        lives: collectors that were started here.
        deaths: of them in a row, without a batch in between.
        actor: the present one.
    """

    config: DQNConfig
    index: int
    tasks: list[int]
    frames: int = 0
    lives: int = 0
    deaths: int = 0
    actor: Any = None

    def start(self) -> None:
        """Start a collector, which goes on where the one before it was."""
        remote = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(RemoteCollector)
        self.actor = remote.remote(self.config, self.index, self.lives, self.frames)
        self.lives += 1

    def heard(self, report: Report) -> None:
        """Take note of a batch."""
        self.frames += report.frames
        self.tasks = report.tasks
        self.deaths = 0

    def state_dict(self) -> dict[str, Any]:
        """Where a new collector goes on."""
        return {"frames": self.frames, "lives": self.lives, "tasks": self.tasks}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict` that was checked."""
        self.frames, self.lives = state_dict["frames"], state_dict["lives"]
        self.tasks = [*state_dict["tasks"]]

    def check_state(self, state: Any) -> None:
        """Refuse what is not the state of such a place.

        Raises:
            ValueError: naming the first value that does not fit.
        """
        parts = ("frames", "lives", "tasks")
        check_parts(state, *parts, name="the state of a collector")
        check_numbers(state["tasks"], len(self.tasks), "tasks")
        for value in (state["frames"], state["lives"], *state["tasks"]):
            check_whole(value, "frames, lives and tasks of a collector")
        if state["frames"] % self.config.frames_per_batch:
            raise ValueError(
                f"a collector must have whole batches, got {state['frames']} frames"
            )

    def close(self) -> None:
        """End the collector."""
        if self.actor is not None:
            ray.kill(self.actor)
            self.actor = None
