"""The command that makes a run again: :func:`train_command`."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from agents.objects import is_object
from agents.supervised.config import ExperimentConfig
from agents.supervised.presets import PRESET_OF_DATASET, preset_settings

__all__ = ["given_settings", "train_command"]

_DEFAULTS = {
    field.name: field.default
    for field in dataclasses.fields(ExperimentConfig)
    if field.metadata["matters"]
}


def given_settings(result: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a run was given, from its result.

    A result has the task that came more often, and the values of the user's metrics,
    in the place of the settings of these names.

    Args:
        result: of a run.

    Returns:
        Settings by name; those that this version does not know are left out.

    Example:
        >>> result = {"env": "SplitDigits", "seed": 7, "imbalance": 10, "average": 0.5}
        >>> given_settings({**result, "imbalanced_task": 2, "first": [0.1] * 5})
        {'env': 'SplitDigits', 'imbalance': 10, 'imbalanced_task': None, 'seed': 7}
    """
    given = {name: result[name] for name in _DEFAULTS if name in result}
    if isinstance(given.get("metrics"), Mapping):
        del given["metrics"]  # names only: nobody knows which modules they are from
    task = given.get("imbalanced_task")
    if task is not None and (
        given.get("imbalance", 1) == 1
        or task == _usual_task(result, given.get("seed", 0))
    ):
        given["imbalanced_task"] = None
    return given


def _usual_task(result: Mapping[str, Any], seed: int) -> int | None:
    """The task that comes more often if nobody has chosen one."""
    groups = len(result.get("first") or ())
    if _cut(result) == "drift":  # one class does, not one task
        groups = len((result.get("memory") or {}).get("class_counts", ()))
    return seed % groups if groups else None


def _cut(result: Mapping[str, Any]) -> str | None:
    from continual_envs import BENCHMARKS

    if result.get("cut") is not None:
        return str(result["cut"])
    env = result.get("env")
    return BENCHMARKS[env].options.get("cut") if env in BENCHMARKS else None


def train_command(settings: Mapping[str, Any]) -> str | None:
    """The command line of a run, with the options that its preset does not give.

    Args:
        settings: of the run, by name; missing ones are those of the preset.

    Returns:
        The command; ``None`` if there is none, because an object of the user's was
        given in Python.

    Example:
        >>> train_command({"env": "SplitMNIST", "policy": "rs", "seed": 3})
        'info-replay train --env SplitMNIST --policy rs --seed 3'
    """
    if any(is_object(value) for value in settings.values() if isinstance(value, str)):
        return None
    policy = str(settings.get("policy", ExperimentConfig.policy))
    words = _options(settings, preset_settings(_usual_preset(settings), policy))
    stream = ["--env", str(settings.get("env") or ExperimentConfig.env)]
    if settings.get("data") is not None:
        stream = ["--data", str(settings["data"])]
    return shlex.join(["info-replay", "train", *stream, "--policy", policy, *words])


def _usual_preset(settings: Mapping[str, Any]) -> str:
    """The preset of a run that names none."""
    from continual_envs import BENCHMARKS

    data = settings.get("data")
    if data is None:
        env = str(settings.get("env") or ExperimentConfig.env)
        data = BENCHMARKS[env].dataset if env in BENCHMARKS else None
    return PRESET_OF_DATASET.get(str(data), "own")


def _options(settings: Mapping[str, Any], preset: Mapping[str, Any]) -> list[str]:
    """Options where settings are not the preset's."""
    words: list[str] = []
    for name, default in _DEFAULTS.items():
        if name in ("env", "data", "policy") or name not in settings:
            continue
        value, option = settings[name], name.replace("_", "-")
        if value == preset.get(name, default):
            continue
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif str(value).startswith("-"):
            words.append(f"--{option}={value}")
        else:
            words += [f"--{option}", "none" if value is None else str(value)]
    return words
