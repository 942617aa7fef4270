"""Choose settings on validation data: :func:`tune`, :func:`run_tests`.

The protocol is the paper's (Sec. "Experiments", "Experimental details"): a tenth of the
training data is held out, the best setting has the best average on it over five seeds,
and the test runs learn from the whole training set with that setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.runs.folder import RunError
from agents.sweeps.grid import Job
from agents.sweeps.results import read_rows
from agents.sweeps.sweep import Pool, SweepReport, run_sweep
from agents.sweeps.tuning_cases import Case
from agents.sweeps.tuning_choice import choose
from agents.sweeps.tuning_file import TuningFolder, load_tuned

__all__ = ["TuneReport", "check_test_seeds", "rows_by_key", "run_tests", "tune"]

#: From the folder of a sweep and the number of runs at a time.
MakePool = Callable[[Path, int | None], Pool]
#: Told of each run that is over, and of none at the beginning.
Progress = Callable[[Job | None, SweepReport], None]


@dataclass
class TuneReport:
    """What happened.

    Attributes:
        chosen: an entry of ``tuned.json`` for each case that has one.
        failed: reasons and logs of runs that failed, by run.
    """

    chosen: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[str, tuple[str, Path]] = field(default_factory=dict)


def tune(
    cases: Sequence[Case],
    folder: str | Path,
    *,
    command: str = "",
    workers: int | None = None,
    make_pool: MakePool | None = None,
    mixed: bool = False,
    progress: Progress | None = None,
) -> TuneReport:
    """Try every setting of the grid of every case, and choose the best.

    Runs are those of a sweep in the folder ``grid``: a tuning that was killed goes on,
    and nothing is done twice. Choices are in ``tuned.json``.

    Args:
        cases: of :func:`~agents.sweeps.tuning_cases.make_cases`.
        folder: of the tuning; it is made if it is not there.
        command: that is stored with the choices.
        workers: runs at the same time; by default one for each core.
        make_pool: makes what does them; by default the cores of this machine.
        mixed: whether results of other versions of the code count.
        progress: told of each run that is over.

    Returns:
        What happened; a case with a run that failed has no choice.

    Raises:
        RunError: if the folder is that of another tuning, damaged or in use, or has
            results of another version; all results stay as they are then.
    """
    files = TuningFolder(folder)
    with files.opened(cases):
        runs = [(case, case.runs()) for case in cases]
        jobs = [job for _, its in runs for each in its.values() for job in each]
        done = run_sweep(
            sorted(jobs, key=lambda job: -job.config.imbalance * job.config.epochs),
            files.grid,
            workers=workers,
            make_pool=make_pool,
            mixed=mixed,
            progress=progress,
        )
        report = TuneReport(failed=done.failed)
        rows = rows_by_key(files.grid)
        for case, its in runs:
            keys = {job.key for each in its.values() for job in each}
            if keys <= rows.keys():
                report.chosen.append(choose(case, its, rows, "grid"))
        if report.chosen:
            files.add_entries(report.chosen, command)
        return report


def run_tests(
    cases: Sequence[Case],
    folder: str | Path,
    seeds: Sequence[int],
    *,
    workers: int | None = None,
    make_pool: MakePool | None = None,
    mixed: bool = False,
    progress: Progress | None = None,
) -> SweepReport:
    """Learn from the whole training set with the settings that were chosen.

    Args:
        cases: those without a choice are left out.
        folder: of the tuning; the runs are those of a sweep in its folder ``test``.
        seeds: of the runs.
        workers: runs at the same time; by default one for each core.
        make_pool: makes what does them; by default the cores of this machine.
        mixed: whether results of other versions of the code may be there.
        progress: told of each run that is over.

    Returns:
        What happened.

    Raises:
        RunError: if seeds are those of the tuning, nothing was chosen, or the folder
            has runs with other settings; nothing is changed then.
    """
    files = TuningFolder(folder)
    check_test_seeds(cases, seeds)
    with files.opened(cases):
        tuned = load_tuned(files.tuned)
        known = [case for case in cases if case.key in tuned]
        if not known:
            raise RunError(f"{files.tuned} has no settings for any of these runs")
        _check_same_settings(files.test, known, tuned)
        jobs = [job for case in known for job in case.test_runs(seeds, tuned)]
        return run_sweep(
            sorted(jobs, key=lambda job: -job.config.imbalance * job.config.epochs),
            files.test,
            workers=workers,
            make_pool=make_pool,
            mixed=mixed,
            progress=progress,
        )


def check_test_seeds(cases: Sequence[Case], seeds: Sequence[int]) -> None:
    """Refuse to test with the seeds of the tuning.

    Raises:
        RunError: naming one of them.
    """
    for case in cases:
        if both := {*case.seeds} & {*seeds}:
            raise RunError(
                f"seed {min(both)} is one of the tuning and of the test: give others"
            )


def _check_same_settings(
    folder: Path, cases: Sequence[Case], tuned: Mapping[Any, Mapping[str, Any]]
) -> None:
    """Refuse test runs of two choices in one table."""
    expected = {case.key: tuned[case.key] for case in cases}
    for row in rows_by_key(folder).values():
        result = row["result"]
        key = result.get("stream"), result.get("policy"), result.get("imbalance")
        for name, value in expected.get(key, {}).items():
            if result.get(name, value) != value:
                told = ", ".join(map(str, key))
                raise RunError(
                    f"{folder} has runs with an earlier choice ({told}: {name}="
                    f"{result[name]}, now {value}): move or delete that folder"
                )


def rows_by_key(folder: Path) -> dict[str, dict[str, Any]]:
    """The results of a sweep by run; none if it has not begun."""
    if not (folder / "results.jsonl").exists():
        return {}
    return {row["key"]: row for row in read_rows(folder)}
