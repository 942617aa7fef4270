"""A bar of how far a sweep is: :func:`show_progress`, :func:`run_with_progress`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from agents.sweeps.grid import Job
from agents.sweeps.sweep import SweepReport, run_sweep

__all__ = ["run_with_progress", "show_progress"]


@contextlib.contextmanager
def show_progress() -> Iterator[Callable[[Job | None, SweepReport], None]]:
    """Show how far a sweep is, once it is known that its runs can be done.

    Yields:
        What a sweep tells of each run that is over, and of none at the beginning.
    """
    with contextlib.ExitStack() as stack:
        bars: list[Any] = []

        def progress(job: Job | None, report: SweepReport) -> None:
            done = report.finished + len(report.failed)
            if not bars:
                _tell_not_kept(report)
                bar = tqdm(total=report.total, initial=done, unit="run", smoothing=0)
                bars.append(stack.enter_context(bar))
            (bar,) = bars
            if report.failed:
                bar.set_postfix_str(f"{len(report.failed)} failed", refresh=False)
            bar.update(done - bar.n)

        yield progress


def _tell_not_kept(report: SweepReport) -> None:
    if count := report.not_kept:
        runs, folders = f"{count} runs were", "their folders are"
        if count == 1:
            runs, folders = "1 run was", "its folder is"
        print(
            f"{runs} finished without --keep: {folders} gone; give another folder "
            "(--out) to have them",
            file=sys.stderr,
        )


def run_with_progress(
    jobs: list[Job], folder: str | Path, **options: Any
) -> SweepReport:
    """Do all runs that have no result yet, and show how far this is.

    Args:
        jobs: the runs.
        folder: of the sweep.
        **options: of :func:`~agents.sweeps.sweep.run_sweep`.

    Returns:
        What happened.
    """
    with show_progress() as progress:
        return run_sweep(jobs, folder, progress=progress, **options)
