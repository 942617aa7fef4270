"""Dark experience replay, DER++: :class:`DERPlusPlusAgent`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows
from numpy.typing import NDArray
from torchrl.data import TensorDictReplayBuffer

from agents.supervised.checks import check_weights
from agents.supervised.learner import DivergenceError
from agents.supervised.networks import FeatureNetwork
from agents.supervised.replay_learner import ReplayLearner

__all__ = ["DERPlusPlusAgent", "DivergenceError"]


class DERPlusPlusAgent(ReplayLearner):
    r"""Dark experience replay, which also replays outputs (Sec. 3, Eq. "DER++").

    For each batch it takes one step of gradient descent on

    .. math::
        \ell(B) + \alpha \, \mathrm{MSE}(z(M_1), z_1) + \beta \, \ell(M_2)

    with two independent draws ``M_1``, ``M_2`` from the memory and the outputs ``z_1``
    that were stored with the first. Then the features of both draws are written back
    (of a slot in both, those of the second), and the batch is offered to the memory,
    with outputs and features of this forward pass. It is never told of tasks.

    Args:
        network: features and outputs.
        memory: with any writer of TorchRL's or ours; ``None`` for no replay.
        alpha: weight of the stored outputs; 0 for plain experience replay.
        beta: weight of the stored targets.
        **options: of :class:`~agents.supervised.replay_learner.ReplayLearner`.

    Example:
        >>> from agents.supervised.networks import make_network
        >>> from agents.supervised.samplers import SubsetSampler
        >>> from info_replay import make_replay_buffer
        >>> network = make_network("fc", (1, 8, 8), 10, seed=0)
        >>> memory = make_replay_buffer("infors", 50, num_classes=10,
        ...                             sampler=SubsetSampler())
        >>> agent = DERPlusPlusAgent(network, memory, num_classes=10)
        >>> images = np.zeros((16, 1, 8, 8), dtype=np.uint8)
        >>> agent.act(images).shape
        (16,)
        >>> agent.learn(images, np.arange(16) % 10)
        >>> len(memory)
        16
    """

    def __init__(
        self,
        network: FeatureNetwork,
        memory: TensorDictReplayBuffer | None,
        *,
        alpha: float = 0.3,
        beta: float = 1.0,
        **options: Any,
    ) -> None:
        check_weights(alpha=alpha, beta=beta)
        super().__init__(network, memory, **options)
        self.alpha = alpha
        self.beta = beta

    def learn(
        self,
        observation: NDArray[Any],
        target: NDArray[Any],
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        """Learn from a batch, and offer it to the memory; see :class:`Learner`."""
        batch = self.receive(observation, target, mask)
        if batch is None:  # padding alone
            return
        self.forward(batch)
        loss = self.loss(batch.outputs, batch.targets)

        draws = self.draw(bool(self.alpha) + bool(self.beta))
        if draws:
            self.forward(*draws)
            replay_loss = torch.zeros((), device=self.device)
            if self.alpha:
                first = draws[0]
                distance = F.mse_loss(first.outputs, first.stored("logits"))
                replay_loss = replay_loss + self.alpha * distance
            if self.beta:
                last = draws[-1]
                again = self.loss(last.outputs, last.targets)
                replay_loss = replay_loss + self.beta * again
            loss = loss + replay_loss

        self.step(loss)
        self.write_back(draws)
        self.offer(batch)
