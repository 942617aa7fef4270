"""Old place of :mod:`agents.supervised.derpp`; imports from here keep working."""

from agents.supervised.derpp import DERPlusPlusAgent, DivergenceError

__all__ = ["DERPlusPlusAgent", "DivergenceError"]
