"""In which processes a run of Q-learning happens: :func:`make_engine`.

An experiment asks its engine to collect and learn, and evaluates in between; it need
not know where that happens.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from agents.q_learning.agent import DQNAgent
from agents.q_learning.config import DQNConfig
from agents.q_learning.local_engine import LocalEngine
from agents.q_learning.memory import make_memory

__all__ = ["Engine", "make_engine"]


class Engine(Protocol):
    """What an experiment needs of an engine.

    Attributes:
        agent: the learner.
    """

    agent: DQNAgent

    @property
    def frames(self) -> int:
        """Frames so far."""

    def train(self, num_frames: int) -> Iterator[int]:
        """Collect and learn, yielding the frames so far every now and then."""

    def current_tasks(self) -> list[int]:
        """The task that each copy of a sequence is in."""

    def ask_memory(self, question: Callable[..., Any], *details: Any) -> Any:
        """What a function says of the replay buffer, called where the buffer is."""

    def state_dict(self) -> dict[str, Any]:
        """Plain values and tensors, for :meth:`load_state_dict`."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`; before :meth:`train`.

        Raises:
            ValueError: if it does not fit; the engine is not to be used then.
        """

    def back_up(self) -> None:
        """Keep what a part in another process goes on from if it dies."""

    def announce(self, text: str) -> None:
        """Say what is to be told if something outside ends this process."""

    def close(self) -> None:
        """Give back what the engine holds."""


def make_engine(config: DQNConfig, memory: Callable[..., Any] = make_memory) -> Engine:
    """The engine of the settings.

    Args:
        config: the settings.
        memory: makes the replay buffer.

    Raises:
        ValueError: if the settings ask for Ray and it is not installed, or for a memory
            of one's own on Ray.
    """
    if config.engine == "local":
        return LocalEngine(config, memory)
    if importlib.util.find_spec("ray") is None:
        raise ValueError("engine 'ray' needs Ray: pip install 'info-replay[ray]'")
    if memory is not make_memory:
        raise ValueError("engine 'ray' makes its memory itself, from the settings")
    # Only here, so that nobody else needs Ray.
    from agents.q_learning.ray_engine import RayEngine

    return RayEngine(config)
