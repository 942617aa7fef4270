"""From a description of a sweep to its runs: :func:`make_jobs`."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agents.supervised.config import ExperimentConfig

__all__ = ["Job", "Tuned", "make_jobs", "parse_values"]

#: Settings that tell runs of one method apart, not methods.
_NOT_A_METHOD = ("seed", "imbalance", "env", "data")
_FIELDS = {field.name: field for field in dataclasses.fields(ExperimentConfig)}
_HINTS = typing.get_type_hints(ExperimentConfig)
# Their values are lists with commas themselves.
_WITH_COMMAS = ("class_order", "class_sizes", "image_size", "input_key", "metrics")

#: Settings that were tuned, by stream, policy and imbalance.
Tuned = Mapping[tuple[str, str, int], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of a sweep.

    Attributes:
        method: what its row of a table is called.
        config: the settings.
    """

    method: str
    config: ExperimentConfig

    @property
    def key(self) -> str:
        """A name that no other run has, the same in every process."""
        told = json.dumps([self.method, self.config.what_matters()], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def with_snapshots(self) -> Job:
        """The same run, which keeps the items in memory at each evaluation."""
        config = dataclasses.replace(self.config, snapshots=True)
        return dataclasses.replace(self, config=config)


def make_jobs(description: Mapping[str, Any], tuned: Tuned | None = None) -> list[Job]:
    """The runs of a sweep: all combinations of all values.

    Args:
        description: of each setting that is not the preset's, one value or a list of
            values; ``"0-9"`` are the numbers from 0 to 9. ``"methods"`` has settings by
            the name of each method, which win over those outside; of a list of
            settings, each counts by itself.
        tuned: settings that were tuned, which win over the preset's only.

    Returns:
        The runs; those that are likely to take long come first.

    Raises:
        ValueError: if a name or a value is wrong, or there is no run at all.

    Example:
        >>> grid = {"env": "SplitDigits", "policy": "rs,infors", "seed": "0-2"}
        >>> jobs = make_jobs(grid)
        >>> len(jobs), jobs[0].method, jobs[0].config.seed
        (6, 'rs', 0)
    """
    if not isinstance(description, Mapping):
        raise ValueError(
            f"a sweep is described by names and values, got {description!r:.80}"
        )
    common = {name: value for name, value in description.items() if name != "methods"}
    methods = description.get("methods", {"": {}})
    if not isinstance(methods, Mapping) or not methods:
        raise ValueError(
            f"methods must be settings by the name of each method, got {methods!r:.80}"
        )
    jobs: dict[str, Job] = {}
    for name, settings in methods.items():
        for part in settings if isinstance(settings, list) else [settings]:
            if not isinstance(part, Mapping):
                raise ValueError(
                    f"method {name!r} must have settings by name, got {part!r:.80}"
                )
            for job in _expand(str(name), {**common, **part}, tuned or {}):
                jobs[job.key] = job
    if not jobs:
        raise ValueError("this sweep has no runs")
    return sorted(jobs.values(), key=lambda job: -_length(job.config))


def _length(config: ExperimentConfig) -> float:
    """What the length of a run grows with, as far as settings tell."""
    return config.imbalance * config.epochs


def _expand(name: str, settings: dict[str, Any], tuned: Tuned) -> Iterator[Job]:
    """All runs of one method."""
    values = {each: parse_values(each, value) for each, value in settings.items()}
    varied = [
        each
        for each, found in values.items()
        if len(found) > 1 and each not in _NOT_A_METHOD
    ]
    if "policy" in varied:
        varied.remove("policy")
    for combination in itertools.product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        env = chosen.pop("env", None)
        config = _config(env, chosen, tuned)
        words = [f"{each}={chosen.get(each)}" for each in varied]
        label = name or " ".join([config.policy, *words])
        yield Job(label, config)


def _config(env: str | None, chosen: dict[str, Any], tuned: Tuned) -> ExperimentConfig:
    chosen = {"evaluations": 0, "threads": 1, **chosen}
    config = ExperimentConfig.preset(env, **chosen)
    found = tuned.get((config.stream, config.policy, config.imbalance))
    if found is None:
        return config
    return ExperimentConfig.preset(env, **{**found, **chosen})


def parse_values(name: str, given: Any) -> list[Any]:
    """The values of a setting.

    Args:
        name: of the setting.
        given: one value or a list of them; text is read, ``"none"`` too.

    Returns:
        At least one value, each only once.

    Raises:
        ValueError: naming the setting, if there is none of the name or no value.

    Example:
        >>> parse_values("seed", "0-2,7"), parse_values("decay", "none,0.99")
        ([0, 1, 2, 7], [None, 0.99])
    """
    if name not in _FIELDS:
        known = ", ".join(_FIELDS)
        raise ValueError(
            f"{name!r} is not a setting: expected methods or any of {known}"
        )
    parts: Iterable[Any] = given if isinstance(given, list | tuple) else [given]
    found: list[Any] = []
    for part in parts:
        for value in _read(name, part):
            if value not in found:
                found.append(value)
    if not found:
        raise ValueError(f"{name} must have at least one value, got {given!r}")
    return found


def _read(name: str, given: Any) -> Iterator[Any]:
    """The values that one piece of text, or anything else, stands for."""
    if not isinstance(given, str):
        yield given
        return
    hint = _HINTS[name]
    kinds = typing.get_args(hint) or (hint,)
    pieces = [given] if name in _WITH_COMMAS else given.split(",")
    for piece in map(str.strip, pieces):
        if not piece:
            continue
        if str in kinds:
            yield piece
        elif piece.lower() == "none" and type(None) in kinds:
            yield None
        else:
            yield from _numbers(name, piece, kinds[0])


def _numbers(name: str, piece: str, kind: type) -> Iterator[Any]:
    if kind is bool:
        flags = {"true": True, "yes": True, "false": False, "no": False}
        if piece.lower() not in flags:
            raise ValueError(f"{name} must be true or false, got {piece!r}")
        yield flags[piece.lower()]
        return
    first, dash, last = piece.partition("-")
    if kind is int and dash and first.isdigit() and last.isdigit():
        if int(first) > int(last):
            raise ValueError(f"{name} must go up, got {piece!r}")
        yield from range(int(first), int(last) + 1)
        return
    try:
        yield kind(piece)
    except ValueError:
        words = "a whole number" if kind is int else "a number"
        raise ValueError(f"{name} must be {words}, got {piece!r}") from None
