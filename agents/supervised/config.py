"""The settings of a supervised run: :class:`ExperimentConfig`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch

from agents.runs.machine import check_device, choose_device
from agents.settings import Settings, check_choice, option
from agents.supervised.networks import NETWORKS
from agents.supervised.presets import PRESET_OF_DATASET, PRESETS
from continual_envs import BENCHMARKS
from continual_envs.datasets import Dataset
from info_replay.registry import CRITERIA, POLICIES

__all__ = ["NO_REPLAY", "PRESETS", "ExperimentConfig"]

#: Instead of a policy: no memory at all.
NO_REPLAY = "none"
# What is larger is a slip of the keyboard, and would fail in the middle of a run.
_MANY, _VERY_MANY = 10**6, 10**8


def _check_policy(name: str) -> None:
    """Refuse what is neither a policy nor :data:`NO_REPLAY`."""
    if name == NO_REPLAY:
        return
    try:
        POLICIES.get(name)
    except ValueError as error:
        if ":" in name:
            raise
        raise ValueError(f"{error} ({NO_REPLAY!r} for no replay)") from None


@dataclass(frozen=True)
class ExperimentConfig(Settings):
    """The settings of one run; every field is an option of ``info-replay train``."""

    env: str = option("SplitMNIST", "which stream to learn from", choices=BENCHMARKS)
    policy: str = option(
        "infors",
        "what the memory keeps: a name below, module:Name, or 'none' for no replay",
        check=_check_policy,
    )
    seed: int = option(
        0, "seed of stream, network, memory and augmentation", min=0, max=2**63 - 1
    )
    imbalance: int = option(
        1, "how many times as often one task comes (r)", min=1, max=_MANY
    )
    epochs: int = option(
        1, "how often each task's samples come (n_e)", min=1, max=_MANY
    )
    batch_size: int = option(128, "samples per step (bs)", min=1, max=_VERY_MANY)
    replay_batch_size: int = option(
        128, "samples of each draw from memory (mbs)", min=1, max=_VERY_MANY
    )
    capacity: int = option(100, "slots of the memory (M)", min=1, max=_VERY_MANY)
    network: str = option(
        "fc",
        "'fc' with two hidden layers of 100, 'resnet18', or module:Name",
        choices=NETWORKS,
    )
    learning_rate: float = option(0.1, "step size of gradient descent (lr)", min=0)
    alpha: float = option(0.3, "weight of stored outputs; 0 for plain replay", min=0)
    beta: float = option(1.0, "weight of stored targets", min=0)
    augmented: bool = option(False, "pad, crop and flip images at random")
    criterion: str = option(
        "mic",
        "how informative an item is (infors, infogs): a name below, or module:Name",
        choices=CRITERIA,
    )
    eta: float = option(
        1.0, "weight of the learnability in the criterion", min=0, max=_MANY
    )
    gamma: float = option(0.0, "deviations above the mean to be informative (gamma_i)")
    gamma_learnability: float = option(0.0, "the same for InfoGS's learnability")
    noise: float = option(0.3, "sigma of the Bayesian model", min=1e-6, max=_MANY)
    jitter: float = option(0.1, "c of the Bayesian model", min=1e-6, max=_MANY)
    decay: float | None = option(
        None,
        "forgetting factor of the running moments; all history without it",
        above=0,
        below=1,
    )
    gss_group_size: int = option(
        10, "items of a group of memory gradients (gss)", min=1
    )
    gss_groups: int = option(
        10, "groups of memory gradients for each batch (gss)", min=1
    )
    coreset_parts: int = option(
        10, "coresets in the memory (nr_slots of coreset)", min=1
    )
    validation: bool = option(False, "hold a tenth of the data out, to tune on it")
    steps: int | None = option(None, "stop after so many steps of the stream", min=1)
    evaluations: int = option(20, "evaluations along the run, beside task ends", min=0)
    checkpoint_every: float = option(60.0, "seconds between checkpoints", above=0)
    device: str = option(
        "auto", "'cpu', 'cuda', ... or the best there is", check=check_device
    )
    threads: int | None = option(
        None, "CPU threads; as many as there are without", min=1, max=1024
    )
    data_dir: str | None = option(
        None, "folder of the data sets; CONTINUAL_ENVS_DATA or a cache without it"
    )
    tensorboard: bool = option(False, "write TensorBoard files, too")

    def __post_init__(self) -> None:
        """Refuse settings that cannot be run."""
        super().__post_init__()
        if getattr(NETWORKS.get(self.network), "depends_on_batch", False):
            for name in ("batch_size", "replay_batch_size", "capacity"):
                if getattr(self, name) < 2:
                    raise ValueError(
                        f"{name} must be at least 2 with network {self.network!r}, "
                        f"which normalizes over a batch, got {getattr(self, name)}"
                    )

    def check_dataset(self, dataset: Dataset) -> None:
        """Refuse settings that do not fit the data of the stream.

        Args:
            dataset: of the stream.

        Raises:
            ValueError: naming the setting.
        """
        if dataset.num_classes is None and _needs_classes(self.policy):
            raise ValueError(
                f"policy {self.policy!r} needs classes: {self.env} has none"
            )
        if len(dataset.input_shape) != 3:
            network = NETWORKS.get(self.network)
            for name, value, needs_images in (
                ("network", self.network, getattr(network, "needs_images", False)),
                ("augmented", self.augmented, self.augmented),
            ):
                if needs_images:
                    raise ValueError(
                        f"{name}={value!r} needs images: {self.env} has none"
                    )

    @classmethod
    def preset(
        cls, env: str, name: str | None = None, **chosen: Any
    ) -> ExperimentConfig:
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
        check_choice("env", env, BENCHMARKS)
        if name is None:
            name = PRESET_OF_DATASET[BENCHMARKS[env].dataset]
        check_choice("preset", name, PRESETS)
        return cls(**{**PRESETS[name], "env": env, **chosen})

    @property
    def torch_device(self) -> torch.device:
        """The device to compute on."""
        return choose_device(self.device)


def _needs_classes(policy: str) -> bool:
    """Whether a policy cannot be used where targets are numbers."""
    if policy == NO_REPLAY:
        return False
    parameters = inspect.signature(POLICIES.get(policy)).parameters
    classes = parameters.get("num_classes")
    required = classes is not None and classes.default is classes.empty
    # "wrs" weighs items by how sure a classifier is; its signature does not tell.
    return required or policy == "wrs"
