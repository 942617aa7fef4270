"""The settings of a supervised run: :class:`ExperimentConfig`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.objects import is_object
from agents.runs.machine import check_device, choose_device
from agents.settings import Settings, check_choice, option
from agents.supervised.checks import (
    NO_REPLAY,
    check_learner,
    check_network,
    check_policy,
    needs_classes,
    numbers_of,
)
from agents.supervised.presets import PRESET_OF_DATASET, PRESETS, preset_settings

if TYPE_CHECKING:
    import torch

    from agents.supervised.networks import FeatureNetwork
    from continual_envs import Dataset

__all__ = ["NO_REPLAY", "PRESETS", "ExperimentConfig"]

# What is larger is a slip of the keyboard, and would fail in the middle of a run.
_MANY, _VERY_MANY = 10**6, 10**8

# What the options are about, as the help lists them.
_STREAM = "stream"
_CUT = "own data: how it is read and cut into tasks"
_SHAPE = "shape of the stream"
_LEARNER = "learner and network"
_MEMORY = "memory"
_INFORMATION = "memory: infors, infogs, infogs-rs"
_GSS, _CORESET = "memory: gss", "memory: coreset"


@dataclass(frozen=True)
class ExperimentConfig(Settings):
    """The settings of one run; every field is an option of ``info-replay train``."""

    env: str | None = option(
        "SplitMNIST",
        "benchmark to learn from",
        group=_STREAM,
        choices="continual_envs:BENCHMARKS",
    )
    data: str | None = option(
        None,
        "own data instead: an .npz file, a folder of images, the name of a data set, "
        "or module:function",
        group=_STREAM,
    )
    test: str | None = option(
        None,
        "data to evaluate on, of the same kinds; else a share is held out",
        group=_STREAM,
    )
    data_dir: str | None = option(
        None,
        "folder of the data sets; CONTINUAL_ENVS_DATA or a cache without it",
        group=_STREAM,
        matters=False,
    )
    batch_size: int = option(
        128, "samples per step (bs)", group=_STREAM, min=1, max=_VERY_MANY
    )
    epochs: int = option(
        1, "how often each task's samples come (n_e)", group=_STREAM, min=1, max=_MANY
    )
    validation: bool = option(
        False, "hold a tenth of the data out, to tune on it", group=_STREAM
    )
    imbalance: int = option(
        1, "how many times as often one task comes (r)", group=_SHAPE, min=1, max=_MANY
    )
    imbalanced_task: int | None = option(
        None, "which task that is; by the seed without it", group=_SHAPE, min=0
    )
    samples_per_class: int | None = option(
        None, "training samples of each class, at most", group=_SHAPE, min=1
    )
    longtail: float | None = option(
        None,
        "how many times as many samples the largest class has as the smallest",
        group=_SHAPE,
        min=1,
    )
    blur: float | None = option(
        None, "share of each task's samples that come in others", group=_SHAPE, min=0
    )
    label_noise: float | None = option(
        None, "share of wrong labels in training", group=_SHAPE, min=0
    )
    width: float | None = option(
        None, "how long a class is around, of a drifting stream", group=_SHAPE, above=0
    )
    cut: str | None = option(
        None,
        "into tasks: label, column, given, permuted, drift or none",
        group=_CUT,
    )
    tasks: int | None = option(None, "number of tasks", group=_CUT, min=1)
    class_order: str | None = option(
        None,
        "classes in the order of tasks, such as 3,1,2",
        group=_CUT,
        check=numbers_of,
    )
    class_sizes: str | None = option(
        None, "classes of each task, such as 2,1", group=_CUT, check=numbers_of
    )
    column: int | None = option(
        None, "number of the input whose ranges are the tasks", group=_CUT, min=0
    )
    test_share: float | None = option(
        None,
        "held out for testing where no test data is given (0.2)",
        group=_CUT,
        above=0,
        below=1,
    )
    test_seed: int | None = option(
        None, "of what is held out for testing (0)", group=_CUT, min=0
    )
    targets: str | None = option(
        None,
        "labels or numbers; found out without it",
        group=_CUT,
        choices=("auto", "labels", "numbers"),
    )
    num_classes: int | None = option(
        None, "of a live stream without test data", group=_CUT, min=1
    )
    batched: bool | None = option(
        None, "whether a live stream yields batches instead of samples", group=_CUT
    )
    standardize: bool | None = option(
        None, "own vectors and numbers to mean 0 and deviation 1 (on)", group=_CUT
    )
    image_size: str | None = option(
        None,
        "height,width to which images of a folder are resized",
        group=_CUT,
        check=numbers_of,
    )
    input_key: str | None = option(
        None,
        "column, or columns a,b,c, of the inputs of a Hugging Face data set",
        group=_CUT,
    )
    target_key: str | None = option(
        None, "column of a Hugging Face data set to predict", group=_CUT
    )
    learner: str = option(
        "der++",
        "der++, er, er-ace, finetune (no memory) or module:Class",
        group=_LEARNER,
        check=check_learner,
    )
    network: str = option(
        "fc",
        "fc (two hidden layers of 100), linear, mlp, resnet18 or module:function",
        group=_LEARNER,
        check=check_network,
    )
    feature: str | None = option(
        None, "layer of an own network that gives the feature", group=_LEARNER
    )
    learning_rate: float = option(
        0.1, "step size of gradient descent (lr)", group=_LEARNER, min=0
    )
    replay_batch_size: int = option(
        128, "samples of each draw (mbs)", group=_LEARNER, min=1, max=_VERY_MANY
    )
    alpha: float = option(
        0.3,
        "weight of stored outputs (der++); 0 for plain replay",
        group=_LEARNER,
        min=0,
    )
    beta: float = option(
        1.0, "weight of stored targets (der++, er with join=sum)", group=_LEARNER, min=0
    )
    join: str = option(
        "mean",
        "losses of batch and memory (er): mean of the joined batch, or sum of two "
        "means",
        group=_LEARNER,
        choices=("mean", "sum"),
    )
    augmented: bool = option(
        False, "pad, crop and flip images at random", group=_LEARNER
    )
    policy: str = option(
        "infors",
        "what it keeps: auto, rs, wrs, cbrs, gss, fss-clust, coreset, infogs, "
        "infogs-rs, infors, module:Name, or none for no replay",
        group=_MEMORY,
        check=check_policy,
    )
    capacity: int = option(
        100, "slots of the memory (M)", group=_MEMORY, min=1, max=_VERY_MANY
    )
    criterion: str = option(
        "mic",
        "how informative an item is: mic, ig, er or module:Name",
        group=_INFORMATION,
        choices="info_replay.registry:CRITERIA",
    )
    eta: float = option(
        1.0,
        "weight of the learnability in the criterion",
        group=_INFORMATION,
        min=0,
        max=_MANY,
    )
    gamma: float = option(
        0.0,
        "deviations above the mean to be informative (gamma_i)",
        group=_INFORMATION,
    )
    gamma_learnability: float = option(
        0.0, "the same for InfoGS's learnability", group=_INFORMATION
    )
    noise: float = option(
        0.3, "sigma of the Bayesian model", group=_INFORMATION, min=1e-6, max=_MANY
    )
    jitter: float = option(
        0.1, "c of the Bayesian model", group=_INFORMATION, min=1e-6, max=_MANY
    )
    decay: float | None = option(
        None,
        "forgetting factor of the running moments; all history without it",
        group=_INFORMATION,
        above=0,
        below=1,
    )
    gss_group_size: int = option(
        10, "items of a group of memory gradients", group=_GSS, min=1
    )
    gss_groups: int = option(
        10, "groups of memory gradients for each batch", group=_GSS, min=1
    )
    coreset_parts: int = option(
        10, "coresets in the memory (nr_slots)", group=_CORESET, min=1
    )
    update_delay: int | None = option(
        None, "delay of TaskTimingWriter, told where tasks begin", group=_MEMORY, min=0
    )
    seed: int = option(
        0, "seed of stream, network, memory and augmentation", min=0, max=2**63 - 1
    )
    steps: int | None = option(None, "stop after so many steps of the stream", min=1)
    evaluations: int = option(20, "evaluations along the run, beside task ends", min=0)
    snapshots: bool = option(
        False, "keep the items in memory at each evaluation", matters=False
    )
    metrics: str | None = option(None, "own metrics: module:function,...")
    callback: str | None = option(None, "own callback, module:Class", matters=False)
    logger: str | None = option(
        None,
        "also log to csv, tensorboard, wandb or mlflow",
        matters=False,
        choices=("csv", "tensorboard", "wandb", "mlflow"),
    )
    checkpoint_every: float = option(
        60.0, "seconds between checkpoints", above=0, matters=False
    )
    device: str = option(
        "auto", "cpu, cuda, ... or the best there is", check=check_device
    )
    threads: int | None = option(
        None, "CPU threads; as many as there are without", min=1, max=1024
    )
    tensorboard: bool = option(False, "the same as --logger tensorboard", matters=False)

    def __post_init__(self) -> None:
        """Refuse settings that cannot be run."""
        if self.data is not None:
            object.__setattr__(self, "env", None)  # its default does not count then
        elif self.env is None:
            raise ValueError("env must be a benchmark where data is None, got None")
        if self.learner == "finetune":
            object.__setattr__(self, "policy", NO_REPLAY)  # it has no memory
        super().__post_init__()
        if self.tensorboard and self.logger not in (None, "tensorboard"):
            raise ValueError(
                f"logger must be None or 'tensorboard' with tensorboard=True, got "
                f"{self.logger!r}"
            )

    def check_dataset(self, dataset: Dataset) -> None:
        """Refuse settings that do not fit the data of the stream.

        Args:
            dataset: of the stream.

        Raises:
            ValueError: naming the setting.
        """
        if dataset.num_classes is None and needs_classes(self.policy):
            raise ValueError(
                f"policy {self.policy!r} needs classes: {self.stream} has none"
            )
        if len(dataset.input_shape) != 3:
            from agents.supervised.networks import NETWORKS

            network = None if is_object(self.network) else NETWORKS.get(self.network)
            for name, value, needs_images in (
                ("network", self.network, getattr(network, "needs_images", False)),
                ("augmented", self.augmented, self.augmented),
            ):
                if needs_images:
                    raise ValueError(
                        f"{name}={value!r} needs images: {self.stream} has none"
                    )

    def check_network(self, network: FeatureNetwork) -> None:
        """Refuse sizes that do not fit the network.

        Args:
            network: that will learn.

        Raises:
            ValueError: naming the setting.
        """
        for name in ("batch_size", "replay_batch_size", "capacity"):
            if network.depends_on_batch and getattr(self, name) < 2:
                raise ValueError(
                    f"{name} must be at least 2 with network {self.network!r}, which "
                    f"normalizes over a batch, got {getattr(self, name)}"
                )

    @classmethod
    def preset(
        cls, env: str | None = None, name: str | None = None, **chosen: Any
    ) -> ExperimentConfig:
        """The paper's settings for a stream and a policy, some of them changed.

        Args:
            env: the benchmark; ``None`` with ``data``.
            name: of the preset, by default that of the stream's data set.
            **chosen: settings to change.

        Returns:
            The settings.

        Example:
            >>> config = ExperimentConfig.preset("SplitCIFAR10", policy="rs")
            >>> config.network, config.capacity, config.epochs
            ('resnet18', 200, 50)
            >>> ExperimentConfig.preset(data="mine.npz").stream
            'mine'
        """
        data = chosen.get("data")
        if env is not None and data is not None:
            raise ValueError(
                f"give either a benchmark or data, got env={env!r} and data={data!r}"
            )
        if chosen.get("learner") == "finetune" and chosen.get("policy", NO_REPLAY) != (
            NO_REPLAY
        ):
            raise ValueError(
                f"learner 'finetune' has no memory, got policy={chosen['policy']!r}"
            )
        if data is None:
            env = env or "SplitMNIST"
            check_choice("env", env, "continual_envs:BENCHMARKS")
        if name is None:
            name = PRESET_OF_DATASET.get(data or _dataset_of(env), "own")
        check_choice("preset", name, PRESETS)
        policy = chosen.get("policy", cls.policy)
        return cls(**{**preset_settings(name, policy), "env": env, **chosen})

    @property
    def stream(self) -> str:
        """A short name of what is learned from."""
        if self.data is None:
            assert self.env is not None
            return self.env
        return Path(self.data).stem.strip("<>") or "data"

    @property
    def torch_device(self) -> torch.device:
        """The device to compute on."""
        return choose_device(self.device)


def _dataset_of(env: str | None) -> str:
    """The data set of a benchmark."""
    from continual_envs import BENCHMARKS

    assert env is not None
    return BENCHMARKS[env].dataset
