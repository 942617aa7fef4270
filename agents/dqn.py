"""Old place of :mod:`agents.q_learning.agent`; imports from here keep working."""

from agents.q_learning.agent import DQNAgent

__all__ = ["DQNAgent"]
