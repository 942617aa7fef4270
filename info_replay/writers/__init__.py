"""Selection policies as TorchRL writers, one per file.

========================================  ==========================================
:class:`ReservoirWriter`                  RS: a uniform sample of the stream
:class:`WeightedReservoirWriter`          WRS: in proportion to weights
:class:`ClassBalancedReservoirWriter`     CBRS: equal shares for all classes
:class:`GradientGreedyWriter`             GSS: gradients that disagree
:class:`FeatureClusterWriter`             FSS-Clust: features that are far apart
:class:`CoresetWriter`                    coresets of the stream
:class:`InfoReservoirWriter`              InfoRS: RS among informative items
:class:`InfoGreedyWriter`                 InfoGS, and InfoGS-RS with a reservoir
:class:`BalancedInfoReservoirWriter`      equal groups of informative items
:class:`HybridWriter`                     a ring of recent items before any of these
========================================  ==========================================

All of them work alone, ``TensorDictReplayBuffer(storage=..., writer=...)``; what they
share is :class:`SelectionWriter`.
"""

from info_replay.decision import Decision
from info_replay.writers.auto import auto_writer
from info_replay.writers.balanced_info_reservoir import BalancedInfoReservoirWriter
from info_replay.writers.base import SelectionWriter
from info_replay.writers.class_balanced_reservoir import ClassBalancedReservoirWriter
from info_replay.writers.coreset import CoresetWriter
from info_replay.writers.feature_cluster import FeatureClusterWriter
from info_replay.writers.gradient_greedy import GradientGreedyWriter
from info_replay.writers.hybrid import HybridWriter
from info_replay.writers.info_greedy import InfoGreedyWriter
from info_replay.writers.info_reservoir import InfoReservoirWriter
from info_replay.writers.reservoir import ReservoirWriter
from info_replay.writers.task_timing import TaskTimingWriter
from info_replay.writers.weighted_reservoir import (
    OutputHessian,
    WeightedReservoirWriter,
)

__all__ = [
    "BalancedInfoReservoirWriter",
    "ClassBalancedReservoirWriter",
    "CoresetWriter",
    "Decision",
    "FeatureClusterWriter",
    "GradientGreedyWriter",
    "HybridWriter",
    "InfoGreedyWriter",
    "InfoReservoirWriter",
    "OutputHessian",
    "ReservoirWriter",
    "SelectionWriter",
    "TaskTimingWriter",
    "WeightedReservoirWriter",
    "auto_writer",
]
