"""Deep Q-learning with a memory that chooses what to keep.

* :mod:`~agents.q_learning.agent`: the learner, :class:`DQNAgent`;
* :mod:`~agents.q_learning.network`: Q-networks that give their hidden features, too;
* :mod:`~agents.q_learning.features`: what the memory looks at, computed for collected
  frames by :class:`TransitionFeatures` and kept fresh by :class:`FeatureDQNLoss`;
* :mod:`~agents.q_learning.config`: the settings, :class:`DQNConfig`;
* :mod:`~agents.q_learning.memory`: the replay buffer of a run, as values and tensors in
  :mod:`~agents.q_learning.memory_state`;
* :mod:`~agents.q_learning.environment`: its environments, played by
  :mod:`~agents.q_learning.rollout`;
* :mod:`~agents.q_learning.evaluation`: the return on every task;
* :mod:`~agents.q_learning.experiment`: a run from its settings to its results;
* :mod:`~agents.q_learning.engine`: in which processes all that happens:
  :mod:`~agents.q_learning.local_engine`, or :mod:`~agents.q_learning.ray_engine` with
  :mod:`~agents.q_learning.ray_collector` and :mod:`~agents.q_learning.ray_memory`;
* :mod:`~agents.q_learning.resuming`: what a run goes on from, checked;
* :mod:`~agents.q_learning.saved_run`: what a run leaves, :func:`load_dqn_run`;
* :mod:`~agents.q_learning.show`: the result as text and pictures.

Network, features and memory are parts of TorchRL's kind and can be
used in its training loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.lazy import lazy_names

if TYPE_CHECKING:
    from agents.q_learning.config import DQNConfig
    from agents.q_learning.features import FeatureDQNLoss, TransitionFeatures
    from agents.q_learning.network import make_q_network
    from agents.q_learning.saved_run import load_dqn_run

__all__ = [
    "DQNConfig",
    "FeatureDQNLoss",
    "TransitionFeatures",
    "load_dqn_run",
    "make_q_network",
]

__getattr__ = lazy_names(
    __name__,
    {
        "DQNConfig": "agents.q_learning.config",
        "FeatureDQNLoss": "agents.q_learning.features",
        "TransitionFeatures": "agents.q_learning.features",
        "load_dqn_run": "agents.q_learning.saved_run",
        "make_q_network": "agents.q_learning.network",
    },
)
