"""Many runs, each done once: :func:`run_sweep`."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import filelock

from agents.runs.folder import RunError
from agents.sweeps.grid import Job
from agents.sweeps.local_pool import LocalPool, run_folder
from agents.sweeps.results import ResultsFile, code_version, code_versions_of
from agents.sweeps.worker import Failure

__all__ = ["Pool", "SweepReport", "run_sweep"]


class Pool(Protocol):
    """What does runs somewhere."""

    def run(
        self, jobs: Iterable[Job]
    ) -> Iterator[tuple[Job, dict[str, Any] | Failure]]:
        """Do all runs; yields each that is over, with its row or why it failed."""


@dataclass
class SweepReport:
    """What happened.

    Attributes:
        total: runs of the sweep.
        finished: of these, how many have a result.
        failed: reasons and logs of the others, by run.
        not_kept: runs whose folders should be there, but were not kept by the sweep
            that did them.
    """

    total: int
    finished: int = 0
    failed: dict[str, tuple[str, Path]] = field(default_factory=dict)
    not_kept: int = 0


def run_sweep(
    jobs: list[Job],
    folder: str | Path,
    *,
    workers: int | None = None,
    make_pool: Callable[[Path, int | None], Pool] | None = None,
    keep: bool = False,
    mixed: bool = False,
    progress: Callable[[Job | None, SweepReport], None] | None = None,
) -> SweepReport:
    """Do all runs of a sweep that have no result yet.

    Results are in ``results.jsonl`` as soon as a run is over. A sweep that was killed
    goes on with the runs that are not there, those in progress from their last
    checkpoints. A run that fails does not stop the others; it is tried again by the
    next sweep in the folder.

    Args:
        jobs: the runs.
        folder: of the sweep; it is made if it is not there.
        workers: runs at the same time; by default one for each core, or as the pool
            decides.
        make_pool: makes what does them, from folder and ``workers``, and is closed by
            the caller; by default the cores of this machine.
        keep: whether the folders of runs stay, with networks and memories, these also
            as they were at each evaluation.
        mixed: whether results of other versions of the code may be in the same folder.
        progress: told of each run that is over, and of none at the beginning.

    Returns:
        What happened.

    Raises:
        RunError: if another sweep is at work in the folder, its results are damaged, or
            they are of another version, or the pool cannot be reached, or not keep
            folders of runs; nothing is changed then.
    """
    path = Path(folder).expanduser().absolute()
    stack = contextlib.ExitStack()
    if make_pool is None:
        own = LocalPool(path, workers or _usable_cores())
        stack.callback(own.close)
        pool: Pool = own
    else:
        pool = make_pool(path, workers)
    if keep and not getattr(pool, "keeps_folders", True):
        raise RunError("folders of runs on other machines cannot be kept (--keep)")
    if not path.exists():
        _check_pool(pool)
    _make_folder(path)
    with stack, _alone(path):
        results, version = ResultsFile(path), code_version()
        rows = results.repair()
        if not mixed:
            _check_version(path, rows, version)
        done = {row["key"] for row in rows}
        waiting = [job for job in jobs if job.key not in done]
        report = SweepReport(len(jobs), len(jobs) - len(waiting))
        if keep:
            waiting = [job.with_snapshots() for job in waiting]
            over = [run_folder(path, job) for job in jobs if job.key in done]
            report.not_kept = sum(not each.exists() for each in over)
        if waiting:
            _check_pool(pool)
        if progress is not None:
            progress(None, report)
        for job, answer in pool.run(waiting):
            if isinstance(answer, Failure):
                log = path / "failed" / f"{job.key}.log"
                log.parent.mkdir(exist_ok=True)
                log.write_text(answer.log)
                report.failed[job.key] = (_describe(job, answer.reason), log)
            else:
                results.append({**answer, **version})
                report.finished += 1
                _tidy_up(path, job, keep=keep)
            if progress is not None:
                progress(job, report)
        return report


def _check_pool(pool: Pool) -> None:
    """Refuse a pool that says that it cannot do runs."""
    check = getattr(pool, "check", None)
    if check is not None:
        check()


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {path} ({error.strerror})") from error
    strangers = {each.name for each in path.iterdir()} - {
        ".lock",
        "results.jsonl",
        "runs",
        "failed",
    }
    if strangers and not (path / "results.jsonl").exists():
        raise RunError(
            f"{path} is not the folder of a sweep: it has {min(strangers)}; give "
            "another one (--out)"
        )


def _alone(path: Path) -> filelock.FileLock:
    lock = filelock.FileLock(path / ".lock", 0, thread_local=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise RunError(
            f"another sweep is at work in {path}: wait for it, or give another folder "
            "(--out)"
        ) from None
    return lock


def _check_version(
    path: Path, rows: list[dict[str, Any]], version: dict[str, Any]
) -> None:
    """Refuse to add results of this code to those of another."""
    others = code_versions_of(rows) - code_versions_of([version])
    if others:
        commit = min(str(commit) for commit, _ in others)
        raise RunError(
            f"{path} has results of another version (commit {commit}, now "
            f"{version['commit']}): give another folder (--out), or --mixed to have "
            "both in one table"
        )


def _usable_cores() -> int:
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else (os.cpu_count() or 1)
    )


def _describe(job: Job, reason: str) -> str:
    config = job.config
    return (
        f"{job.method}, {config.stream}, imbalance {config.imbalance}, seed "
        f"{config.seed}: {reason}"
    )


def _tidy_up(path: Path, job: Job, *, keep: bool) -> None:
    (path / "failed" / f"{job.key}.log").unlink(missing_ok=True)
    if not keep:
        shutil.rmtree(run_folder(path, job), ignore_errors=True)
