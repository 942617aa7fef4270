"""Alg. 1 (InfoRS) as the paper writes it: one item after the other.

``A^-1`` and ``b`` are kept with the Sherman-Morrison formula (Sec. 2.3), the moments
with Welford's, and an item is stored as soon as it is accepted. The benchmark measures
the batch algorithm against it.
"""

from __future__ import annotations

import math

import torch
from tensordict import TensorDict
from torch import Tensor


class PointByPointInfoRS:
    """InfoRS with MIC at eta = 1 and gamma = 0, for class labels."""

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
        self.num_classes = num_classes
        self.width = feature_dim + 1
        self.inverse = torch.eye(self.width, dtype=torch.float64) / jitter
        self.b = torch.zeros(self.width, num_classes, dtype=torch.float64)
        self.storage: TensorDict | None = None
        self.size = self.reservoir_count = self.seen = 0
        self.mean = self.squares = 0.0
        self.generator = torch.Generator().manual_seed(seed)

    def extend(self, items: TensorDict) -> None:
        """Offer items one by one."""
        if self.storage is None:
            self.storage = items[:1].expand(self.capacity).clone()
        for item in items:
            self._offer(item)

    def _offer(self, item: TensorDict) -> None:
        h, y = self._row(item)
        score = self._mic(h, y)
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
        distance = score - self.mean
        self.mean += distance / self.seen
        self.squares += distance * (score - self.mean)

    def _row(self, item: TensorDict) -> tuple[Tensor, Tensor]:
        feature = item["feature"].double()
        h = torch.cat([feature, feature.new_ones(1)]) / math.sqrt(self.width)
        y = torch.nn.functional.one_hot(item["target"], self.num_classes).double()
        return h, y

    def _mic(self, h: Tensor, y: Tensor) -> float:
        direction = self.inverse @ h
        leverage = float(h @ direction)
        error = float((y - direction @ self.b).square().sum())
        before, after = 1 + leverage, 1 + 2 * leverage
        variance, outputs = self.noise**2, self.num_classes
        surprise = error / (2 * variance * before) + outputs / 2 * math.log(
            2 * math.pi * variance * before
        )
        learnability = -error / (
            2 * variance * before * after
        ) - outputs / 2 * math.log(2 * math.pi * variance * after / before)
        return surprise + learnability

    def _store(self, slot: int, item: TensorDict, h: Tensor, y: Tensor) -> None:
        assert self.storage is not None
        if slot < self.size:
            self._update(*self._row(self.storage[slot]), -1.0)
        else:
            self.size += 1
        self._update(h, y, 1.0)
        self.storage[slot] = item

    def _update(self, h: Tensor, y: Tensor, sign: float) -> None:
        direction = self.inverse @ h
        self.inverse -= torch.outer(direction, direction) * (
            sign / (1 + sign * float(h @ direction))
        )
        self.b += sign * torch.outer(h, y)
