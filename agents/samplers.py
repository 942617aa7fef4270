"""Old place of :mod:`agents.supervised.samplers`; imports from here keep working."""

from agents.supervised.samplers import SubsetSampler

__all__ = ["SubsetSampler"]
