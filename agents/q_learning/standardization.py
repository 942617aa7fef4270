"""Targets of mean 0 and deviation 1: :class:`RunningStandardization`."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import Transform

__all__ = ["RunningStandardization"]


class RunningStandardization(Transform):
    """Standardizes an entry of collected frames by the statistics of all so far.

    For a replay buffer: acts on what is written, not on what is sampled. The statistics
    are saved with the buffer, and belong to the one process that writes. A number that
    has not varied yet becomes 0. A batch with values that are not finite does not
    count; one that the buffer refuses for another reason does.

    Args:
        key: the entry, shape ``(n, K)``.

    Example:
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> buffer = TensorDictReplayBuffer(
        ...     storage=LazyTensorStorage(9), transform=RunningStandardization("target")
        ... )
        >>> frames = TensorDict(target=torch.tensor([[1.0], [3.0]]), batch_size=2)
        >>> slots = buffer.extend(frames)
        >>> buffer[:]["target"].flatten()
        tensor([-1.,  1.])
    """

    count: Tensor
    mean: Tensor | None
    squares: Tensor | None

    def __init__(self, key: NestedKey = "target") -> None:
        super().__init__(in_keys_inv=[key], out_keys_inv=[key])
        self.key = key
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", None)
        self.register_buffer("squares", None)  # sums of squared deviations

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Leave a sample as it is."""
        return tensordict

    @torch.no_grad()
    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        values = tensordict.get(self.key)
        tensordict.set(self.key, self._standardize(values))
        return tensordict

    def _standardize(self, values: Tensor) -> Tensor:
        wide = values.to(torch.float64).reshape(-1, values.shape[-1])
        if self.mean is None or self.squares is None:
            self.mean = torch.zeros_like(wide[0])
            self.squares = torch.zeros_like(wide[0])
        if self.mean.shape != wide[0].shape:
            raise ValueError(
                f"entry {self.key!r} must be {len(self.mean)} wide, got {wide.shape[1]}"
            )
        if self.mean.device != wide.device or self.count.device != wide.device:
            self.to(wide.device)  # of a state that was loaded from elsewhere
        # Statistics of the batch joined with those before it. What is not finite is
        # refused by the memory, and must leave no trace here; no transfer is needed.
        finite = wide.isfinite().all()
        wide = wide.where(finite, 0)
        number = finite * float(len(wide))
        batch_mean = wide.mean(0)
        total = self.count + number
        share = number / total.clamp(min=1)
        shift = batch_mean - self.mean
        self.squares = (
            self.squares
            + finite * (wide - batch_mean).square().sum(0)
            + shift.square() * self.count * share
        )
        self.mean = self.mean + shift * share
        self.count = total
        deviation = (self.squares / total.clamp(min=1)).sqrt()
        # What is constant up to rounding has nothing to tell.
        varies = deviation > 1e-6 * self.mean.abs().clamp(min=1e-6)
        scale = torch.where(varies, deviation, torch.inf)
        return ((values - self.mean) / scale).to(values.dtype)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # The width of the statistics is that of the first frames, maybe not seen yet.
        for name in ("mean", "squares"):
            saved = state_dict.get(prefix + name)
            setattr(self, name, None if saved is None else torch.empty_like(saved))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
