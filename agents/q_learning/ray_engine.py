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

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from agents.q_learning.agent import DQNAgent
from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import current_tasks, make_torchrl_env
from agents.q_learning.memory_state import check_items
from agents.q_learning.ray_collector import CollectorPlace, Report
from agents.q_learning.ray_memory import (
    MOST_DEATHS,
    RayMemory,
    is_death,
)
from agents.runs.errors import EngineError, last_line
from agents.runs.ray_session import RaySession, check_ray
from agents.runs.saved_states import check_parts, check_whole
from info_replay.validation import told

__all__ = ["RayEngine"]

_logger = logging.getLogger(__name__)
#: How long to wait for news before Ctrl-C is looked for.
_PATIENCE_SECONDS = 1.0
#: How often Ray is looked after.
_CHECK_SECONDS = 2.0
#: How long the first collectors wait for the last ones.
_START_SECONDS = 60.0


class RayEngine:
    """A learner in this process, its memory and its collectors in actors of Ray.

    A collector that dies is replaced. If the memory's actor dies, a new one goes on
    from the last :meth:`state_dict`. Any other error ends the run.

    Args:
        config: the settings.

    Attributes:
        agent: the learner.
        memory: its replay buffer.
        places: the collectors.
        frames: frames so far.
    """

    def __init__(self, config: DQNConfig) -> None:
        self.config = config
        self.memory = RayMemory(config)
        copies = config.collectors * config.num_envs
        env = make_torchrl_env(config, copies=copies)  # for its shapes only
        self.agent = DQNAgent(config, env, memory=lambda *_: self.memory)
        self.places = [
            CollectorPlace(config, index, current_tasks(env))
            for index in range(config.collectors)
        ]
        self.frames = 0
        self._session: RaySession | None = None
        self._announced = ""
        self._pending: dict[Any, CollectorPlace] = {}
        self._weights: Any = None
        self._next_check = 0.0

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
        self._session = RaySession(self.config.collectors)
        self._session.announce(self._announced)
        try:
            yield from self._train(num_frames)
        except (RayError, ConnectionError) as error:
            check_ray()
            raise EngineError(f"Ray failed: {last_line(error)}") from error

    def _train(self, num_frames: int) -> Iterator[int]:
        self._mend(self.memory.start)
        self._send_weights()
        for place in self.places:
            place.start()
        yield from self._wait_for_collectors()
        for place in self.places:
            self._request(place, num_frames)
        while self.frames < num_frames:
            ready, _ = self._wait([*self._pending])
            for future in ready:
                place = self._pending.pop(future)
                report = self._result(place, future)
                if report is not None:
                    place.heard(report)
                    self.frames += report.frames
                self._request(place, num_frames)
                if report is not None and self.frames >= self.config.learning_starts:
                    self._mend(self._learn)
            yield self.frames

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
        return self._retry(functools.partial(self.memory.ask, question, *details))

    def state_dict(self) -> dict[str, Any]:
        """What a run goes on from, also with a new learner.

        Batches that were written but not reported yet are in the memory only.
        """
        return {
            "agent": self.agent.state_dict(),
            "memory": self._retry(self.memory.state_dict),
            "collected": self.frames,
            "places": [place.state_dict() for place in self.places],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`, with new collectors.

        Raises:
            ValueError: if it does not fit; nothing is changed then.
        """
        self._check_state(state_dict)
        self.memory.load_state_dict(state_dict["memory"])
        self.agent.load_state_dict(state_dict["agent"])
        self.frames = state_dict["collected"]
        for place, saved in zip(self.places, state_dict["places"], strict=True):
            place.load_state_dict(saved)

    def _check_state(self, state: Any) -> None:
        """Refuse what is not the state of such an engine; the memory checks its own."""
        parts = ("agent", "memory", "collected", "places")
        check_parts(state, *parts, name="the state of an engine")
        self.agent.check_state(state["agent"])
        check_items(state["memory"], self.agent.fake_frames())
        places = state["places"]
        if not isinstance(places, list) or len(places) != len(self.places):
            raise ValueError(
                f"expected {len(self.places)} collectors, got {told(places)}"
            )
        for place, saved in zip(self.places, places, strict=True):
            place.check_state(saved)
        check_whole(state["collected"], "frames")
        total = sum(place["frames"] for place in places)
        if state["collected"] != total or state["agent"]["frames"]:
            raise ValueError(
                f"frames must be the {total} of all collectors, got "
                f"{state['collected']}"
            )

    def back_up(self) -> None:
        """Keep what a new memory goes on from."""
        self._retry(self.memory.state_dict)

    def announce(self, text: str) -> None:
        """Say what is to be told if Ray ends this process.

        Args:
            text: one line.
        """
        self._announced = text
        if self._session is not None:
            self._session.announce(text)

    def close(self) -> None:
        """End all actors, and Ray if it was started or connected to here."""
        self._pending.clear()
        if ray.is_initialized():
            with contextlib.suppress(EngineError, RayError):
                check_ray()  # a dead one would be waited for
                for place in self.places:
                    place.close()
                self.memory.close()
        if self._session is not None:
            self._session.close()
            self._session = None

    # -- one step after the other -----------------------------------------------------

    def _wait_for_collectors(self) -> Iterator[int]:
        """Let all begin together, unless somebody takes too long."""
        starting = [place.actor.__ray_ready__.remote() for place in self.places]
        deadline = time.monotonic() + _START_SECONDS
        while starting and time.monotonic() < deadline:
            _, starting = self._wait(starting, len(starting))
            yield self.frames

    def _wait(self, futures: list[Any], count: int = 1) -> tuple[list[Any], list[Any]]:
        """Wait for some of them for a while, and look after Ray every now and then."""
        found = ray.wait(futures, num_returns=count, timeout=_PATIENCE_SECONDS)
        if time.monotonic() > self._next_check:
            check_ray()
            self._next_check = time.monotonic() + _CHECK_SECONDS
        return found

    def _request(self, place: CollectorPlace, num_frames: int) -> None:
        """Ask for a batch, unless those that are on their way are enough."""
        coming = len(self._pending) * self.config.frames_per_batch
        if self.frames + coming < num_frames:
            future = place.actor.collect.remote(
                self._weights, self.frames, self.memory.client
            )
            self._pending[future] = place

    def _result(self, place: CollectorPlace, future: Any) -> Report | None:
        """What a collector reports, ``None`` if somebody died over it."""
        try:
            report: Report = ray.get(future)
        except RayTaskError as error:
            if not isinstance(error.cause, RayActorError):
                self.agent.check_divergence(error)
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
        check_ray()  # a new collector would wait for ever
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
            with self.agent.noticing_divergence():
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

    def _retry(self, action: Callable[[], Any]) -> Any:
        """What needs the memory and gives a result; if it is dead, from a new one."""
        try:
            try:
                return action()
            except RayActorError:
                self.memory.revive()
                return action()
        except RayTaskError as error:
            raise EngineError(f"the memory failed: {last_line(error)}") from error
