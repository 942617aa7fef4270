"""Q-learning in one process: :class:`LocalEngine`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agents.q_learning.agent import DQNAgent
from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import current_tasks, make_torchrl_env
from agents.q_learning.memory import make_memory
from agents.q_learning.memory_state import memory_state, restore_memory

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

    def state_dict(self) -> dict[str, Any]:
        """Everything that later frames depend on."""
        agent = self.agent
        return {
            "agent": agent.state_dict(),
            "memory": memory_state(agent.memory),
            "rollout": agent.rollout.state_dict(),
            "randomness": agent.randomness.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`; the environment is played up to there.

        Raises:
            KeyError, RuntimeError, TypeError, ValueError: if it does not fit.
        """
        agent = self.agent
        agent.load_state_dict(state_dict["agent"])
        restore_memory(agent.memory, state_dict["memory"])
        with agent.randomness.inside():
            agent.rollout.load_state_dict(state_dict["rollout"])
        agent.randomness.load_state_dict(state_dict["randomness"])

    def announce(self, text: str) -> None:
        """Nothing outside ends this process."""

    def close(self) -> None:
        """Nothing to give back."""
