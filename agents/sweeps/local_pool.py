"""Runs of a sweep on the cores of this machine: :class:`LocalPool`."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

from agents.sweeps.grid import Job
from agents.sweeps.worker import ONE_THREAD, Failure, run_job

__all__ = ["LocalPool"]


class LocalPool:
    """Processes that do one run after the other, each on one thread.

    They stay for the next call of :meth:`run`, until :meth:`close`. A process that dies
    costs the run that it was doing; another one takes its place.

    Args:
        folder: of the sweep; runs have theirs in it.
        workers: number of processes.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        # Not forked: a copy of threads and locks would be of no use.
        self._context = multiprocessing.get_context("spawn")
        self._idle: list[tuple[Any, Any]] = []
        self._busy: dict[Any, tuple[Any, Job]] = {}

    def run(
        self, jobs: Iterable[Job]
    ) -> Iterator[tuple[Job, dict[str, Any] | Failure]]:
        """Do all runs.

        Args:
            jobs: the runs.

        Yields:
            Each run that is over, with its row or why it failed.
        """
        waiting = deque(jobs)
        while waiting or self._busy:
            while waiting and len(self._busy) < self._workers:
                process, pipe = self._next_process()
                job = waiting.popleft()
                self._busy[pipe] = process, job
                pipe.send(job)
            ready: list[Any] = connection.wait([*self._busy])
            for pipe in ready:
                process, job = self._busy.pop(pipe)
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):
                    process.join()
                    pipe.close()
                    yield job, self._post_mortem(job, process.exitcode)
                else:
                    self._idle.append((process, pipe))
                    yield job, answer

    def close(self) -> None:
        """End all processes; a run in progress is saved."""
        for _, pipe in self._idle:
            pipe.close()  # it ends by itself
        for pipe, (process, _) in self._busy.items():
            pipe.close()
            process.terminate()
        for process in [each for each, _ in (*self._idle, *self._busy.values())]:
            process.join(60)
            if process.is_alive():
                process.kill()
                process.join()
        self._idle, self._busy = [], {}

    def _next_process(self) -> tuple[Any, Any]:
        """One that waits, or a new one; those that died while they waited are left."""
        while self._idle:
            process, pipe = self._idle.pop()
            if process.is_alive():
                return process, pipe
            pipe.close()
        return self._start()

    def _start(self) -> tuple[Any, Any]:
        ours, theirs = self._context.Pipe()
        before = {name: os.environ.get(name) for name in ONE_THREAD}
        os.environ.update(ONE_THREAD)
        try:
            process = self._context.Process(
                target=_work, args=(theirs, self._folder), daemon=True
            )
            process.start()
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value
        theirs.close()
        return process, ours

    def _post_mortem(self, job: Job, code: int | None) -> Failure:
        log = run_folder(self._folder, job).with_suffix(".log")
        text = log.read_text(errors="replace") if log.exists() else ""
        reason = f"its process ended with exit code {code}"
        if code is not None and code < 0:
            reason = f"its process was killed by {signal.Signals(-code).name}"
        return Failure(reason, text)


def run_folder(folder: Path, job: Job) -> Path:
    """Where the files of a run of a sweep are while it is not over."""
    return folder / "runs" / job.key


def _work(pipe: Any, folder: Path) -> None:
    """Do runs until there are no more, or the sweep is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep tells us to stop
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = run_job(job, run_folder(folder, job))
        except KeyboardInterrupt:  # SIGTERM: the run is saved
            return
        pipe.send(answer)


def _die_with_parent() -> None:
    """End when the sweep was killed: it may go on in another process."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
