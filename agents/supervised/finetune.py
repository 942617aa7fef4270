"""Learning without replay: :class:`Finetune`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torchrl.data import TensorDictReplayBuffer

from agents.supervised.networks import FeatureNetwork
from agents.supervised.replay_learner import ReplayLearner

__all__ = ["Finetune"]


class Finetune(ReplayLearner):
    r"""Gradient descent on each batch as it comes, the bound from below.

    For each batch ``B`` it takes one step on :math:`\ell(B)` and forgets the batch.

    Args:
        network: features and outputs.
        memory: left alone: nothing is drawn from it or offered to it, and the learner
            has none.
        **options: of :class:`~agents.supervised.replay_learner.ReplayLearner`.

    Example:
        >>> from agents.supervised.networks import make_network
        >>> learner = Finetune(make_network("fc", (1, 8, 8), 10, 0), num_classes=10)
        >>> images = np.zeros((16, 1, 8, 8), dtype=np.uint8)
        >>> learner.act(images).shape
        (16,)
        >>> learner.learn(images, np.arange(16) % 10)
    """

    def __init__(
        self,
        network: FeatureNetwork,
        memory: TensorDictReplayBuffer | None = None,
        **options: Any,
    ) -> None:
        super().__init__(network, None, **options)

    def learn(
        self,
        observation: NDArray[Any],
        target: NDArray[Any],
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        """Learn from a batch; see :class:`Learner`."""
        batch = self.receive(observation, target, mask)
        if batch is None:  # padding alone
            return
        self.forward(batch)
        self.step(self.loss(batch.outputs, batch.targets))
