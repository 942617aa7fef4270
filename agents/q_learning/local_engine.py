"""Q-learning in one process: :class:`LocalEngine`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agents.q_learning.agent import DQNAgent
from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import current_tasks, make_torchrl_env
from agents.q_learning.memory import make_memory
from agents.q_learning.memory_state import check_items, memory_state, restore_memory
from agents.runs.saved_states import check_parts, check_randomness

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
        self._own_memory = memory is not make_memory

    @property
    def frames(self) -> int:
        """Frames so far."""
        return self.agent.frames

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
            ValueError: if it does not fit. Only the environment, which may turn out not
                to repeat itself, and the memory may be other than before then.
        """
        agent = self.agent
        self._check_state(state_dict)
        restore_memory(agent.memory, state_dict["memory"])
        offered, frames = agent.memory.write_count, state_dict["agent"]["frames"]
        if offered != frames and not self._own_memory:
            raise ValueError(
                f"the memory must have seen {frames} frames, not {offered}"
            )
        with agent.randomness.inside():
            agent.rollout.load_state_dict(state_dict["rollout"])
        agent.load_state_dict(state_dict["agent"])
        agent.randomness.load_state_dict(state_dict["randomness"])

    def _check_state(self, state: Any) -> None:
        """Refuse what is not the state of such an engine; the memory checks its own."""
        agent, config = self.agent, self.agent.config
        parts = ("agent", "memory", "rollout", "randomness")
        check_parts(state, *parts, name="the state of an engine")
        agent.check_state(state["agent"])
        check_randomness(agent.randomness, state["randomness"])
        with agent.randomness.inside():
            agent.rollout.check_state(state["rollout"])
        if not self._own_memory:
            check_items(state["memory"], agent.fake_frames())
        frames, played = state["agent"]["frames"], state["rollout"]["actions"].numel()
        if frames != played or frames % config.frames_per_batch:
            raise ValueError(f"frames must be those of {played} actions, got {frames}")
        learned = bool(state["agent"]["optimizer"]["state"])
        if learned != (frames >= max(1, config.learning_starts)):
            raise ValueError(
                f"learning starts after {config.learning_starts} frames, but the "
                f"optimizer's state is not that of frame {frames}"
            )

    def back_up(self) -> None:
        """Nothing is in another process."""

    def announce(self, text: str) -> None:
        """Nothing outside ends this process."""

    def close(self) -> None:
        """Nothing to give back."""
