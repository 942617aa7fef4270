"""The Ray of a run: :class:`RaySession`, and answers that do not wait for a dead one.

Ray itself goes on for up to a minute after its head node or this node died, and then
reports an actor's death, waits for ever, or ends the process. So both are asked for
directly, by opening a connection, whenever an answer takes long or fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from agents.runs import ray_watchdog
from agents.runs.errors import EngineError, last_line

__all__ = ["RaySession", "check_ray", "fetch"]

_logger = logging.getLogger(__name__)
#: How long to wait for an answer before Ray is looked after.
_PATIENCE_SECONDS = 1.0
#: How long an answer may take, as long as Ray is alive.
_LONGEST_SECONDS = 600.0
#: How long to wait for a connection.
_CONNECT_SECONDS = 5.0


class RaySession:
    """The Ray that there is, or one that is started on this machine and ends with it.

    Args:
        num_cpus: that the run needs.

    Raises:
        EngineError: if there should be a cluster but it does not answer.
    """

    def __init__(self, num_cpus: int) -> None:
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._is_ours = not ray.is_initialized()
        if not self._is_ours:
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Collectors are the work to be done here, not something for when there is none.
        os.environ.setdefault("RAY_worker_niceness", "0")
        # Agents would write their titles over the environment, and lose the mark.
        os.environ.setdefault("SPT_NOENV", "1")
        mark = f"INFO_REPLAY_RAY_{uuid.uuid4().hex}"
        # Before Ray: this process may be killed while Ray starts.
        self._watchdog = _start_watchdog(mark)
        handler = signal.getsignal(signal.SIGTERM)
        try:
            _init_ray(num_cpus, mark)
        except BaseException:
            self.close()
            raise
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray's ends the process at once
        if ray.cluster_resources().get("CPU", 0) < num_cpus:
            _logger.warning(
                "Ray has fewer than %d CPUs: some collectors have to wait for one",
                num_cpus,
            )

    def announce(self, text: str) -> None:
        """Say what is told if this process ends from now on.

        Args:
            text: one line.
        """
        if self._watchdog is not None and self._watchdog.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # somebody killed it
                self._watchdog.stdin.write(f"{text}\n".encode())
                self._watchdog.stdin.flush()

    def close(self) -> None:
        """Leave Ray; one that was started here ends, with all of its processes."""
        if self._is_ours:
            self._is_ours = False
            ray.shutdown()
        self.announce("")
        if self._watchdog is not None and self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
            self._watchdog.wait()
            self._watchdog = None


def _start_watchdog(mark: str) -> subprocess.Popen[bytes]:
    """Start what looks after this process from outside.

    Args:
        mark: an environment variable that processes have that end with this one.
    """
    return subprocess.Popen(
        [sys.executable, "-I", ray_watchdog.__file__, mark],
        stdin=subprocess.PIPE,  # closes with this process, however that ends
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not meant for it
    )


def _init_ray(num_cpus: int, mark: str) -> None:
    """Join the cluster that there is, or start a Ray.

    Args:
        num_cpus: of a Ray that is started, at least.
        mark: an environment variable for all processes of a Ray that is started.

    Raises:
        EngineError: if there should be a cluster but it does not answer.
    """
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    os.environ[mark] = "1"
    # Not address="auto": that would join the Ray of another run on this machine,
    # which ends with that run.
    try:
        ray.init(
            num_cpus=max(num_cpus, os.cpu_count() or 1),
            include_dashboard=False,
            **quiet,
        )
    except ValueError:  # there is a cluster, and its CPUs are not ours to tell
        try:
            ray.init(**quiet)
        except ConnectionError as error:
            raise EngineError(f"Ray does not answer: {last_line(error)}") from error
    finally:
        del os.environ[mark]  # not for other processes that are started here


def check_ray() -> None:
    """Look whether Ray can go on.

    Raises:
        EngineError: if its head node or the learner's node is dead.
    """
    context = ray.get_runtime_context()
    _reach(context.gcs_address, "head node")
    here = context.get_node_id()
    for node in ray.nodes():
        if node["NodeID"] == here:
            address = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
            if not node["Alive"]:
                raise EngineError(f"Ray's node of the learner, {address}, is dead")
            _reach(address, "node of the learner")


def _reach(address: str, name: str) -> None:
    host, _, port = address.rpartition(":")
    place = host.strip("[]"), int(port)
    try:
        socket.create_connection(place, _CONNECT_SECONDS).close()
    except OSError as error:
        raise EngineError(
            f"Ray's {name}, {address}, does not answer ({error.strerror or error})"
        ) from error


def fetch(reference: Any) -> Any:
    """The value of a reference, unless Ray dies over it.

    Args:
        reference: of Ray.

    Raises:
        EngineError: if Ray is dead, or the answer takes ten minutes.
        RayActorError: if the actor died that was asked.
        RayTaskError: what it raised in place of an answer.
    """
    deadline = time.monotonic() + _LONGEST_SECONDS
    try:
        while not ray.wait([reference], timeout=_PATIENCE_SECONDS)[0]:
            check_ray()
            if time.monotonic() > deadline:
                raise EngineError(
                    f"no answer on Ray for {_LONGEST_SECONDS:.0f} seconds"
                )
        return ray.get(reference)
    except (RayActorError, RayTaskError):
        raise
    except (RayError, ConnectionError) as error:
        check_ray()
        raise EngineError(f"Ray failed: {last_line(error)}") from error
