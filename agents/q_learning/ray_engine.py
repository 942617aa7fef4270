"""Q-learning on Ray: collectors and memory in actors, the learner here.

Each collector is asked for a batch at a time. It writes the batch to the memory itself
and reports how many frames that were; then it is asked for the next one, with the
latest weights, and the learner makes the gradient steps that go with the batch. So
nobody runs ahead: a collector waits with at most one finished batch, and the learner
waits for the next report.

TorchRL's ``RayCollector`` is not used: its iteration ends with the death of a remote
collector, and its weights go through a process group of a fixed number of members.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from agents.q_learning.agent import DQNAgent
from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import current_tasks, make_torchrl_env
from agents.q_learning.errors import EngineError
from agents.q_learning.ray_collector import CollectorPlace, Report
from agents.q_learning.ray_memory import (
    MOST_DEATHS,
    RayMemory,
    is_death,
    last_line,
)

__all__ = ["RayEngine", "connect"]

_logger = logging.getLogger(__name__)
#: How long to wait for news before Ctrl-C is looked for.
_PATIENCE_SECONDS = 1.0
#: How long the first collectors wait for the last ones.
_START_SECONDS = 60.0


def connect(num_cpus: int) -> bool:
    """Use the Ray that there is, or start one on this machine.

    Args:
        num_cpus: that the run needs.

    Returns:
        Whether this process has connected or started it and has to shut it down.

    Raises:
        EngineError: if there should be a cluster but it does not answer.
    """
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Collectors are the work to be done here, not something for when there is none.
    os.environ.setdefault("RAY_worker_niceness", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    # Not address="auto": that would join the Ray of another run on this machine, which
    # ends with that run.
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
    if ray.cluster_resources().get("CPU", 0) < num_cpus:
        _logger.warning(
            "Ray has fewer than %d CPUs: some collectors have to wait for one", num_cpus
        )
    return True


class RayEngine:
    """A learner in this process, its memory and its collectors in actors of Ray.

    A collector that dies is replaced. If the memory's actor dies, a new one goes on
    from the last checkpoint. Any other error ends the run.

    Args:
        config: the settings.
        folder: of the run; the memory is saved to ``memory`` in it. Without one, to a
            temporary folder.

    Attributes:
        agent: the learner.
        memory: its replay buffer.
        places: the collectors.
        collected: frames so far.
    """

    def __init__(self, config: DQNConfig, folder: Path | None = None) -> None:
        self.config = config
        self._temporary = None if folder else tempfile.TemporaryDirectory()
        root = folder or Path(self._temporary.name)  # type: ignore[union-attr]
        self.memory = RayMemory(config, root / "memory")
        copies = config.collectors * config.num_envs
        env = make_torchrl_env(config, copies=copies)  # for its shapes only
        self.agent = DQNAgent(config, env, memory=lambda *_: self.memory)
        self.places = [
            CollectorPlace(config, index, current_tasks(env))
            for index in range(config.collectors)
        ]
        self.collected = 0
        self._owns_ray = False
        self._pending: dict[Any, CollectorPlace] = {}
        self._weights: Any = None

    # -- what an experiment asks for --------------------------------------------------

    def train(self, num_frames: int) -> Iterator[int]:
        """Collect and learn.

        Args:
            num_frames: when to stop.

        Yields:
            Frames so far: after each batch, and now and then while there is none.

        Raises:
            EngineError: if something failed that a new actor would not mend.
        """
        self._owns_ray = connect(self.config.collectors)
        self._mend(self.memory.start)
        self._send_weights()
        for place in self.places:
            place.start()
        yield from self._wait_for_collectors()
        next_save = time.monotonic() + self.config.checkpoint_every
        for place in self.places:
            self._request(place, num_frames)
        while self.collected < num_frames:
            ready, _ = ray.wait([*self._pending], timeout=_PATIENCE_SECONDS)
            for future in ready:
                place = self._pending.pop(future)
                report = self._result(place, future)
                if report is not None:
                    place.heard(report)
                    self.collected += report.frames
                self._request(place, num_frames)
                if report is not None and self.collected >= self.config.learning_starts:
                    self._mend(self._learn)
            if time.monotonic() >= next_save:
                self._mend(self.memory.save)
                next_save = time.monotonic() + self.config.checkpoint_every
            yield self.collected

    def current_tasks(self) -> list[int]:
        """The task that each copy of a sequence was in when last heard of."""
        return [task for place in self.places for task in place.tasks]

    def ask_memory(self, question: Callable[..., Any], *details: Any) -> Any:
        """What a function says of the replay buffer, called in its actor.

        Args:
            question: called with the buffer and the details.
            *details: whatever else it needs.

        Returns:
            What it returns.
        """
        try:
            try:
                return self.memory.ask(question, *details)
            except RayActorError:
                self.memory.revive()
                return self.memory.ask(question, *details)
        except RayTaskError as error:
            raise EngineError(f"the memory failed: {last_line(error)}") from error

    def close(self) -> None:
        """End all actors, and Ray if it was started or connected to here."""
        self._pending.clear()
        if ray.is_initialized():
            for place in self.places:
                place.close()
            self.memory.close()
        if self._owns_ray:
            self._owns_ray = False
            ray.shutdown()
        if self._temporary is not None:
            self._temporary.cleanup()

    # -- one step after the other -----------------------------------------------------

    def _wait_for_collectors(self) -> Iterator[int]:
        """Let all begin together, unless somebody takes too long."""
        starting = [place.actor.__ray_ready__.remote() for place in self.places]
        deadline = time.monotonic() + _START_SECONDS
        while starting and time.monotonic() < deadline:
            _, starting = ray.wait(
                starting, num_returns=len(starting), timeout=_PATIENCE_SECONDS
            )
            yield self.collected

    def _request(self, place: CollectorPlace, num_frames: int) -> None:
        """Ask for a batch, unless those that are on their way are enough."""
        coming = len(self._pending) * self.config.frames_per_batch
        if self.collected + coming < num_frames:
            future = place.actor.collect.remote(
                self._weights, self.collected, self.memory.client
            )
            self._pending[future] = place

    def _result(self, place: CollectorPlace, future: Any) -> Report | None:
        """What a collector reports, ``None`` if somebody died over it."""
        try:
            report: Report = ray.get(future)
        except RayTaskError as error:
            if not isinstance(error.cause, RayActorError):
                raise EngineError(
                    f"collector {place.index} failed: {last_line(error)}"
                ) from error
            self.memory.revive()  # the collector is well but could not write
        except RayActorError as error:
            self._replace(place, error)
        else:
            return report
        return None

    def _replace(self, place: CollectorPlace, error: RayActorError) -> None:
        place.deaths += 1
        if not is_death(error) or place.deaths > MOST_DEATHS:
            often = f" {place.deaths} times in a row" * (place.deaths > 1)
            raise EngineError(
                f"collector {place.index} died{often}: {last_line(error)}"
            ) from error
        place.close()  # one that is out of reach only must not go on
        place.start()
        _logger.warning(
            "collector %d died after %d frames; a new one takes its place",
            place.index,
            place.frames,
        )

    def _learn(self) -> None:
        """The gradient steps that go with one batch."""
        if self.memory.holds_frames:
            self.agent.learn(self.config.updates_per_batch)
            self.agent.target_updater.step()
            self._send_weights()

    def _send_weights(self) -> None:
        """Put the weights where the next requests find them."""
        state = self.agent.loss.state_dict()
        self._weights = ray.put({name: each.cpu() for name, each in state.items()})

    def _mend(self, action: Callable[[], None]) -> None:
        """Do what needs the memory; if its actor is dead, start a new one instead."""
        try:
            action()
        except RayTaskError as error:
            raise EngineError(f"the memory failed: {last_line(error)}") from error
        except RayActorError:
            self.memory.revive()
