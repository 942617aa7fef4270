"""Where the parts of a run live: :class:`LocalEngine`, or Ray's.

An experiment asks its engine to collect and learn, and evaluates in between; it need
not know in which processes that happens.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from agents.dqn import DQNAgent
from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import current_tasks, make_torchrl_env
from agents.q_learning.memory import make_memory

__all__ = ["Engine", "EngineError", "LocalEngine", "make_engine"]


class EngineError(RuntimeError):
    """Something in another process failed in a way that a new one would not mend."""


class Engine(Protocol):
    """What an experiment needs of an engine."""

    #: The learner.
    agent: DQNAgent

    def train(self, num_frames: int) -> Iterator[int]:
        """Collect and learn, yielding the frames so far every now and then."""

    def current_tasks(self) -> list[int]:
        """The task that each copy of a sequence is in."""

    def ask_memory(self, question: Callable[..., Any], *details: Any) -> Any:
        """What a function says of the replay buffer, called where the buffer is."""

    def close(self) -> None:
        """Give back what the engine holds."""


class LocalEngine:
    """Everything in this process.

    Args:
        config: the settings.
        memory: makes the replay buffer.
    """

    def __init__(
        self, config: DQNConfig, memory: Callable[..., Any] = make_memory
    ) -> None:
        self._env = make_torchrl_env(config)
        self._env.set_seed(config.seed)
        self.agent = DQNAgent(config, self._env, memory)

    def train(self, num_frames: int) -> Iterator[int]:
        """Collect and learn; see :meth:`DQNAgent.train`."""
        return self.agent.train(num_frames)

    def current_tasks(self) -> list[int]:
        """The task that each copy of a sequence is in."""
        return current_tasks(self._env)

    def ask_memory(self, question: Callable[..., Any], *details: Any) -> Any:
        """What a function says of the replay buffer.

        Args:
            question: called with the buffer and the details.
            *details: whatever else it needs.

        Returns:
            What it returns.
        """
        return question(self.agent.memory, *details)

    def close(self) -> None:
        """Nothing to give back."""


def make_engine(
    config: DQNConfig,
    folder: Path | None = None,
    memory: Callable[..., Any] = make_memory,
) -> Engine:
    """The engine of the settings.

    Args:
        config: the settings.
        folder: of the run, for what an engine saves; ``None`` to keep nothing.
        memory: makes the replay buffer.

    Raises:
        ValueError: if the settings ask for Ray and it is not there, or for a memory of
            one's own on Ray.
    """
    if config.engine == "local":
        return LocalEngine(config, memory)
    if importlib.util.find_spec("ray") is None:
        raise ValueError("engine 'ray' needs Ray: pip install 'info-replay[ray]'")
    if memory is not make_memory:
        raise ValueError("engine 'ray' makes its memory itself, from the settings")
    # Only here, so that nobody else needs Ray.
    from agents.q_learning.ray_engine import RayEngine

    return RayEngine(config, folder)
