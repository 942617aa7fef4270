"""Experience replay, ER: :class:`ExperienceReplay`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchrl.data import TensorDictReplayBuffer

from agents.supervised.checks import check_weights
from agents.supervised.networks import FeatureNetwork
from agents.supervised.replay_learner import ReplayLearner

__all__ = ["ExperienceReplay"]

_JOINS = ("mean", "sum")


class ExperienceReplay(ReplayLearner):
    r"""Experience replay (Chaudhry et al., 2019): old samples beside new ones.

    For each batch ``B`` it draws ``M`` from the memory and takes one step of gradient
    descent on the mean loss of all samples, :math:`\ell(B \cup M)`, or on the sum of
    two means, :math:`\ell(B) + \beta \, \ell(M)`. Where the memory gives as many
    samples as the batch has, the first is half the second at :math:`\beta = 1`: a step
    half as large. Then the features of the draw are written back, and the batch is
    offered to the memory.

    A network that normalizes over batches sees both as one batch for the joined mean,
    and each on its own for the sum.

    Args:
        network: features and outputs.
        memory: with any writer of TorchRL's or ours; ``None`` for no replay.
        join: ``"mean"`` over all samples, as usual, or ``"sum"`` of the two means.
        beta: weight of the replayed samples in the sum; the mean does not use it.
        **options: of :class:`~agents.supervised.replay_learner.ReplayLearner`.

    Example:
        >>> from agents.supervised.networks import make_network
        >>> from info_replay import make_replay_buffer
        >>> network = make_network("fc", (1, 8, 8), 10, seed=0)
        >>> memory = make_replay_buffer("infors", 50, num_classes=10)
        >>> learner = ExperienceReplay(network, memory, num_classes=10, join="sum")
        >>> images = np.zeros((16, 1, 8, 8), dtype=np.uint8)
        >>> learner.act(images).shape
        (16,)
        >>> learner.learn(images, np.arange(16) % 10)
        >>> len(memory)
        16
    """

    def __init__(
        self,
        network: FeatureNetwork,
        memory: TensorDictReplayBuffer | None,
        *,
        join: str = "mean",
        beta: float = 1.0,
        **options: Any,
    ) -> None:
        if join not in _JOINS:
            raise ValueError(f"join must be 'mean' or 'sum', got {join!r}")
        check_weights(beta=beta)
        super().__init__(network, memory, **options)
        self.join = join
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
        draws = self.draw()

        if self.join == "mean":
            both = [batch, *draws]
            self.forward(*both, as_one=True)
            outputs = torch.cat([part.outputs for part in both])
            loss = self.loss(outputs, torch.cat([part.targets for part in both]))
        else:
            self.forward(batch)
            self.forward(*draws)
            loss = self.loss(batch.outputs, batch.targets)
            for draw in draws:
                loss = loss + self.beta * self.loss(draw.outputs, draw.targets)

        self.step(loss)
        self.write_back(draws)
        self.offer(batch)
