"""An information-theoretic replay memory for PyTorch, after Sun et al. (ICLR 2022).

* :class:`InfoReservoirReplayBuffer` is a TorchRL replay buffer that keeps what is
  informative; :func:`make_replay_buffer` makes one for any selection policy.
* :mod:`info_replay.writers` holds the policies, each a TorchRL writer.
* :class:`MIC`, :class:`InformationGain` and :class:`EntropyReduction` say what
  "informative" means, :class:`BayesianLinearPosterior` what the memory knows, and
  :class:`RunningMoments` what is usual.
"""

from info_replay.buffers import InfoReservoirReplayBuffer, SelectiveReplayBuffer
from info_replay.decision import keep_last
from info_replay.model.criteria import (
    MIC,
    Criterion,
    EntropyReduction,
    InformationGain,
    learnability,
    surprise,
)
from info_replay.model.moments import RunningMoments
from info_replay.model.posterior import BayesianLinearPosterior
from info_replay.model.standardization import RunningStandardization
from info_replay.policies import make_criterion, make_replay_buffer
from info_replay.registry import register_criterion, register_policy
from info_replay.writers import (
    BalancedInfoReservoirWriter,
    ClassBalancedReservoirWriter,
    CoresetWriter,
    Decision,
    FeatureClusterWriter,
    GradientGreedyWriter,
    HybridWriter,
    InfoGreedyWriter,
    InfoReservoirWriter,
    OutputHessian,
    ReservoirWriter,
    SelectionWriter,
    WeightedReservoirWriter,
)

__all__ = [
    "MIC",
    "BalancedInfoReservoirWriter",
    "BayesianLinearPosterior",
    "ClassBalancedReservoirWriter",
    "CoresetWriter",
    "Criterion",
    "Decision",
    "EntropyReduction",
    "FeatureClusterWriter",
    "GradientGreedyWriter",
    "HybridWriter",
    "InfoGreedyWriter",
    "InfoReservoirReplayBuffer",
    "InfoReservoirWriter",
    "InformationGain",
    "OutputHessian",
    "ReservoirWriter",
    "RunningMoments",
    "RunningStandardization",
    "SelectionWriter",
    "SelectiveReplayBuffer",
    "WeightedReservoirWriter",
    "keep_last",
    "learnability",
    "make_criterion",
    "make_replay_buffer",
    "register_criterion",
    "register_policy",
    "surprise",
]
