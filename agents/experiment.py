"""Old place of :mod:`agents.supervised.experiment`; imports from here keep working."""

from agents.supervised.experiment import Experiment

__all__ = ["Experiment"]
