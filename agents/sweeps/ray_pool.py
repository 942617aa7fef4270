"""Runs of a sweep on a Ray cluster: :class:`RayPool`.

Ray does not repeat tasks here, because it does not tell a run that kills its process
from a node that dies: the one is given up soon, the other is not the run's fault.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    TaskCancelledError,
    WorkerCrashedError,
)

from agents.runs.errors import EngineError, last_line
from agents.runs.folder import RunError
from agents.runs.ray_session import RaySession, check_ray
from agents.sweeps.grid import Job
from agents.sweeps.ray_task import Refusal, remove_leftovers, run_on_node
from agents.sweeps.results import code_version
from agents.sweeps.worker import ONE_THREAD, Failure

__all__ = ["RayPool"]

_logger = logging.getLogger(__name__)
#: A node is dead, or was told to end: that interrupts its tasks, or cancels them.
_LOST = (NodeDiedError, ObjectLostError, TaskCancelledError)
#: A run that kills its process so often has failed.
_MOST_DEATHS = 3
#: A run that loses its node so often is what kills them.
_MOST_NODES = 10
#: How long to wait for news before Ctrl-C is looked for.
_PATIENCE_SECONDS = 1.0
#: How often Ray is looked after.
_CHECK_SECONDS = 2.0
#: How long to wait for a connection.
_CONNECT_SECONDS = 5.0


@dataclass
class _Attempt:
    """A run that is not over.

    Attributes:
        job: the run.
        deaths: how often its process died.
        nodes: how often its node did.
    """

    job: Job
    deaths: int = 0
    nodes: int = 0


class RayPool:
    """Tasks of Ray that do one run each, on one CPU and one thread.

    They are done by the cluster that there is (``RAY_ADDRESS``, or one that was started
    on this machine), else by a Ray that is started here and ends with the sweep. Every
    node needs the same version of this package, and the data. A run whose node dies
    starts again on another one.

    Args:
        folder: of the sweep. Files of runs are on their nodes, and are not kept.
        workers: runs at the same time, at most; ``None`` for as many as there are CPUs,
            also if nodes come or go.

    Attributes:
        keeps_folders: whether folders of runs are in that of the sweep.
    """

    keeps_folders = False

    def __init__(self, folder: Path, workers: int | None = None) -> None:
        self._folder = folder
        self._workers = workers
        self._pending: dict[Any, _Attempt] = {}
        self._next_check = 0.0
        self._is_warned = False

    def check(self) -> None:
        """Refuse a cluster that does not answer.

        Raises:
            RunError: naming it.
        """
        _check_address()

    def run(
        self, jobs: Iterable[Job]
    ) -> Iterator[tuple[Job, dict[str, Any] | Failure]]:
        """Do all runs.

        Args:
            jobs: the runs.

        Yields:
            Each run that is over, with its row or why it failed.

        Raises:
            RunError: if Ray cannot be reached or dies, or a node has another version.
        """
        waiting = deque(_Attempt(job) for job in jobs)
        if not waiting:
            return
        is_shared = ray.is_initialized()
        session = _start_session()
        session.announce(
            f"the process of the sweep in {self._folder} has ended; results so far are "
            "kept, the same command goes on"
        )
        try:
            yield from self._run(waiting)
        except (EngineError, RayError, ConnectionError) as error:
            raise RunError(
                f"{_explain(error)}; results so far are kept, the same command goes on"
            ) from error
        finally:
            if is_shared:  # else they end with the session
                self._cancel()
            session.close()
            remove_leftovers()

    def _run(
        self, waiting: deque[_Attempt]
    ) -> Iterator[tuple[Job, dict[str, Any] | Failure]]:
        # Ray's types know of no arguments by name.
        decorate: Any = ray.remote(
            num_cpus=1,
            max_retries=0,
            runtime_env={"env_vars": ONE_THREAD},
        )
        task = decorate(run_on_node)
        version, cwd = code_version(), os.getcwd()
        while waiting or self._pending:
            while waiting and not self._is_full:
                attempt = waiting.popleft()
                # The last time, somebody should be left to tell how it died.
                contained = attempt.deaths == _MOST_DEATHS - 1
                reference = task.remote(attempt.job, version, cwd, contained=contained)
                self._pending[reference] = attempt
            for reference in self._wait():
                attempt = self._pending.pop(reference)
                answer = self._answer(attempt, reference)
                if answer is None:
                    waiting.appendleft(attempt)
                else:
                    yield attempt.job, answer

    @property
    def _is_full(self) -> bool:
        return self._workers is not None and len(self._pending) >= self._workers

    def _wait(self) -> list[Any]:
        """Tasks that are over, after a while perhaps none; Ray is looked after."""
        ready, _ = ray.wait([*self._pending], timeout=_PATIENCE_SECONDS)
        if time.monotonic() > self._next_check:
            check_ray()
            if ray.cluster_resources().get("CPU", 0) < 1 and not self._is_warned:
                self._is_warned = True
                _logger.warning("Ray has no CPU: the sweep waits until a node joins it")
            self._next_check = time.monotonic() + _CHECK_SECONDS
        return ready

    def _answer(
        self, attempt: _Attempt, reference: Any
    ) -> dict[str, Any] | Failure | None:
        """What came out of a run; ``None`` if it has to be done again."""
        try:
            answer: dict[str, Any] | Failure | Refusal = ray.get(reference)
        except (WorkerCrashedError, OutOfMemoryError) as error:
            check_ray()
            attempt.deaths += 1
            if attempt.deaths < _MOST_DEATHS:
                return None
            return Failure(
                f"its process died {attempt.deaths} times: {last_line(error)}",
                str(error),
            )
        except (*_LOST, RayTaskError) as error:
            if isinstance(error, RayTaskError) and not isinstance(error.cause, _LOST):
                return Failure(last_line(error), str(error))
            check_ray()
            attempt.nodes += 1
            if attempt.nodes < _MOST_NODES:
                _logger.warning(
                    "a node of Ray has ended; %s with seed %d starts again on another",
                    attempt.job.method,
                    attempt.job.config.seed,
                )
                return None
            return Failure(
                f"its node ended {attempt.nodes} times: {last_line(error)}", str(error)
            )
        if isinstance(answer, Refusal):
            raise EngineError(answer.reason)
        return answer

    def _cancel(self) -> None:
        """End tasks that nobody waits for any more."""
        with contextlib.suppress(EngineError, RayError, ConnectionError):
            if self._pending:
                check_ray()  # a dead one would be waited for
            for reference in self._pending:
                ray.cancel(reference, force=True)
        self._pending.clear()


def _start_session() -> RaySession:
    _check_address()
    try:
        return RaySession(1)
    except EngineError as error:
        raise RunError(str(error)) from error
    except (RayError, OSError, RuntimeError, ValueError) as error:
        raise RunError(f"cannot start or join Ray: {last_line(error)}") from error


def _check_address() -> None:
    """Refuse a cluster that does not answer; Ray would try for six minutes."""
    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.rpartition(":")
    if ray.is_initialized() or "/" in address or not (host and port.isdigit()):
        return  # nothing to connect to, or not in this way: auto, ray://...
    try:
        socket.create_connection(
            (host.strip("[]"), int(port)), _CONNECT_SECONDS
        ).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(
            f"Ray's head node, {address} (RAY_ADDRESS), does not answer ({reason})"
        ) from error


def _explain(error: Exception) -> str:
    """What is wrong with Ray, as far as it can be found out."""
    if isinstance(error, EngineError):
        return str(error)
    try:
        check_ray()
    except EngineError as found:
        return str(found)
    return f"Ray failed: {last_line(error)}"
