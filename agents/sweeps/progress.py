"""A sweep with a bar of its progress: :func:`run_with_progress`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tqdm import tqdm

from agents.sweeps.grid import Job
from agents.sweeps.sweep import SweepReport, run_sweep

__all__ = ["run_with_progress"]


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
    with tqdm(total=len(jobs), unit="run", smoothing=0) as bar:

        def progress(job: Job | None, report: SweepReport) -> None:
            done = report.finished + len(report.failed)
            if job is None:
                bar.initial = bar.n = done
                bar.refresh()
                return
            if report.failed:
                bar.set_postfix_str(f"{len(report.failed)} failed", refresh=False)
            bar.update(done - bar.n)

        return run_sweep(jobs, folder, progress=progress, **options)
