"""The settings of a run of Q-learning: :class:`DQNConfig`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from agents.q_learning.features import TARGETS
from agents.settings import (
    check_choice,
    check_device,
    check_least,
    check_type,
    choose_device,
    option,
)

__all__ = ["MEMORIES", "DQNConfig"]

#: What a replay memory can keep.
MEMORIES = ("infors", "rs", "fifo", "prioritized")
_ENGINES = ("local", "ray")


@dataclass(frozen=True)
class DQNConfig:
    """The settings of one run; every field is an option of ``info-replay dqn``."""

    env: str = option("ContinualCartPole", "which environment; any id of gymnasium")
    lengths: str | None = option(
        None, "frames of each task, such as 5000,5000,30000, of a sequence of tasks"
    )
    frames: int | None = option(
        None, "frames to collect; those of all tasks, else 30000, without it"
    )
    policy: str = option("infors", "what the memory keeps")
    recent: float = option(0.25, "share of the memory for the most recent (infors, rs)")
    target: str = option("auto", "what infors explains: 'td', 'dyn' or by observation")
    capacity: int = option(1000, "slots of the memory")
    seed: int = option(0, "seed of environment, network, memory and exploration")
    num_envs: int = option(8, "copies of the environment that share the frames")
    frames_per_batch: int = option(32, "frames collected at a time")
    updates_per_batch: int = option(8, "gradient steps after each of these")
    batch_size: int = option(64, "transitions of a gradient step")
    learning_starts: int = option(500, "frames before the first gradient step")
    width: int = option(64, "of the hidden layers")
    learning_rate: float = option(0.001, "step size of Adam")
    discount: float = option(0.97, "of later rewards")
    tau: float = option(0.1, "share by which the target network follows, a batch")
    double: bool = option(False, "double DQN")
    epsilon_start: float = option(1.0, "share of random actions at the beginning")
    epsilon_end: float = option(0.2, "share of random actions later")
    epsilon_frames: int = option(2000, "frames from the one to the other")
    eta: float = option(1.0, "weight of the learnability in the criterion MIC")
    gamma: float = option(0.0, "deviations above the mean to be informative (gamma_i)")
    noise: float = option(0.3, "sigma of the Bayesian model")
    jitter: float = option(0.1, "c of the Bayesian model")
    decay: float | None = option(
        None, "forgetting factor of the running moments; all history without it"
    )
    evaluations: int = option(20, "evaluations along the run")
    episodes: int = option(5, "episodes of each task in an evaluation")
    engine: str = option("local", "'local', or 'ray' for collectors on Ray")
    collectors: int = option(2, "collectors of engine 'ray'")
    checkpoint_every: float = option(
        60.0, "seconds between checkpoints of engine 'ray'"
    )
    compiled: bool = option(False, "compile the loss: slow start, fast steps")
    device: str = option("auto", "'cpu', 'cuda', ... or the best there is")
    threads: int | None = option(None, "CPU threads; as many as there are without")
    tensorboard: bool = option(False, "write TensorBoard files, too")

    def __post_init__(self) -> None:
        """Refuse settings that make no run."""
        for each in dataclasses.fields(self):
            check_type(each.name, getattr(self, each.name), str(each.type))
        check_choice("policy", self.policy, list(MEMORIES))
        check_choice("target", self.target, ["auto", *TARGETS])
        check_choice("engine", self.engine, list(_ENGINES))
        for name in (
            "capacity",
            "num_envs",
            "frames_per_batch",
            "batch_size",
            "width",
            "episodes",
            "collectors",
            "updates_per_batch",
        ):
            check_least(name, getattr(self, name), 1)
        for name in (
            "seed",
            "learning_starts",
            "learning_rate",
            "epsilon_frames",
            "eta",
            "evaluations",
        ):
            check_least(name, getattr(self, name), 0)
        for name in ("frames", "threads"):
            if getattr(self, name) is not None:
                check_least(name, getattr(self, name), 1)
        for name in ("discount", "tau", "epsilon_start", "epsilon_end"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"{name} must be from 0 to 1, got {getattr(self, name)!r}"
                )
        for name in ("noise", "jitter", "checkpoint_every"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")
        if self.epsilon_end > self.epsilon_start:
            raise ValueError(
                f"epsilon_end must be at most epsilon_start={self.epsilon_start!r}, "
                f"got {self.epsilon_end!r}"
            )
        if self.seed >= 2**63:
            raise ValueError(f"seed must be at most {2**63 - 1}, got {self.seed}")
        if not 0 <= self.recent < 1:
            raise ValueError(f"recent must be from 0 to below 1, got {self.recent!r}")
        if self.decay is not None and not 0 < self.decay < 1:
            raise ValueError(f"decay must be between 0 and 1, got {self.decay!r}")
        if self.frames_per_batch % self.num_envs:
            raise ValueError(
                f"frames_per_batch must be a multiple of num_envs={self.num_envs}, got "
                f"{self.frames_per_batch}"
            )
        self.task_lengths  # noqa: B018  refuses what is no list of numbers
        check_device(self.device)

    @property
    def task_lengths(self) -> tuple[int, ...] | None:
        """Frames of each task, ``None`` where the environment's own are to be used."""
        if self.lengths is None:
            return None
        try:
            lengths = tuple(int(part) for part in self.lengths.split(","))
        except ValueError:
            lengths = (0,)
        copies = self.num_envs * (self.collectors if self.engine == "ray" else 1)
        if min(lengths) < copies:
            raise ValueError(
                "lengths must be whole numbers with commas in between, each at least "
                f"{copies}, the copies of the environment that share them, got "
                f"{self.lengths!r}"
            )
        return lengths

    @property
    def torch_device(self) -> torch.device:
        """The device to compute on."""
        return choose_device(self.device)

    def epsilon_after(self, frames: int) -> float:
        """The share of random actions after some frames."""
        done = min(1.0, frames / max(1, self.epsilon_frames))
        return self.epsilon_start + done * (self.epsilon_end - self.epsilon_start)

    def as_dict(self) -> dict[str, Any]:
        """The settings by name."""
        return dataclasses.asdict(self)
