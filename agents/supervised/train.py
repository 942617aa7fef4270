"""A run in one call, on anything: :func:`train`."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agents.objects import object_name
from agents.runs.folder import RunFolder
from agents.supervised.assembly import NetworkSource, absolute_data, make_env
from agents.supervised.callbacks import Callback
from agents.supervised.config import ExperimentConfig
from agents.supervised.evaluation import Metric
from agents.supervised.experiment import Experiment
from agents.supervised.learner import Learner
from continual_envs import BENCHMARKS, DataOptions

__all__ = ["train"]

# Settings that have no argument of their own.
_FIELDS = {field.name for field in dataclasses.fields(ExperimentConfig)} - {
    "data",
    "env",
    "learner",
    "metrics",
    "network",
    "test",
}


def train(
    data: Any,
    *,
    test: Any = None,
    network: str | NetworkSource | None = None,
    learner: str | Callable[..., Learner] | None = None,
    metrics: Mapping[str, Metric] | Iterable[str | Metric] | None = None,
    callbacks: Iterable[Callback] = (),
    folder: str | Path | None = None,
    resume: bool = False,
    preset: str | None = None,
    **options: Any,
) -> Experiment:
    """Learn from a stream with a memory, to the end.

    Args:
        data: arrays ``(X, y)``, a data set of PyTorch or Hugging Face, a file, a
            folder, an iterator, a benchmark or a data set by its name; see
            :func:`continual_envs.make_stream`.
        test: what to evaluate on; by default a part of the data that is held out.
        network: a name, a module, or what makes one from the shape of an input and the
            number of outputs.
        learner: a name, or a class.
        metrics: functions of targets and predictions, or by name.
        callbacks: told of each step and each evaluation.
        folder: of the run's files; by default nothing is kept.
        resume: whether to continue the run in the folder.
        preset: settings to begin with, by default those of the data set.
        **options: settings (:class:`~agents.supervised.config.ExperimentConfig`), and
            options of :func:`continual_envs.make_stream`.

    Returns:
        The finished run: :meth:`Experiment.result`, ``run.agent``, ``run.env``.

    Raises:
        ValueError: if an option or the data is not what it should be.
        TypeError: if there is no such option.
        DatasetError, RunError, CheckpointError: if a file is missing or damaged.
        DivergenceError: if training diverges.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(600) % 6
        >>> X = rng.normal(size=(600, 8)) + 3 * np.eye(6, 8)[y]
        >>> run = train((X, y), tasks=3, policy="infors", capacity=30)
        >>> run.result()["stream"], run.result()["average"] > 0.5
        ('arrays', True)
    """
    if data is None:
        raise ValueError("data must be given, got None")
    settings = {name: options[name] for name in options.keys() & _FIELDS}
    others = {name: options[name] for name in options.keys() - _FIELDS}
    known = _FIELDS | {*DataOptions.names()} | {"expose_task_id"}
    for name in others.keys() - known:
        close = difflib.get_close_matches(name, sorted(known), 1)
        raise TypeError(
            f"train got an unexpected keyword argument {name!r}"
            + (f"; did you mean {close[0]!r}?" if close else "")
        )
    own = {"network": network, "learner": learner}
    settings |= {name: value for name, value in own.items() if isinstance(value, str)}
    # Lists belong to the stream; settings have them as text.
    if isinstance(settings.get("input_key"), list | tuple):
        others["input_key"] = settings["input_key"]
    for name in ("class_order", "class_sizes", "image_size", "input_key"):
        if settings.get(name) is not None and not isinstance(settings[name], str):
            settings[name] = ",".join(map(str, np.atleast_1d(settings[name])))
    if test is not None:
        settings["test"] = _name_of(test)
        if not isinstance(test, str):
            others["test"] = test
    if isinstance(data, str) and data in BENCHMARKS and test is None:
        config = ExperimentConfig.preset(data, preset, **settings)
    else:
        config = ExperimentConfig.preset(None, preset, data=_name_of(data), **settings)
    experiment = Experiment(
        config,
        None if folder is None else RunFolder(folder),
        resume=resume,
        env=make_env(config, None if isinstance(data, str) else data, **others),
        network=None if isinstance(network, str) else network,
        learner=None if isinstance(learner, str) else learner,
        metrics=metrics,
        callbacks=callbacks,
    )
    experiment.run()
    return experiment


def _name_of(data: Any) -> str:
    """What settings say of data; a path holds from any folder."""
    if isinstance(data, Path):
        return os.path.abspath(data)
    return absolute_data(data) if isinstance(data, str) else object_name(data)
