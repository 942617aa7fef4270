"""Q-learning in one process: :class:`LocalEngine`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agents.q_learning.agent import DQNAgent
from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import current_tasks, make_torchrl_env
from agents.q_learning.memory import make_memory

__all__ = ["LocalEngine"]


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
