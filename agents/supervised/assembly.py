"""From the settings of a run to its parts: :func:`make_env`, :func:`make_agent`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn
from torchrl.data import TensorDictReplayBuffer

from agents.objects import is_object, object_name
from agents.supervised.checks import numbers_of
from agents.supervised.config import ExperimentConfig
from agents.supervised.learner import Learner, make_learner
from agents.supervised.memory import make_memory
from agents.supervised.networks import FeatureNetwork, make_network
from continual_envs import BENCHMARKS, DATASETS, StreamEnv, make_stream
from info_replay.registry import Registry

__all__ = [
    "DATA",
    "MemoryMaker",
    "NetworkSource",
    "absolute_data",
    "find_data",
    "make_agent",
    "make_env",
    "prediction_range",
    "settings_of",
]

#: Makes a memory from the settings, the number of classes and the network.
MemoryMaker = Callable[
    [ExperimentConfig, int | None, FeatureNetwork], TensorDictReplayBuffer | None
]
#: A network, or what makes one from the shape of an input and the number of outputs.
NetworkSource = nn.Module | Callable[..., nn.Module]
#: Functions that give data, by name; ``"module:function"`` finds any.
DATA: Registry[Callable[..., Any]] = Registry("data", "info_replay.data")

# Settings that are options of a stream under the same names.
_OPTIONS = (
    "batch_size epochs imbalance imbalanced_task validation data_dir "
    "samples_per_class longtail blur label_noise width cut tasks column test_share "
    "test_seed targets num_classes batched standardize input_key target_key"
).split()
_USUAL = {"epochs": 1, "imbalance": 1, "validation": False}
# The same, written as numbers with commas in between.
_LISTS = ("class_order", "class_sizes", "image_size")


def settings_of(
    config: ExperimentConfig,
    env: StreamEnv | None,
    network: NetworkSource | None,
    learner: Callable[..., Learner] | None,
    metrics: list[str] | None,
) -> ExperimentConfig:
    """Settings that name the objects that are used in place of them.

    Args:
        config: the settings.
        env: a stream.
        network: a module, or what makes one.
        learner: class of a learner.
        metrics: names of metrics.

    Returns:
        The settings, changed where something is given.

    Raises:
        ValueError: if the stream shows single samples.
    """
    changed: dict[str, Any] = {}
    if env is not None:
        if env.options.batch_size is None:
            raise ValueError("env must show batches: give it a batch_size, got None")
        if is_object(config.data) or (config.data is None and config.env != env.name):
            changed["data"] = f"<{env.name}>"
        for name in ("batch_size", "epochs", "imbalance", "validation"):
            changed[name] = getattr(env.options, name)
    for name, thing in (("network", network), ("learner", learner)):
        if thing is not None:
            changed[name] = object_name(thing)
    if metrics:
        changed["metrics"] = ",".join(f"<{name}>" for name in metrics)
    return dataclasses.replace(config, **changed)


def make_env(config: ExperimentConfig, data: Any = None, **options: Any) -> StreamEnv:
    """The stream of a run.

    Args:
        config: the settings.
        data: what the stream is made of, if the settings only name it; see
            :func:`continual_envs.make_stream`.
        **options: of the stream, beside those of the settings.

    Returns:
        The environment.

    Raises:
        ValueError: if data or options are not what they should be.
        DatasetError: if data is missing or damaged.
    """
    if data is None:
        data = config.env if config.data is None else find_data(config.data)
    chosen = {name: getattr(config, name) for name in _OPTIONS}
    for name in _LISTS:
        text = getattr(config, name)
        chosen[name] = None if text is None else numbers_of(text)
    if chosen["image_size"] is not None and len(chosen["image_size"]) == 1:
        chosen["image_size"] *= 2  # height and width
    if config.input_key is not None and "," in config.input_key:
        chosen["input_key"] = config.input_key.split(",")
    if config.test is not None and "test" not in options:
        chosen["test"] = find_data(config.test)
    # A live stream has no epochs or tasks, not even one of them.
    given = {
        name: value
        for name, value in chosen.items()
        if value is not None and _USUAL.get(name) != value
    }
    return make_stream(data, **{**given, **options})


def absolute_data(data: str) -> str:
    """The name of some data, for settings: a path that holds from any folder.

    Args:
        data: a file, a folder, the name of a data set, or ``"module:function"``. What
            has a name is not a path, even if there is a file of that name.
    """
    is_name = data in DATASETS or data in BENCHMARKS or data in [*DATA]
    return os.path.abspath(data) if os.path.exists(data) and not is_name else data


def find_data(data: str) -> Any:
    """What the name of some data stands for.

    Args:
        data: a file, a folder, the name of a data set, or ``"module:function"``.

    Returns:
        Something that :func:`continual_envs.make_stream` takes.

    Raises:
        ValueError: if there is no such function.
    """
    if is_object(data):
        raise ValueError(
            f"data {data} was an object in Python: give it again there, as in "
            "train(data, folder=..., resume=True)"
        )
    if data in [*DATA] or (":" in data and not os.path.exists(data)):
        return DATA.get(data)
    return data


def prediction_range(env: StreamEnv) -> tuple[Any, Any]:
    """The lowest and the highest number that a stream lets one predict.

    Args:
        env: the stream, in batches.

    Returns:
        Two numbers, or two arrays of K of them; without a meaning for classes.
    """
    if env.dataset.num_classes is not None:
        return -1.0, 1.0
    space: Any = env.action_space
    # The same for all samples of a batch.
    return np.asarray(space.low)[0], np.asarray(space.high)[0]


def make_agent(
    config: ExperimentConfig,
    env: StreamEnv,
    make_memory: MemoryMaker = make_memory,
    *,
    network: NetworkSource | None = None,
    learner: Callable[..., Learner] | None = None,
) -> Learner:
    """The learner of a run.

    Args:
        config: the settings.
        env: the stream that it will learn from.
        make_memory: makes its memory; by default that of the settings.
        network: to learn with; by default that of the settings.
        learner: class of the learner; by default that of the settings.

    Returns:
        The agent.

    Raises:
        ValueError: if the settings do not fit the stream.
    """
    config.check_dataset(env.dataset)
    for name, value in (("network", network), ("learner", learner)):
        if value is None and is_object(getattr(config, name)):
            raise ValueError(
                f"{name} {getattr(config, name)} was an object in Python: give it "
                f"again there, as in train(..., {name}=...)"
            )
    num_classes = env.dataset.num_classes
    made = make_network(
        config.network if network is None else network,
        env.dataset.input_shape,
        env.dataset.num_outputs,
        config.seed,
        config.feature,
    )
    config.check_network(made)
    return make_learner(
        config.learner if learner is None else learner,
        made,
        make_memory(config, num_classes, made),
        num_classes=num_classes,
        prediction_range=prediction_range(env),
        device=config.torch_device,
        seed=config.seed,
        learning_rate=config.learning_rate,
        alpha=config.alpha,
        beta=config.beta,
        join=config.join,
        replay_batch_size=config.replay_batch_size,
        augmented=config.augmented,
    )
