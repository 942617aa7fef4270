"""Selection policies as TorchRL writers, one a file.

========================================  ======================================
:class:`ReservoirWriter`                  RS: a uniform sample of the stream
:class:`WeightedReservoirWriter`          WRS: in proportion to weights
:class:`ClassBalancedReservoirWriter`     CBRS: equal shares for all classes
:class:`GradientGreedyWriter`             GSS: gradients that disagree
:class:`InfoReservoirWriter`              InfoRS: RS among informative items
:class:`InfoGreedyWriter`                 InfoGS, and InfoGS-RS with a reservoir
========================================  ======================================

All of them work alone, ``TensorDictReplayBuffer(storage=..., writer=...)``; what they
share is :class:`SelectionWriter`.
"""

from info_replay.writers.base import SelectionWriter
from info_replay.writers.class_balanced_reservoir import ClassBalancedReservoirWriter
from info_replay.writers.gradient_greedy import GradientGreedyWriter
from info_replay.writers.info_greedy import InfoGreedyWriter
from info_replay.writers.info_reservoir import InfoReservoirWriter
from info_replay.writers.information import InformationWriter
from info_replay.writers.reservoir import ReservoirWriter
from info_replay.writers.weighted_reservoir import (
    OutputHessian,
    WeightedReservoirWriter,
)

__all__ = [
    "ClassBalancedReservoirWriter",
    "GradientGreedyWriter",
    "InfoGreedyWriter",
    "InfoReservoirWriter",
    "InformationWriter",
    "OutputHessian",
    "ReservoirWriter",
    "SelectionWriter",
    "WeightedReservoirWriter",
]
