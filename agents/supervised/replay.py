"""A learner's side of its memory: :class:`Replay`, and :class:`Samples` of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import TensorDictReplayBuffer

from agents.supervised.samplers import SubsetSampler
from info_replay import SelectionWriter, SelectiveReplayBuffer

__all__ = ["Replay", "Samples"]


@dataclass(eq=False)
class Samples:
    """Samples of one step: the new batch, or a draw from the memory.

    Attributes:
        inputs: as they are stored, on the learner's device.
        labels: their targets; ``None`` for a draw, whose items have them.
        items: what the memory gave for a draw, with all its entries.
        passed: features and outputs, once the network has seen the samples.
    """

    inputs: Tensor
    labels: Tensor | None = None
    items: TensorDictBase | None = None
    passed: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        """How many there are."""
        return self.inputs.shape[0]

    @property
    def targets(self) -> Tensor:
        """Labels or numbers."""
        return self.stored("target") if self.labels is None else self.labels

    @property
    def features(self) -> Tensor:
        """What the last layer sees, ``(n, d)``."""
        return self._passed()[0]

    @property
    def outputs(self) -> Tensor:
        """What the network says of them, ``(n, num_outputs)``."""
        return self._passed()[1]

    def _passed(self) -> tuple[Tensor, Tensor]:
        if self.passed is None:
            raise RuntimeError(
                "these samples have no features and outputs yet: call forward() first"
            )
        return self.passed

    def stored(self, key: str) -> Tensor:
        """Another entry that the memory has kept with the samples of a draw."""
        if self.items is None:
            raise RuntimeError(f"only a draw has a stored {key!r}, not the new batch")
        entry: Tensor = self.items.get(key).to(self.inputs.device)
        return entry


class Replay:
    """Draws from a memory, writes features back to it, and offers it new samples.

    The memory may have any writer, of TorchRL's or ours.

    Args:
        memory: to replay from.
        batch_size: items of a draw, or fewer while the memory has fewer.
        device: where the learner computes.
        fixed_features: whether features never change, so that none is written back.

    Example:
        >>> from info_replay import make_replay_buffer
        >>> memory = make_replay_buffer("infors", 50, num_classes=2)
        >>> replay = Replay(memory, 4, device=torch.device("cpu"))
        >>> passed = torch.rand(8, 3), torch.zeros(8, 2)
        >>> replay.offer(Samples(torch.rand(8, 5), torch.arange(8) % 2, passed=passed))
        >>> draw = replay.draw()
        >>> draw.inputs.shape, draw.stored("logits").shape
        (torch.Size([4, 5]), torch.Size([4, 2]))
    """

    def __init__(
        self,
        memory: TensorDictReplayBuffer,
        batch_size: int,
        *,
        device: torch.device,
        fixed_features: bool = False,
    ) -> None:
        self.memory = memory
        self.batch_size = batch_size
        self.device = device
        # A buffer of TorchRL's own may be the memory, too, with any writer.
        writer = memory.writer
        self.keeps_features = isinstance(writer, SelectionWriter) and (
            getattr(writer.policy, "feature_key", None) is not None
        )
        self.writes_back = self.keeps_features and not fixed_features
        # TorchRL's buffer does not know of features; ours locks the writer meanwhile.
        ours = isinstance(memory, SelectiveReplayBuffer)
        self._feature_owner: Any = memory if ours else writer

    def __len__(self) -> int:
        """Items in the memory."""
        return len(self.memory)

    @property
    def draws_all(self) -> bool:
        """Whether each draw has every item of the memory, in some order."""
        distinct = isinstance(self.memory.sampler, SubsetSampler)
        return distinct and len(self.memory) <= self.batch_size

    def draw(self) -> Samples:
        """A draw on its own, on the learner's device."""
        items = self.memory.sample(self.batch_size)
        return Samples(items.get("observation").to(self.device), items=items)

    @torch.no_grad()
    def write_back(self, draws: Sequence[Samples]) -> None:
        """Write the features of draws back: of a slot in several, the last counts."""
        if not (self.writes_back and draws):
            return
        if self.draws_all:
            draws = draws[-1:]
        items = [draw.items for draw in draws if draw.items is not None]
        last = items[-1]
        if len(items) == 1:
            # A sample is a copy of its own, and into it is cheaper than in place of it.
            last.get("feature").copy_(draws[-1].features.detach())
            self._feature_owner.update_features(last)
            return
        entries = {
            key: torch.cat([each.get(key) for each in items])
            for key in ("index", "index_generation")
            if key in last.keys()  # noqa: SIM118  a tensordict
        }
        entries["feature"] = torch.cat([draw.features for draw in draws]).detach()
        size = [sum(map(len, draws))]
        self._feature_owner.update_features(TensorDict(entries, batch_size=size))

    @torch.no_grad()
    def offer(self, batch: Samples) -> None:
        """Offer new samples, with their outputs and features."""
        item = {
            "observation": batch.inputs,
            "target": batch.targets,
            "logits": batch.outputs.detach(),
        }
        if self.keeps_features:
            item["feature"] = batch.features.detach()
        items = TensorDict(item, batch_size=[len(batch)], device=batch.inputs.device)
        self.memory.extend(items)
