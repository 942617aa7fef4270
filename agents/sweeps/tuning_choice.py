"""Which setting is the best, and why: :func:`choose`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.runs.folder import RunError
from agents.supervised.metrics import mean_and_standard_error
from agents.sweeps.grid import Job
from agents.sweeps.tuning_cases import Case, Setting

__all__ = ["Outcome", "choose", "lowest_score", "outcomes", "validation_score"]

_WHY = (
    "the best mean of the validation averages; of equal means, the smaller standard "
    "error; then the first in the grid; diverged runs count as 0"
)
#: How many settings are told beside the chosen one, that one included.
_TOLD = 5
# They do not say what is learned, only where and what is looked at.
_OF_THE_MACHINE = ("device", "threads", "evaluations", "metrics", "test")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What came out of one setting.

    Attributes:
        setting: names and values.
        mean: of the validation averages.
        standard_error: of the mean.
        diverged: how many of the runs diverged.
    """

    setting: Setting
    mean: float
    standard_error: float
    diverged: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return {
            "settings": dict(self.setting),
            "mean": self.mean,
            "standard_error": self.standard_error,
            "diverged": self.diverged,
        }


def validation_score(row: Row, diverged: float = 0.0) -> float:
    """The validation average of a run.

    Args:
        row: its results.
        diverged: what counts for a run that diverged.

    Raises:
        RunError: if the stream has nothing to evaluate on.
    """
    average = row["result"].get("average")
    if average is not None:
        return float(average)
    if "diverged_at_step" in row["result"]:
        return diverged
    raise RunError(
        f"{row['result'].get('stream', 'the stream')} has nothing to validate on: it "
        "cannot be tuned"
    )


def lowest_score(rows: Iterable[Row]) -> float:
    """What a diverged run counts as: 0, or less if a run that did not has less.

    Accuracies are not below 0. Where targets are numbers, scores are negative squared
    errors, of which 0 would be the best.
    """
    return min([0.0, *map(validation_score, rows)])


def outcomes(
    runs: Mapping[Setting, Sequence[Job]], rows: Mapping[str, Row]
) -> list[Outcome]:
    """What came out of the settings all of whose runs are over, the best first.

    Args:
        runs: by setting, in the order of the grid.
        rows: results by run; those of other runs do not count.
    """
    ours = [job.key for jobs in runs.values() for job in jobs]
    floor = lowest_score(rows[key] for key in ours if key in rows)
    found = []
    for setting, jobs in runs.items():
        if not all(job.key in rows for job in jobs):
            continue
        its = [rows[job.key] for job in jobs]
        mean, error = mean_and_standard_error([validation_score(r, floor) for r in its])
        diverged = sum(row["result"]["average"] is None for row in its)
        found.append(Outcome(setting, mean, error, diverged))
    # Sorting is stable: equal settings stay in the order of the grid.
    return sorted(found, key=lambda each: (-each.mean, each.standard_error))


def choose(
    case: Case,
    runs: Mapping[Setting, Sequence[Job]],
    rows: Mapping[str, Row],
    method: str,
) -> dict[str, Any]:
    """The entry of a case in the file of tuned settings.

    Args:
        case: the case.
        runs: its runs, by setting.
        rows: results by run.
        method: by which settings were tried.

    Raises:
        RunError: if no setting has all its results.
    """
    found = outcomes(runs, rows)
    if not found:
        raise RunError(f"no setting of {case} has a result for each seed")
    best = found[0]
    begun = [jobs for jobs in runs.values() if any(job.key in rows for job in jobs)]
    used = [rows[job.key] for jobs in begun for job in jobs if job.key in rows]
    fixed = {k: v for k, v in case.fixed.items() if k not in _OF_THE_MACHINE}
    return {
        "stream": case.stream,
        "policy": case.policy,
        "imbalance": case.imbalance,
        "settings": dict(best.setting),
        "fixed": fixed,
        "mean": best.mean,
        "standard_error": best.standard_error,
        "why": _WHY,
        "method": method,
        "settings_in_grid": len(runs),
        "settings_tried": len(begun),
        "settings_stopped_early": len(begun) - len(found),
        "seeds": [*case.seeds],
        "best": [each.as_dict() for each in found[:_TOLD]],
        "made_by": _made_by(used),
    }


def _made_by(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The commits and versions of some results; usually one."""
    found = {}
    for row in rows:
        made = {"commit": row.get("commit"), "versions": row.get("versions", {})}
        found[json.dumps(made, sort_keys=True)] = made
    return [found[each] for each in sorted(found)]
