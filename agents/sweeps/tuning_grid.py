"""Which settings a tuning tries: the paper's grids, or those of a file."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.supervised.config import ExperimentConfig
from agents.supervised.presets import PRESET_OF_DATASET
from agents.supervised.unused import DECIDING, unused_settings
from agents.sweeps.values import check_setting, parse_values

__all__ = ["PAPER_GRIDS", "Grid", "find_grid", "grid_size", "read_grids"]

#: Values to try, by setting.
Grid = Mapping[str, tuple[Any, ...]]

_MNIST = {
    "learning_rate": (0.03, 0.1, 0.3),
    "alpha": (0.3, 1.0),
    "beta": (0.3, 1.0),
}
_CIFAR = {"learning_rate": (0.01, 0.03), "alpha": (0.3, 1.0), "beta": (1.0, 3.0)}
# The paper's moments are over all history; presets may have others.
_MODEL = {"noise": (0.3,), "jitter": (0.1,), "decay": (None,)}
_MNIST_INFO = {
    **_MNIST,
    "beta": (1.0,),
    "eta": (0.0, 1.0, 3.0),
    "gamma": (-0.3, 0.0, 0.3),
    **_MODEL,
}
_MNIST_GREEDY = {**_MNIST_INFO, "gamma_learnability": (0.0, 1.0)}
_CIFAR_INFO = {
    **_CIFAR,
    "eta": (0.0, 1.0, 3.0),
    "gamma": (-0.3, 0.0, 0.3),
    **_MODEL,
}
_CIFAR_GREEDY = {
    **_CIFAR,
    "eta": (1.0,),
    "gamma": (-0.5, 0.0, 0.5),
    "gamma_learnability": (0.0,),
    **_MODEL,
}

#: The paper's Table "Hyperparameters and Configurations of the Continual Learning
#: Experiments", by part of the table and policy. It has no row for InfoGS-RS, which is
#: InfoGS with another way to replace items: it has InfoGS's row here.
PAPER_GRIDS: dict[str, dict[str, Grid]] = {
    # "Permuted MNIST and Split MNIST"
    "mnist": {
        "rs": _MNIST,
        "wrs": _MNIST,
        "cbrs": _MNIST,
        "gss": {**_MNIST, "gss_group_size": (10,)},
        "fss-clust": _MNIST,
        "coreset": {
            "learning_rate": (0.001, 0.003, 0.01, 0.03),
            "alpha": (0.1, 0.3, 1.0),
            "beta": (0.3,),
            "coreset_parts": (10,),
        },
        "infogs": _MNIST_GREEDY,
        "infogs-rs": _MNIST_GREEDY,
        "infors": _MNIST_INFO,
    },
    # "Split CIFAR10 and Split MiniImageNet"
    "cifar10": {
        "rs": _CIFAR,
        "wrs": _CIFAR,
        "cbrs": _CIFAR,
        "infogs": _CIFAR_GREEDY,
        "infogs-rs": _CIFAR_GREEDY,
        "infors": _CIFAR_INFO,
    },
}
_PART_OF_PRESET = {"mnist": "mnist", "cifar10": "cifar10", "mini-imagenet": "cifar10"}
# What a tuning chooses the runs by; a grid cannot.
_NOT_TUNED = ("env", "data", "test", "data_dir", "policy", "imbalance", "seed")
_KINDS = {field.name: str(field.type) for field in dataclasses.fields(ExperimentConfig)}


def find_grid(
    config: ExperimentConfig,
    grids: str | Mapping[str, Grid] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> dict[str, tuple[Any, ...]]:
    """The values to try for the stream and the policy of some settings.

    Args:
        config: the settings.
        grids: of a file, by policy; or a part of the paper's table, ``"mnist"`` or
            ``"cifar10"``; by default the part that the stream is in.
        fixed: settings that are not tuned, whatever the grid says.

    Returns:
        Values by setting, of those that the policy and the learner use.

    Raises:
        ValueError: if there is no grid, or nothing is left of it.

    Example:
        >>> config = ExperimentConfig.preset("SplitMNIST", policy="infors")
        >>> grid = find_grid(config, fixed={"learning_rate": 0.1})
        >>> grid["eta"], grid_size(grid)
        ((0.0, 1.0, 3.0), 18)
    """
    if grids is None or isinstance(grids, str):
        found = _of_paper(config, grids)
    else:
        found = {**grids.get("", {}), **grids.get(config.policy, {})}
        if not found:
            raise ValueError(f"the grid has no settings for policy {config.policy!r}")
    left = {each: value for each, value in found.items() if each not in (fixed or {})}
    unused = _unused_by_all(config, left)
    used = {name: values for name, values in left.items() if name not in unused}
    if not used:
        told = f" ({', '.join(left)})" if left else ""
        raise ValueError(
            f"the grid of policy {config.policy!r} is empty: every setting of it has a "
            f"fixed value or is not used{told}"
        )
    return used


def _unused_by_all(config: ExperimentConfig, grid: Grid) -> set[str]:
    """Settings of a grid that none of the runs uses; raises if a value is wrong."""
    for name, values in grid.items():
        for value in values:
            dataclasses.replace(config, **{name: value})
    deciding = [name for name in DECIDING if name in grid]
    configs = (
        dataclasses.replace(config, **dict(zip(deciding, each, strict=True)))
        for each in itertools.product(*(grid[name] for name in deciding))
    )
    return set.intersection(*map(unused_settings, configs))


def _of_paper(config: ExperimentConfig, part: str | None) -> dict[str, Any]:
    """The paper's grid."""
    if part is None:
        preset = PRESET_OF_DATASET.get(_dataset_of(config), "")
        if preset not in _PART_OF_PRESET:
            raise ValueError(
                f"the paper has no grid for {config.stream}: give a file, or a part of "
                f"its table (--grid {' or --grid '.join(PAPER_GRIDS)})"
            )
        part = _PART_OF_PRESET[preset]
    table = PAPER_GRIDS[part]
    if config.policy not in table:
        raise ValueError(
            f"the paper's grid for {part} has no policy {config.policy!r}, only "
            f"{', '.join(table)}: give a file (--grid)"
        )
    return dict(table[config.policy])


def _dataset_of(config: ExperimentConfig) -> str:
    if config.data is not None:
        return config.data
    from continual_envs import BENCHMARKS

    assert config.env is not None
    return BENCHMARKS[config.env].dataset


def grid_size(grid: Grid) -> int:
    """How many settings a grid has."""
    return math.prod(map(len, grid.values()))


def read_grids(path: str | Path) -> dict[str, Grid]:
    """Read grids from a YAML file.

    The file has values by setting, for all policies; or, by the name of a policy,
    values by setting for that policy, which win.

    Args:
        path: the file.

    Returns:
        Grids by policy; that of ``""`` is for all.

    Raises:
        ValueError: if it is not such a file.
    """
    from agents.sweeps.yaml_file import read_yaml

    found = read_yaml(path)
    if not isinstance(found, dict) or not found:
        raise ValueError(
            f"{path} is not a grid: it must have values by setting, or settings by "
            f"policy, got {found!r:.60}"
        )
    grids: dict[str, dict[str, tuple[Any, ...]]] = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            grids[str(name)] = {
                str(each): _values(path, str(each), values)
                for each, values in value.items()
            }
        else:
            grids.setdefault("", {})[str(name)] = _values(path, str(name), value)
    return {policy: grid for policy, grid in grids.items()}


def _values(path: str | Path, name: str, given: Any) -> tuple[Any, ...]:
    if name in _NOT_TUNED or name == "validation":
        raise ValueError(f"{path}: {name} cannot be tuned")
    from info_replay.registry import POLICIES

    try:
        check_setting(name, [*POLICIES])
        found = parse_values(name, given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if _KINDS[name].startswith("float"):
        # 1 and 1.0 are the same setting, but not the same text in a file of results.
        found = [float(v) if type(v) is int else v for v in found]
    return tuple(dict.fromkeys(found))
