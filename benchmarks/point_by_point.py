"""Alg. 1 (InfoRS) one item after the other, in two versions to measure against.

* :class:`PaperInfoRS` evaluates the equations of the paper as they stand: explicit
  inverses of ``A`` with and without the item, explicit Gaussian densities.
* :class:`ShermanMorrisonInfoRS` is as lean as an item-by-item loop gets: ``A^-1`` is
  kept by rank-one updates (Sec. 2.3 "Efficient computation") and the criterion needs
  two numbers.

Both use MIC at eta = 1 and gamma = 0 and are for class labels.
"""

from __future__ import annotations

import abc
import math

import torch
from tensordict import TensorDict
from torch import Tensor


class PointByPointInfoRS(abc.ABC):
    """The loop of Alg. 1; subclasses say how the criterion is computed."""

    def __init__(
        self,
        capacity: int,
        feature_dim: int,
        num_classes: int,
        noise: float = 0.3,
        jitter: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.capacity = capacity
        self.noise = noise
        self.jitter = jitter
        self.num_classes = num_classes
        self.width = feature_dim + 1
        self.storage: TensorDict | None = None
        self.size = self.reservoir_count = self.seen = 0
        self.mean = 0.0
        self.generator = torch.Generator().manual_seed(seed)

    @abc.abstractmethod
    def mic(self, h: Tensor, y: Tensor) -> float:
        """The criterion of an item given the memory."""

    @abc.abstractmethod
    def update(self, h: Tensor, y: Tensor, sign: float) -> None:
        """Add an item to the statistics, or subtract it."""

    def extend(self, items: TensorDict) -> None:
        """Offer items one by one."""
        if self.storage is None:
            self.storage = items[:1].expand(self.capacity).clone()
        for item in items:
            self._offer(item)

    def _offer(self, item: TensorDict) -> None:
        h, y = self._row(item)
        score = self.mic(h, y)
        if self.size < self.capacity or score >= self.mean:
            self.reservoir_count += 1
            slot = self.size
            if self.size == self.capacity:
                slot = int(
                    torch.randint(self.reservoir_count, (), generator=self.generator)
                )
            if slot < self.capacity:
                self._store(slot, item, h, y)
        self.seen += 1
        self.mean += (score - self.mean) / self.seen

    def _row(self, item: TensorDict) -> tuple[Tensor, Tensor]:
        feature = item["feature"].double()
        h = torch.cat([feature, feature.new_ones(1)]) / math.sqrt(self.width)
        y = torch.nn.functional.one_hot(item["target"], self.num_classes).double()
        return h, y

    def _store(self, slot: int, item: TensorDict, h: Tensor, y: Tensor) -> None:
        assert self.storage is not None
        if slot < self.size:
            self.update(*self._row(self.storage[slot]), -1.0)
        else:
            self.size += 1
        self.update(h, y, 1.0)
        self.storage[slot] = item


class PaperInfoRS(PointByPointInfoRS):
    """The equations of Sec. 2.3 as they stand."""

    def __init__(self, *args: int) -> None:
        super().__init__(*args)
        self.a = self.jitter * torch.eye(self.width, dtype=torch.float64)
        self.b = torch.zeros(self.width, self.num_classes, dtype=torch.float64)

    def mic(self, h: Tensor, y: Tensor) -> float:
        """Log density with the item in the memory minus that without it."""
        before = self._log_density(h, y, self.a, self.b)
        after = self._log_density(
            h, y, self.a + torch.outer(h, h), self.b + torch.outer(h, y)
        )
        return after - before

    def _log_density(self, h: Tensor, y: Tensor, a: Tensor, b: Tensor) -> float:
        inverse = torch.linalg.inv(a)
        mean = h @ inverse @ b
        deviation = self.noise * (h @ inverse @ h + 1).sqrt()
        return float(torch.distributions.Normal(mean, deviation).log_prob(y).sum())

    def update(self, h: Tensor, y: Tensor, sign: float) -> None:
        """Change ``A`` and ``b``."""
        self.a += sign * torch.outer(h, h)
        self.b += sign * torch.outer(h, y)


class ShermanMorrisonInfoRS(PointByPointInfoRS):
    """``A^-1`` by rank-one updates, the criterion from leverage and error."""

    def __init__(self, *args: int) -> None:
        super().__init__(*args)
        self.a = self.jitter * torch.eye(self.width, dtype=torch.float64)
        self.inverse = torch.linalg.inv(self.a)
        self.b = torch.zeros(self.width, self.num_classes, dtype=torch.float64)

    def extend(self, items: TensorDict) -> None:
        """Offer items one by one; rank-one updates alone would lose all digits."""
        self.inverse = torch.linalg.inv(self.a)
        super().extend(items)

    def mic(self, h: Tensor, y: Tensor) -> float:
        """Surprise plus learnability in closed form."""
        direction = self.inverse @ h
        leverage = float(h @ direction)
        error = float((y - direction @ self.b).square().sum())
        before, after = 1 + leverage, 1 + 2 * leverage
        logarithms = 2 * math.log(before) - math.log(after)
        return (
            error * (after - 1) / (2 * self.noise**2 * before * after)
            + self.num_classes / 2 * logarithms
        )

    def update(self, h: Tensor, y: Tensor, sign: float) -> None:
        """Change ``A^-1`` by the Sherman-Morrison formula, and ``b``."""
        direction = self.inverse @ h
        gain = sign / (1 + sign * float(h @ direction))
        self.inverse -= gain * torch.outer(direction, direction)
        self.a += sign * torch.outer(h, h)
        self.b += sign * torch.outer(h, y)
