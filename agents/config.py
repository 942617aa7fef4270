"""Old place of :mod:`agents.supervised.config`; imports from here keep working."""

from agents.supervised.config import PRESETS, ExperimentConfig

__all__ = ["PRESETS", "ExperimentConfig"]
