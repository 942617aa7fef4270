"""From a description of a sweep to its runs: :func:`make_jobs`."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from agents.supervised.config import ExperimentConfig
from agents.supervised.unused import DECIDING, unused_settings
from agents.sweeps.values import MOST_RUNS, check_setting, parse_values

__all__ = ["Job", "Tuned", "make_jobs"]

#: Settings that tell runs of one method apart, not methods.
_NOT_A_METHOD = ("seed", "imbalance", "env", "data")

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


def make_jobs(
    description: Mapping[str, Any],
    tuned: Tuned | None = None,
    *,
    given: Mapping[str, Any] | None = None,
    tell: Callable[[str], object] | None = None,
) -> list[Job]:
    """The runs of a sweep: all combinations of all values.

    Of several values of a setting that a policy or a learner does not use, none is
    taken: the run is done once, with the preset's.

    Args:
        description: of each setting that is not the preset's, one value or a list of
            values; ``"0-9"`` are the numbers from 0 to 9. ``"methods"`` has settings by
            the name of each method, which win over those outside; of a list of
            settings, each counts by itself.
        tuned: settings that were tuned, which win over the preset's only.
        given: values that win over the description: those outside of methods are
            replaced. Of a method's own seeds, imbalances and streams, only those that
            are given are left; no other setting may be both given and a method's own.
        tell: called with a line about each method that does not use a setting which has
            several values, and about each that is left without a run.

    Returns:
        The runs; those that are likely to take long come first.

    Raises:
        ValueError: if a name or a value is wrong, or there are no runs at all or too
            many.

    Example:
        >>> grid = {"env": "SplitDigits", "policy": "rs,infors", "seed": "0-2"}
        >>> jobs = make_jobs(grid)
        >>> len(jobs), jobs[0].method, jobs[0].config.seed
        (6, 'rs', 0)
        >>> len(make_jobs(grid, given={"seed": 7}))
        2
        >>> grid = {"env": "SplitDigits", "policy": "rs,infors", "eta": "0,1"}
        >>> print(*(job.method for job in make_jobs(grid, tell=print)), sep=", ")
        rs does not use eta: one run for all values
        rs, infors eta=0.0, infors eta=1.0
    """
    grids = _grids(description, given or {})
    jobs: dict[str, Job] = {}
    unused: dict[str, set[str]] = {}
    for name, values in grids:
        for job in _expand(name, values, tuned or {}, unused):
            jobs[job.key] = job
    if tell is not None:
        for method, names in unused.items():
            told = ", ".join(sorted(names))
            tell(f"{method} does not use {told}: one run for all values")
        found = {"", *(job.method for job in jobs.values())}
        for name in dict.fromkeys(name for name, _ in grids if name not in found):
            tell(f"no run with these values: {name}")
    return sorted(jobs.values(), key=lambda job: -_length(job.config))


def _grids(
    description: Mapping[str, Any], given: Mapping[str, Any]
) -> list[tuple[str, dict[str, list[Any]]]]:
    """Each method's name and the values of all its settings; some may have none."""
    common, parts = _read_description(description)
    chosen = {name: parse_values(name, value) for name, value in given.items()}
    _check_conflicts(parts, chosen)
    for stream, other in (("data", "env"), ("env", "data")):
        if stream in chosen and other not in chosen:
            common.pop(other, None)  # a stream that is given takes its place
    grids = []
    for name, part in parts:
        own = {each: parse_values(each, value) for each, value in part.items()}
        values = {**common, **chosen, **own}
        for each in chosen.keys() & own.keys():
            wanted = {*chosen[each]}
            values[each] = [value for value in own[each] if value in wanted]
        grids.append((name, values))
    total = sum(math.prod(map(len, values.values())) for _, values in grids)
    if not total:
        words = ", ".join(f"{each}={_short(chosen[each])}" for each in chosen)
        raise ValueError(f"no run is left with {words}: methods have other values")
    if total > MOST_RUNS:
        raise ValueError(f"a sweep has at most {MOST_RUNS} runs, got {total}")
    return grids


def _read_description(
    description: Mapping[str, Any],
) -> tuple[dict[str, list[Any]], list[tuple[str, Mapping[str, Any]]]]:
    """Values for all methods; and each method's name and own settings."""
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
    parts: list[tuple[str, Mapping[str, Any]]] = []
    for name, settings in methods.items():
        for part in settings if isinstance(settings, list) else [settings]:
            if not isinstance(part, Mapping):
                raise ValueError(
                    f"method {name!r} must have settings by name, got {part!r:.80}"
                )
            parts.append((str(name), part))
    if not parts:
        raise ValueError("this sweep has no runs")
    for name in common:
        check_setting(name, ("methods",))
    return {name: parse_values(name, value) for name, value in common.items()}, parts


def _check_conflicts(
    parts: Iterable[tuple[str, Mapping[str, Any]]], chosen: Collection[str]
) -> None:
    """Refuse a setting that is given though methods have their own values of it."""
    for name in chosen:
        if name in _NOT_A_METHOD:
            continue
        if own := dict.fromkeys(method for method, part in parts if name in part):
            raise ValueError(
                f"{name} is given, but these methods have their own: {'; '.join(own)}"
            )


def _short(values: list[Any]) -> str:
    text = ",".join(map(str, values[:4]))
    return text if len(values) <= 4 else f"{text},..."


def _length(config: ExperimentConfig) -> float:
    """What the length of a run grows with, as far as settings tell."""
    return config.imbalance * config.epochs


def _expand(
    name: str,
    values: dict[str, list[Any]],
    tuned: Tuned,
    told: dict[str, set[str]],
) -> Iterator[Job]:
    """All runs of one method; adds the settings that it does not use, by its name."""
    varied = [
        each
        for each, found in values.items()
        if len(found) > 1 and each not in _NOT_A_METHOD
    ]
    known: dict[tuple[str, ...], set[str]] = {}  # looking takes longer than the rest
    for combination in itertools.product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        config = _config(chosen, tuned)
        deciding = tuple(getattr(config, each) for each in DECIDING)
        if varied and deciding not in known:
            known[deciding] = unused_settings(config).intersection(varied)
        unused = known.get(deciding, set())
        words = {
            each: f"{each}={chosen[each]}"
            for each in varied
            if each not in unused and (name or each != "policy")
        }
        if unused:
            config = _config(
                {each: value for each, value in chosen.items() if each not in unused},
                tuned,
            )
            why = [word for each, word in words.items() if each in DECIDING]
            method = " ".join([name or config.policy, *why])
            told.setdefault(method, set()).update(unused)
        yield Job(name or " ".join([config.policy, *words.values()]), config)


def _config(given: Mapping[str, Any], tuned: Tuned) -> ExperimentConfig:
    chosen = {"evaluations": 0, "threads": 1, **given}
    env = chosen.pop("env", None)
    config = ExperimentConfig.preset(env, **chosen)
    found = tuned.get((config.stream, config.policy, config.imbalance))
    if found is None:
        return config
    return ExperimentConfig.preset(env, **{**found, **chosen})
