"""The settings of a run of Q-learning: :class:`DQNConfig`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.runs.machine import check_device, choose_device
from agents.settings import Settings, check_choice, option

if TYPE_CHECKING:
    import torch

__all__ = ["MEMORIES", "TARGETS", "DQNConfig"]

#: What the memory can be asked to explain.
TARGETS = ("td", "dyn")

#: What a replay memory can keep, beside policies of the user's as ``"module:Name"``.
MEMORIES = ("auto", "infors", "rs", "fifo", "prioritized")


def _check_policy(name: str) -> None:
    """Refuse what is neither one of :data:`MEMORIES` nor a policy of the user's."""
    if ":" in name:
        from info_replay.registry import POLICIES

        POLICIES.get(name)
    else:
        check_choice("policy", name, MEMORIES)


# Weights are of 32 bits, and Adam cannot compute with a step size that is not.
_LARGEST_FLOAT = 3.4e38

# What the options are about, as the help lists them.
_ENVIRONMENT = "environment"
_MEMORY = "memory"
_INFORMATION = "memory: infors"
_LEARNER = "learner"
_EXPLORATION = "exploration"


@dataclass(frozen=True)
class DQNConfig(Settings):
    """The settings of one run; every field is an option of ``info-replay dqn``."""

    env: str = option(
        "ContinualCartPole",
        "which environment; any id of gymnasium",
        group=_ENVIRONMENT,
    )
    lengths: str | None = option(
        None,
        "frames of each task, such as 5000,5000,30000, of a sequence of tasks",
        group=_ENVIRONMENT,
    )
    frames: int | None = option(
        None,
        "frames to collect; those of all tasks, else 30000, without it",
        group=_ENVIRONMENT,
        min=1,
    )
    policy: str = option(
        "infors",
        "what the memory keeps: a name below, or module:Name",
        group=_MEMORY,
        check=_check_policy,
    )
    recent: float = option(
        0.25,
        "share of the memory for the most recent (not fifo, prioritized)",
        group=_MEMORY,
        min=0,
        below=1,
    )
    target: str = option(
        "auto",
        "what infors explains: 'td', 'dyn' or by observation",
        group=_INFORMATION,
        choices=("auto", *TARGETS),
    )
    capacity: int = option(1000, "slots of the memory", group=_MEMORY, min=1)
    seed: int = option(
        0,
        "seed of environment, network, memory and exploration",
        min=0,
        max=2**63 - 1,
    )
    num_envs: int = option(
        8, "copies of the environment that share the frames", group=_ENVIRONMENT, min=1
    )
    frames_per_batch: int = option(
        32, "frames collected at a time", group=_ENVIRONMENT, min=1
    )
    updates_per_batch: int = option(
        8, "gradient steps after each of these", group=_LEARNER, min=1
    )
    batch_size: int = option(
        64, "transitions of a gradient step", group=_LEARNER, min=1
    )
    learning_starts: int = option(
        500, "frames before the first gradient step", group=_LEARNER, min=0
    )
    width: int = option(64, "of the hidden layers", group=_LEARNER, min=1)
    learning_rate: float = option(
        0.001, "step size of Adam", group=_LEARNER, min=0, max=_LARGEST_FLOAT
    )
    discount: float = option(0.97, "of later rewards", group=_LEARNER, min=0, max=1)
    tau: float = option(
        0.1,
        "share by which the target network follows, per batch",
        group=_LEARNER,
        min=0,
        max=1,
    )
    double: bool = option(False, "double DQN", group=_LEARNER)
    epsilon_start: float = option(
        1.0,
        "share of random actions at the beginning",
        group=_EXPLORATION,
        min=0,
        max=1,
    )
    epsilon_end: float = option(
        0.2, "share of random actions later", group=_EXPLORATION, min=0, max=1
    )
    epsilon_frames: int = option(
        2000, "frames from the one to the other", group=_EXPLORATION, min=0
    )
    criterion: str = option(
        "mic",
        "how informative a transition is (infors): mic, ig, er or module:Name",
        group=_INFORMATION,
        choices="info_replay.registry:CRITERIA",
    )
    eta: float = option(
        1.0, "weight of the learnability in the criterion", group=_INFORMATION, min=0
    )
    gamma: float = option(
        0.0, "deviations above the mean to be informative (gamma_i)", group=_INFORMATION
    )
    noise: float = option(
        0.3, "sigma of the Bayesian model", group=_INFORMATION, above=0
    )
    jitter: float = option(0.1, "c of the Bayesian model", group=_INFORMATION, above=0)
    decay: float | None = option(
        None,
        "forgetting factor of the running moments; all history without it",
        group=_INFORMATION,
        above=0,
        below=1,
    )
    evaluations: int = option(20, "evaluations along the run", min=0)
    episodes: int = option(5, "episodes of each task in an evaluation", min=1)
    engine: str = option(
        "local", "'local', or 'ray' for collectors on Ray", choices=("local", "ray")
    )
    collectors: int = option(2, "collectors of engine 'ray'", min=1)
    checkpoint_every: float = option(
        60.0, "seconds between checkpoints", above=0, matters=False
    )
    compiled: bool = option(False, "compile the loss: slow start, fast steps")
    device: str = option(
        "auto", "cpu, cuda, ... or the best there is", check=check_device
    )
    threads: int | None = option(
        None, "CPU threads; as many as there are without", min=1, max=1024
    )
    logger: str | None = option(
        None,
        "also log to csv, tensorboard, wandb or mlflow",
        matters=False,
        choices=("csv", "tensorboard", "wandb", "mlflow"),
    )
    tensorboard: bool = option(False, "the same as --logger tensorboard", matters=False)

    def __post_init__(self) -> None:
        """Refuse settings that cannot be run."""
        super().__post_init__()
        if self.tensorboard and self.logger not in (None, "tensorboard"):
            raise ValueError(
                f"logger must be None or 'tensorboard' with tensorboard=True, got "
                f"{self.logger!r}"
            )
        if self.epsilon_end > self.epsilon_start:
            raise ValueError(
                f"epsilon_end must be at most epsilon_start={self.epsilon_start!r}, "
                f"got {self.epsilon_end!r}"
            )
        if self.frames_per_batch % self.num_envs:
            raise ValueError(
                f"frames_per_batch must be a multiple of num_envs={self.num_envs}, got "
                f"{self.frames_per_batch}"
            )
        self.task_lengths  # noqa: B018  refuses what is not a list of numbers

    @property
    def keeps_features(self) -> bool:
        """Whether the memory looks at features of transitions."""
        if self.policy in ("fifo", "prioritized"):
            return False
        from info_replay.registry import POLICIES

        policy = POLICIES.get(self.policy)
        asks = "feature_key" in inspect.signature(policy).parameters
        return asks or getattr(policy, "feature_key", None) is not None

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
