"""Weighted reservoir sampling: items are kept in proportion to a weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.decision import Decision, keep_last
from info_replay.registry import register_policy
from info_replay.transfer import to_host
from info_replay.writers.base import SelectionWriter

__all__ = ["OutputHessian", "WeightedReservoirWriter"]


@dataclass(frozen=True)
class OutputHessian:
    r"""The total output-space Hessian of a prediction, ``1 - sum_k p_k^2`` (Sec. 5).

    It is small where the prediction is confident.

    Args:
        logits_key: entry that holds the logits, shape ``(n, K)``.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> logits = torch.tensor([[0.0, 0.0], [100.0, 0.0]])
        >>> OutputHessian()(TensorDict({"logits": logits}, batch_size=[2]))
        tensor([0.5000, 0.0000], dtype=torch.float64)
    """

    logits_key: NestedKey = "logits"

    def __call__(self, data: TensorDictBase) -> Tensor:
        """Weights ``(n,)`` of a batch."""
        logits = data.get(self.logits_key, None)
        if logits is None:
            raise KeyError(
                f"missing entry {self.logits_key!r}: OutputHessian weighs items by "
                "their logits"
            )
        if logits.ndim != 2 or not logits.is_floating_point():
            raise ValueError(
                f"entry {self.logits_key!r} must hold logits of shape (n, K), got "
                f"{logits.dtype} of shape {tuple(logits.shape)}"
            )
        return 1 - torch.softmax(logits.double(), 1).square().sum(1)


@register_policy("wrs")
class WeightedReservoirWriter(SelectionWriter):
    """Keeps items in proportion to their weights (Appendix, Alg. "Weighted RS").

    An item of weight ``w`` replaces a random slot with probability
    ``M min(w / W, 1 / M)``, ``W`` being the sum of all weights up to and with its own.
    With constant weights this is reservoir sampling.

    Args:
        score: gives the weights ``(n,)`` of a batch, finite and not negative. The
            default is the output-space Hessian of the entry ``"logits"``.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> writer = WeightedReservoirWriter(score=lambda items: items["x"] % 2)
        >>> buffer = TensorDictReplayBuffer(
        ...     storage=LazyTensorStorage(5), writer=writer
        ... )
        >>> items = TensorDict({"x": torch.arange(1000.0)}, batch_size=[1000])
        >>> slots = buffer.extend(items)
        >>> bool((items["x"][5:][slots[5:] >= 0] % 2 == 1).all())
        True
    """

    def __init__(self, score: Callable[[TensorDictBase], Tensor] | None = None) -> None:
        super().__init__()
        self.score = score or OutputHessian()
        self._total = self.number("total_weight")

    @property
    def total_weight(self) -> float:
        """Sum of the weights of all items that were offered."""
        return float(self._total.value)

    def adopt(self, items: TensorDictBase) -> None:
        """Add the weights of items that the storage brought along."""
        self._total.value = np.cumsum(self._weigh(items))[-1]

    def check(self, batch: TensorDictBase) -> None:
        """Refuse weights that are not finite or negative."""
        self._weigh(batch)

    def _weigh(self, data: TensorDictBase) -> NDArray[np.float64]:
        """Weights of a batch, checked."""
        count = len(data)
        weights = to_host(self.score(data))[0].astype(np.float64)
        if weights.shape != (count,):
            raise ValueError(
                f"the score function must give one weight per item, shape ({count},), "
                f"got {weights.shape}"
            )
        wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
        if wrong.size:
            raise ValueError(
                "weights must be finite and not negative, got "
                f"{weights[wrong[0]]} for item {wrong[0]}"
            )
        return weights

    def decide(self, batch: TensorDictBase) -> Decision:
        """Give slots to the items of a batch; see :meth:`SelectionWriter.decide`."""
        count = len(batch)
        weights = self._weigh(batch)
        totals = np.cumsum(np.concatenate([[self.total_weight], weights]))[1:]
        size, capacity = len(self.slots), self.slots.capacity
        shares = np.minimum(
            np.divide(weights, totals, out=np.zeros(count), where=totals > 0),
            1 / capacity,
        )
        draws = self.uniforms(count)[:, 0]
        order = np.arange(count)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            chosen = np.where(shares > 0, draws / shares, capacity)
        chosen = np.minimum(chosen, capacity).astype(np.int64)
        slots = np.where(order < capacity - size, size + order, chosen)
        slots[slots >= capacity] = -1

        def commit() -> None:
            self._total.value = totals[-1]
            self.reservoir_count += count

        return Decision(keep_last(slots), commit)
