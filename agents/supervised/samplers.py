"""How a learner draws from its memory: :class:`SubsetSampler`."""

from __future__ import annotations

from typing import Any

import torch
from torchrl.data import Storage
from torchrl.data.replay_buffers.samplers import RandomSampler

__all__ = ["SubsetSampler"]


class SubsetSampler(RandomSampler):
    """Draws distinct items, each draw on its own: all items if there are fewer.

    TorchRL's ``SamplerWithoutReplacement`` goes through the memory in epochs instead,
    so that one draw depends on the one before.

    Example:
        >>> from tensordict import TensorDict
        >>> from info_replay import make_replay_buffer
        >>> memory = make_replay_buffer("rs", 10, sampler=SubsetSampler())
        >>> _ = memory.extend(TensorDict({"x": torch.arange(7)}, batch_size=[7]))
        >>> sorted(memory.sample(5)["x"].unique().shape), memory.sample(20)["x"].shape
        ([5], torch.Size([7]))
    """

    def sample(self, storage: Storage, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Slots of distinct items.

        Args:
            storage: the memory.
            batch_size: how many, at most.

        Returns:
            The slots and an empty dictionary.
        """
        size = len(storage)
        if not size:
            raise RuntimeError("cannot sample from an empty memory")
        order = torch.randperm(
            size,
            generator=self._rng,
            device=None if self._rng is None else self._rng.device,
        )
        return order[:batch_size], {}
