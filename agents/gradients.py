"""Old place of :mod:`agents.supervised.gradients`; imports from here keep working."""

from agents.supervised.gradients import LossGradients, mean_loss

__all__ = ["LossGradients", "mean_loss"]
