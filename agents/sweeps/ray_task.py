"""One run of a sweep as a task of Ray, on whatever node: :func:`run_on_node`."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agents.sweeps.grid import Job
from agents.sweeps.local_pool import LocalPool
from agents.sweeps.results import code_version
from agents.sweeps.worker import Failure, run_job

__all__ = ["Refusal", "remove_leftovers", "run_on_node"]

_PREFIX = f"info-replay-sweep-{socket.gethostname()}-"


class Refusal(NamedTuple):
    """A node that cannot do any run of the sweep.

    Attributes:
        reason: in one line.
    """

    reason: str


def run_on_node(
    job: Job, version: dict[str, Any], cwd: str, *, contained: bool
) -> dict[str, Any] | Failure | Refusal:
    """Do a run; its files are on this node and deleted afterwards.

    Args:
        job: the run.
        version: of the code that the sweep was started with.
        cwd: folder that the sweep was started in, for relative paths and own modules.
        contained: whether the run has a process of its own, so that its log can be
            reported if it kills that.

    Returns:
        Its row of the results; or why it failed; or why no run can be done here.
    """
    difference = _compare(_version_here(), version)
    if difference:
        return Refusal(f"Ray's node {socket.gethostname()} has {difference}")
    _enter(cwd)
    with _temporary_folder() as folder:
        if contained:
            with contextlib.closing(LocalPool(folder, 1)) as pool:
                ((_, answer),) = pool.run([job])
            return answer
        return run_job(job, folder / job.key)


# Asking git takes time, and what this process has imported does not change.
_version_here = functools.cache(code_version)


def _compare(here: dict[str, Any], there: dict[str, Any]) -> str:
    """What differs between two versions of the code, in words; or nothing."""
    for name, wanted in there["versions"].items():
        found = here["versions"].get(name)
        if found != wanted:
            return f"{name} {found}, the sweep has {wanted}: install the same version"
    commits = here["commit"], there["commit"]
    if None not in commits and commits[0] != commits[1]:
        return "commit {} of info-replay, the sweep has {}: use the same".format(
            *commits
        )
    return ""


def _enter(cwd: str) -> None:
    """Go to a folder and let modules be found there, if this node has it."""
    with contextlib.suppress(OSError):
        os.chdir(cwd)
        if cwd not in sys.path:
            sys.path.append(cwd)  # after all that is installed


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder of this process."""
    remove_leftovers()
    with tempfile.TemporaryDirectory(
        prefix=f"{_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def remove_leftovers() -> None:
    """Remove the files of runs whose processes were killed on this machine."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        process = left.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True
