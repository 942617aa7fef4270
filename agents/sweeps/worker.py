"""One run of a sweep, in whatever process: :func:`run_job`."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agents.sweeps.grid import Job

__all__ = ["ONE_THREAD", "Failure", "capture_output", "run_job"]

#: Environment of a process in which torch is imported, for one thread per run.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)


class Failure(NamedTuple):
    """A run that failed.

    Attributes:
        reason: in one line.
        log: everything that it said.
    """

    reason: str
    log: str


def run_job(job: Job, folder: Path) -> dict[str, Any] | Failure:
    """Do a run, or go on with it.

    Args:
        job: the run.
        folder: where its files go; a run that was killed there goes on.

    Returns:
        Its row of the results, without what made it; or why it failed.
    """
    log = folder.with_suffix(".log")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with capture_output(log):
        try:
            row = _run(job, folder)
        except Exception as error:
            traceback.print_exc()
            sys.stderr.flush()
            text = " ".join(str(error).split()) or type(error).__name__
            return Failure(text, log.read_text(errors="replace"))
    log.unlink(missing_ok=True)
    return row


def _run(job: Job, path: Path) -> dict[str, Any]:
    # Not before the output goes to the log, and not in the process that only waits.
    from agents.runs.divergence import DivergenceError
    from agents.runs.folder import RunFolder
    from agents.supervised.experiment import Experiment

    logging.getLogger("torchrl").setLevel(logging.WARNING)
    folder = RunFolder(path)
    resume = (path / "config.json").exists()
    experiment = Experiment(job.config, folder, resume=resume)
    try:
        result = experiment.run()
    except DivergenceError:
        result = {
            **job.config.what_matters(),
            "stream": job.config.stream,
            "average": None,
            "diverged_at_step": experiment.step,
        }
    seconds = folder.read("timing.json") if folder.is_finished else {}
    return {
        "key": job.key,
        "method": job.method,
        "result": result,
        "evaluations": _series(folder),
        "seconds": {name: round(spent, 3) for name, spent in seconds.items()},
    }


def _series(folder: Any) -> list[dict[str, Any]]:
    """Scores and memory along the run."""
    found: dict[int, dict[str, Any]] = {}
    for kind in ("evaluation", "memory"):
        for event in folder.events(kind):
            values = {name: value for name, value in event.items() if name != "kind"}
            found.setdefault(event["step"], {}).update(values)
    return [found[step] for step in sorted(found)]


@contextlib.contextmanager
def capture_output(log: Path) -> Iterator[None]:
    """Let all that this process prints go to a file, what libraries print too."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip((1, 2), saved, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
