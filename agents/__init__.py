"""Agents that learn from a stream and a replay memory, built next."""
