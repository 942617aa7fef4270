"""Asymmetric experience replay, ER-ACE: :class:`AsymmetricReplay`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torchrl.data import TensorDictReplayBuffer

from agents.supervised.networks import FeatureNetwork
from agents.supervised.replay_learner import ReplayLearner

__all__ = ["AsymmetricReplay"]


class AsymmetricReplay(ReplayLearner):
    r"""Experience replay with asymmetric cross-entropy (Caccia et al., 2022).

    The loss of the batch ``B`` compares only the classes that are in it; that of the
    draw ``M`` from the memory compares all:

    .. math::
        \ell(B; \text{classes of } B) + \ell(M; \text{all classes})

    So new samples do not push down the outputs of classes that are not there now, which
    is what plain experience replay forgets by. Then the features of the draw are
    written back, and the batch is offered to the memory. Like the authors' code, it
    compares draws with classes that are yet to come, too; it is not told of tasks and
    replays from the first step on.

    Args:
        network: features and outputs.
        memory: with any writer of TorchRL's or ours; ``None`` for no replay.
        num_classes: number of classes.
        **options: of :class:`~agents.supervised.replay_learner.ReplayLearner`.

    Raises:
        ValueError: if there are no classes.

    Example:
        >>> from agents.supervised.networks import make_network
        >>> from info_replay import make_replay_buffer
        >>> network = make_network("fc", (1, 8, 8), 10, seed=0)
        >>> memory = make_replay_buffer("infors", 50, num_classes=10)
        >>> learner = AsymmetricReplay(network, memory, num_classes=10)
        >>> images = np.zeros((16, 1, 8, 8), dtype=np.uint8)
        >>> learner.act(images).shape
        (16,)
        >>> learner.learn(images, np.arange(16) % 2)
        >>> len(memory)
        16
    """

    def __init__(
        self,
        network: FeatureNetwork,
        memory: TensorDictReplayBuffer | None,
        *,
        num_classes: int | None,
        **options: Any,
    ) -> None:
        if num_classes is None:
            raise ValueError(
                "learner 'er-ace' needs classes, got num_classes=None (regression); "
                "use 'er' or 'der++'"
            )
        super().__init__(network, memory, num_classes=num_classes, **options)

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
        outputs = _only_present(batch.outputs, batch.targets)
        loss = self.loss(outputs, batch.targets)

        draws = self.draw()
        self.forward(*draws)
        for draw in draws:
            loss = loss + self.loss(draw.outputs, draw.targets)

        self.step(loss)
        self.write_back(draws)
        self.offer(batch)


def _only_present(outputs: Tensor, labels: Tensor) -> Tensor:
    """Outputs that leave no probability to classes that are not among the labels."""
    absent = outputs.new_ones(outputs.shape[1]).index_fill(0, labels, 0.0).bool()
    return outputs.masked_fill(absent, float("-inf"))
