"""Everything that defines a run: :class:`ExperimentConfig`, and the paper's presets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from agents.networks import NETWORKS
from agents.settings import (
    check_choice,
    check_device,
    check_least,
    check_type,
    choose_device,
    option,
)
from continual_envs import BENCHMARKS
from info_replay.registry import POLICIES

__all__ = ["PRESETS", "ExperimentConfig"]


@dataclass(frozen=True)
class ExperimentConfig:
    """The settings of one run; every field is an option of ``info-replay train``."""

    env: str = option("SplitMNIST", "which stream to learn from")
    policy: str = option("infors", "what the memory keeps; 'none' for no replay")
    seed: int = option(0, "seed of stream, network, memory and augmentation")
    imbalance: int = option(1, "how many times as often one task comes (r)")
    epochs: int = option(1, "how often each task's samples come (n_e)")
    batch_size: int = option(128, "samples a step (bs)")
    replay_batch_size: int = option(128, "samples of each draw from memory (mbs)")
    capacity: int = option(100, "slots of the memory (M)")
    network: str = option("fc", "'fc' with two hidden layers of 100, or 'resnet18'")
    learning_rate: float = option(0.1, "step size of gradient descent (lr)")
    alpha: float = option(0.3, "weight of stored outputs; 0 for plain replay")
    beta: float = option(1.0, "weight of stored targets")
    augmented: bool = option(False, "pad, crop and flip images at random")
    eta: float = option(1.0, "weight of the learnability in the criterion MIC")
    gamma: float = option(0.0, "deviations above the mean to be informative (gamma_i)")
    gamma_learnability: float = option(0.0, "the same for InfoGS's learnability")
    noise: float = option(0.3, "sigma of the Bayesian model")
    jitter: float = option(0.1, "c of the Bayesian model")
    decay: float | None = option(
        None, "forgetting factor of the running moments; all history without it"
    )
    gss_group_size: int = option(10, "items of a group of memory gradients (gss)")
    gss_groups: int = option(10, "groups of memory gradients for each batch (gss)")
    coreset_parts: int = option(10, "coresets in the memory (nr_slots of coreset)")
    validation: bool = option(False, "hold a tenth of the data out, to tune on it")
    steps: int | None = option(None, "stop after so many steps of the stream")
    evaluations: int = option(20, "evaluations along the run, beside task ends")
    checkpoint_every: float = option(60.0, "seconds between checkpoints")
    device: str = option("auto", "'cpu', 'cuda', ... or the best there is")
    threads: int | None = option(None, "CPU threads; as many as there are without")
    data_dir: str | None = option(
        None, "folder of the data sets; CONTINUAL_ENVS_DATA or a cache without it"
    )
    tensorboard: bool = option(False, "write TensorBoard files, too")

    def __post_init__(self) -> None:
        """Refuse settings that make no run."""
        for each in dataclasses.fields(self):
            check_type(each.name, getattr(self, each.name), str(each.type))
        check_choice("env", self.env, list(BENCHMARKS))
        check_choice("policy", self.policy, [*POLICIES, "none"])
        check_choice("network", self.network, list(NETWORKS))
        for name in (
            "imbalance",
            "epochs",
            "batch_size",
            "replay_batch_size",
            "capacity",
            "gss_group_size",
            "gss_groups",
            "coreset_parts",
        ):
            check_least(name, getattr(self, name), 1)
        for name in ("seed", "evaluations", "learning_rate", "alpha", "beta", "eta"):
            check_least(name, getattr(self, name), 0)
        for name in ("noise", "jitter", "checkpoint_every"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")
        for name in ("steps", "threads"):
            if getattr(self, name) is not None:
                check_least(name, getattr(self, name), 1)
        # What is larger is a slip, and would end in the middle of a run.
        for name in ("noise", "jitter"):
            check_least(name, getattr(self, name), 1e-6)
        for names, most in (
            (("threads",), 1024),
            (("seed",), 2**63 - 1),
            (("imbalance", "epochs", "noise", "jitter", "eta"), 10**6),
            (("capacity", "batch_size", "replay_batch_size"), 10**8),
        ):
            for name in names:
                if (getattr(self, name) or 0) > most:
                    raise ValueError(
                        f"{name} must be at most {most}, got {getattr(self, name)!r}"
                    )
        if self.network == "resnet18":
            for name in ("batch_size", "replay_batch_size", "capacity"):
                if getattr(self, name) < 2:
                    raise ValueError(
                        f"{name} must be at least 2 with network 'resnet18', whose "
                        f"batch normalisation needs company, got {getattr(self, name)}"
                    )
        if self.policy == "coreset" and self.capacity < self.coreset_parts:
            raise ValueError(
                f"capacity must be at least coreset_parts={self.coreset_parts}, got "
                f"{self.capacity}"
            )
        if self.decay is not None and not 0 < self.decay < 1:
            raise ValueError(f"decay must be between 0 and 1, got {self.decay!r}")
        if BENCHMARKS[self.env].dataset == "Diabetes":
            if self.policy in ("cbrs", "coreset", "wrs"):
                raise ValueError(
                    f"policy {self.policy!r} needs classes: {self.env} has none"
                )
            if self.network == "resnet18" or self.augmented:
                raise ValueError(
                    "network 'resnet18' and augmented are for images: "
                    f"{self.env} has none"
                )
        check_device(self.device)

    @classmethod
    def preset(cls, env: str, name: str | None = None, **chosen: Any) -> Any:
        """The paper's settings for a stream, some of them changed.

        Args:
            env: the stream.
            name: of the preset, by default that of the stream's data set.
            **chosen: settings to change.

        Returns:
            The settings.

        Example:
            >>> config = ExperimentConfig.preset("SplitCIFAR10", policy="rs")
            >>> config.network, config.capacity, config.epochs
            ('resnet18', 200, 50)
        """
        check_choice("env", env, list(BENCHMARKS))
        if name is None:
            name = _PRESET_OF_DATASET[BENCHMARKS[env].dataset]
        check_choice("preset", name, list(PRESETS))
        return cls(**{**PRESETS[name], "env": env, **chosen})

    @property
    def torch_device(self) -> torch.device:
        """The device to compute on."""
        return choose_device(self.device)

    def as_dict(self) -> dict[str, Any]:
        """The settings by name."""
        return dataclasses.asdict(self)


#: Settings of the paper's Table "Hyperparameters and Configurations"; where the table
#: gives a grid, one choice of it. "digits" is ours.
PRESETS: dict[str, dict[str, Any]] = {
    "mnist": {},
    "cifar10": {
        "network": "resnet18",
        "epochs": 50,
        "batch_size": 32,
        "replay_batch_size": 32,
        "capacity": 200,
        "learning_rate": 0.03,
        "augmented": True,
    },
    "mini-imagenet": {
        "network": "resnet18",
        "epochs": 100,
        "batch_size": 32,
        "replay_batch_size": 32,
        "capacity": 1000,
        "learning_rate": 0.03,
        "augmented": True,
    },
    "digits": {
        "epochs": 5,
        "batch_size": 32,
        "replay_batch_size": 32,
        "capacity": 50,
    },
    "diabetes": {
        "epochs": 20,
        "batch_size": 16,
        "replay_batch_size": 32,
        "capacity": 50,
        "learning_rate": 0.03,
    },
}

_PRESET_OF_DATASET = {
    "MNIST": "mnist",
    "CIFAR10": "cifar10",
    "MiniImageNet": "mini-imagenet",
    "Digits": "digits",
    "Diabetes": "diabetes",
}
