"""What a tuning chooses settings for: :func:`make_cases`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.supervised.config import ExperimentConfig
from agents.sweeps.grid import Job, Tuned, make_jobs
from agents.sweeps.tuning_grid import Grid, find_grid
from agents.sweeps.values import parse_values

__all__ = ["Case", "Setting", "make_cases"]

#: Names and values that are tried together; hashable.
Setting = tuple[tuple[str, Any], ...]
_OF_CASE = ("env", "data", "policy", "imbalance")


@dataclass(frozen=True)
class Case:
    """A stream, a policy and an imbalance.

    Attributes:
        stream: short name of the stream.
        source: the setting that the stream is of, ``env`` or ``data``, and its value.
        policy: of the memory.
        imbalance: of the stream.
        grid: values to try, by setting.
        fixed: settings of all runs.
        seeds: of the tuning.
    """

    stream: str
    source: tuple[str, str]
    policy: str
    imbalance: int
    grid: Grid
    fixed: Mapping[str, Any]
    seeds: tuple[int, ...]

    @property
    def key(self) -> tuple[str, str, int]:
        """By which tuned settings are found."""
        return self.stream, self.policy, self.imbalance

    def __str__(self) -> str:
        """The case in a few words."""
        return f"{self.stream}, {self.policy}, imbalance {self.imbalance}"

    def runs(self) -> dict[Setting, list[Job]]:
        """The runs on validation data, by setting, one per seed in the order of seeds.

        Raises:
            ValueError: if a value is not one that its setting can have.
        """
        grid = {name: list(values) for name, values in self.grid.items()}
        jobs = make_jobs(
            {**self._common(), **grid, "seed": [*self.seeds], "validation": True}
        )
        place = {seed: number for number, seed in enumerate(self.seeds)}
        found: dict[Setting, list[Job]] = {}
        for job in sorted(jobs, key=lambda job: place[job.config.seed]):
            found.setdefault(self.setting_of(job), []).append(job)
        return found

    def setting_of(self, job: Job) -> Setting:
        """The values that a run tries; the first of a setting that it does not use."""
        tried = {name: getattr(job.config, name) for name in self.grid}
        return tuple(
            (name, value if value in self.grid[name] else self.grid[name][0])
            for name, value in tried.items()
        )

    def test_runs(self, seeds: Sequence[int], tuned: Tuned) -> list[Job]:
        """The runs on the whole training set, with settings that were tuned."""
        return make_jobs({**self._common(), "seed": [*seeds]}, tuned)

    def _common(self) -> dict[str, Any]:
        kind, name = self.source
        case = {kind: name, "policy": self.policy, "imbalance": self.imbalance}
        return {**case, **self.fixed}


def make_cases(
    description: Mapping[str, Any],
    seeds: Sequence[int],
    grids: str | Mapping[str, Grid] | None = None,
) -> list[Case]:
    """All cases of a tuning.

    Args:
        description: ``env`` or ``data``, ``policy`` and ``imbalance`` with one value or
            several each, and one value of any other setting, which is not tuned.
        seeds: of the tuning.
        grids: as of :func:`~agents.sweeps.tuning_grid.find_grid`.

    Returns:
        The cases; every setting of their grids can be run.

    Raises:
        ValueError: if a name or a value is wrong, or a grid is empty.

    Example:
        >>> cases = make_cases({"policy": "rs,infors", "imbalance": "1,10"}, range(5))
        >>> [str(case) for case in cases][:2]
        ['SplitMNIST, rs, imbalance 1', 'SplitMNIST, rs, imbalance 10']
        >>> len(cases[0].runs()), len(cases[2].runs())
        (12, 54)
    """
    fixed = {
        name: _one(name, value)
        for name, value in description.items()
        if name not in _OF_CASE
    }
    for name in ("seed", "validation"):
        if name in fixed:
            raise ValueError(f"{name} is not an option of a tuning: give its seeds")
    source = "data" if "data" in description else "env"
    if source == "data" and "env" in description:
        raise ValueError("give either env or data, got both")
    policies = parse_values("policy", description.get("policy", "infors"))
    imbalances = parse_values("imbalance", description.get("imbalance", 1))
    cases: dict[tuple[str, str, int], Case] = {}
    for name, policy, imbalance in itertools.product(
        parse_values(source, description.get(source, "SplitMNIST")),
        policies,
        imbalances,
    ):
        chosen = {**fixed, "policy": policy, "imbalance": imbalance}
        env = name if source == "env" else None
        if source == "data":
            chosen["data"] = name
        config = ExperimentConfig.preset(env, **chosen)
        case = Case(
            config.stream,
            (source, name),
            config.policy,
            config.imbalance,
            find_grid(config, grids, fixed),
            fixed,
            tuple(seeds),
        )
        if case.key in cases:
            raise ValueError(
                f"two streams are called {case.stream}: tune one at a time"
            )
        case.runs()  # raises before anything is run
        cases[case.key] = case
    return [*cases.values()]


def _one(name: str, given: Any) -> Any:
    found = parse_values(name, given)
    if len(found) > 1:
        raise ValueError(
            f"{name} must have one value, got {given!r}: values to choose from are "
            "those of a grid (--grid FILE)"
        )
    return found[0]
