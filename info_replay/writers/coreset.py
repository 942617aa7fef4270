"""Coresets of a stream: the memory is what a model would learn most from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.coreset.kernels import ReLUTangentKernel
from info_replay.coreset.selection import merge_index, select_coreset
from info_replay.decision import Decision, Places
from info_replay.registry import register_policy
from info_replay.storage.slots import Slots
from info_replay.transfer import to_host
from info_replay.validation import (
    check_count,
    check_finite_entry,
    check_labels,
    check_positive,
    read_labels,
)
from info_replay.writers.base import SelectionWriter

__all__ = ["CoresetWriter"]

# Most items that are compressed together: the kernel grows with their square.
_BLOCK = 1024


@register_policy("coreset")
class CoresetWriter(SelectionWriter):
    """Keeps coresets of the stream (Borsos et al., 2020, the streaming version).

    The memory is divided into parts of ``capacity // parts`` items. Every batch is
    compressed to a coreset of that size, which is a new part; when there is one part
    too many, two neighbors are merged and compressed again, the items of a part
    standing for its batches together (:func:`info_replay.coreset.merge_index`). A
    coreset is found by greedy forward selection on a bilevel problem: which point
    should a model be fitted to next, so that it does well on all of them
    (:func:`info_replay.coreset.select_coreset`). The model is a kernel machine that
    stands in for the network; it needs no training of its own and does not change, so
    coresets of different times can be compared.

    The method is defined by batches: what is kept depends on their size. One of more
    than 1024 items counts as several.

    Args:
        num_classes: labels are 0 to ``num_classes - 1``.
        parts: number of coresets, the paper's ``nr_slots``.
        kernel: of inputs, by default the neural tangent kernel of a fully connected
            ReLU network with two hidden layers: see :class:`ReLUTangentKernel`.
        regularization: of the kernel machine.
        observation_key: entry that holds the inputs.
        target_key: entry that holds the labels, shape ``(n,)``.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> buffer = TensorDictReplayBuffer(
        ...     storage=LazyTensorStorage(4), writer=CoresetWriter(2, parts=2)
        ... )
        >>> labels = torch.tensor([0] * 30 + [1] * 2)
        >>> inputs = torch.eye(2)[labels] + torch.linspace(0, 0.1, 32)[:, None]
        >>> for batch in TensorDict(
        ...     {"observation": inputs, "target": labels}, batch_size=[32]
        ... ).split(16):
        ...     _ = buffer.extend(batch)
        >>> buffer[:]["target"].tolist()  # the rare class is not missed
        [0, 0, 0, 1]
    """

    compacts = True

    def __init__(
        self,
        num_classes: int,
        *,
        parts: int = 10,
        kernel: Callable[[Tensor, Tensor], Tensor] | None = None,
        regularization: float = 1e-4,
        observation_key: NestedKey = "observation",
        target_key: NestedKey = "target",
    ) -> None:
        super().__init__()
        check_count("num_classes", num_classes)
        check_count("parts", parts)
        check_positive("regularization", regularization)
        if kernel is not None and not callable(kernel):
            raise TypeError(f"kernel must be a function of inputs, got {kernel!r}")
        self.num_classes = num_classes
        self.parts = parts
        self.kernel = ReLUTangentKernel() if kernel is None else kernel
        self.regularization = regularization
        self.observation_key = observation_key
        self.target_key = target_key
        # Batches that each part stands for, oldest first, 0 where there is no part.
        self._batches = self.array("batches", parts, np.int64)
        self._part_of = self.per_slot("part_of", np.int64, empty=-1)

    def manage(self, slots: Slots) -> None:
        """Manage slots, at least one per part."""
        if slots.capacity < self.parts:
            raise ValueError(
                f"capacity must be at least parts={self.parts}, got {slots.capacity}"
            )
        super().manage(slots)

    # -- deciding ---------------------------------------------------------------------

    def split(self, count: int) -> list[slice]:
        """Blocks of items whose kernel is computed together."""
        return [slice(a, min(a + _BLOCK, count)) for a in range(0, count, _BLOCK)]

    def check(self, batch: TensorDictBase) -> None:
        """Refuse labels, inputs or kernels that cannot be computed with."""
        inputs, labels = self._read(batch)
        kernels = [
            torch.isfinite(self._flat_kernel(inputs[block])).all()
            for block in self.split(len(inputs))
        ]
        finite = torch.isfinite(inputs).all(), torch.stack(kernels).all()
        self._check_values(inputs, *to_host(*finite, labels))

    def _read(self, data: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Inputs and labels on the storage's device."""
        inputs = data.get(self.observation_key, None)
        if inputs is None:
            raise KeyError(f"missing entry {self.observation_key!r}: the inputs")
        labels = read_labels(data, self.target_key)
        device = self.slots.device
        return inputs.detach().to(device), labels.to(device)

    def _check_values(
        self, inputs: Tensor, finite: Any, kernel_finite: Any, labels: NDArray[Any]
    ) -> None:
        check_labels(labels, self.num_classes, self.target_key)
        if not finite:
            check_finite_entry(inputs, self.observation_key)
        if not kernel_finite:
            raise ValueError(
                f"the kernel of entry {self.observation_key!r} must be finite, got "
                "values that are not"
            )

    def _compress(self, data: TensorDictBase, weights: NDArray[np.float64]) -> Places:
        """The rows of a coreset of weighted items."""
        inputs, labels = self._read(data)
        count = len(labels)
        finite, flat, classes = to_host(
            torch.isfinite(inputs).all(), self._flat_kernel(inputs), labels
        )
        self._check_values(inputs, finite, np.isfinite(flat).all(), classes)
        return select_coreset(
            flat.reshape(count, count),
            classes.astype(np.int64),
            weights,
            self.slots.capacity // self.parts,
            self.num_classes,
            regularization=self.regularization,
        ).indices

    def _flat_kernel(self, inputs: Tensor) -> Tensor:
        """The kernel ``(n * n,)`` of inputs ``(n, ...)``; refuses other shapes."""
        kernel = self.kernel(inputs, inputs)
        if not isinstance(kernel, Tensor) or kernel.is_complex():
            found = getattr(kernel, "dtype", type(kernel).__name__)
            raise TypeError(f"kernel must return a tensor of real numbers, got {found}")
        count = len(inputs)
        if kernel.shape != (count, count) or kernel.device != inputs.device:
            raise ValueError(
                f"kernel must return the shape ({count}, {count}) on {inputs.device} "
                f"for {count} inputs, got {tuple(kernel.shape)} on {kernel.device}"
            )
        return kernel.detach().double().flatten()

    def decide(self, batch: TensorDictBase) -> Decision:
        """Give slots to the items of a batch; see :meth:`SelectionWriter.decide`."""
        size, count = len(self.slots), len(batch)
        rows = np.sort(self._compress(batch, np.ones(count)))
        batches = [*self._batches.array[self._batches.array > 0].tolist(), 1]
        # Points are numbered: first the slots, then the rows that come in.
        parts = np.append(
            self._part_of.array[:size], np.full(len(rows), len(batches) - 1)
        )
        kept = np.ones(size + len(rows), dtype=bool)
        place = len(batches)  # no part is after the last
        if len(batches) > self.parts:
            place = merge_index(batches)
            points = np.flatnonzero((parts == place) | (parts == place + 1))
            chosen = self._merge(batch, points, rows, parts, batches)
            kept[points] = False
            kept[chosen] = True
            batches[place : place + 2] = [batches[place] + batches[place + 1]]
            parts = np.where(parts > place, parts - 1, parts)
        new_parts = parts[size:][kept[size:]]
        old, new = np.flatnonzero(kept[:size]), rows[kept[size:]]

        def commit() -> None:
            part_of = self._part_of.array
            part_of[part_of > place] -= 1
            part_of[decision.slots[new]] = new_parts
            self._batches.array[:] = 0
            self._batches.array[: len(batches)] = batches
            self.reservoir_count += len(new)

        decision = Decision.compacting(old, new, count, commit)
        return decision

    def _merge(
        self,
        batch: TensorDictBase,
        points: Places,
        rows: Places,
        parts: Places,
        batches: list[int],
    ) -> Places:
        """Compress two parts to one; returns the points that stay."""
        size, device = len(self.slots), self.slots.device
        old = torch.from_numpy(points[points < size]).to(device)
        new = torch.from_numpy(rows[points[points >= size] - size]).to(batch.device)
        keys = [self.observation_key, self.target_key]
        stored = self.slots.read(old).select(*keys)
        items = torch.cat([stored, batch[new].select(*keys).to(device)])
        # All items of a part stand for its batches together.
        members = np.bincount(parts, minlength=len(batches))
        weights = np.array(batches) / np.maximum(members, 1)
        return points[self._compress(items, weights[parts[points]])]

    def adopt(self, items: TensorDictBase) -> None:
        """Divide items that the storage brought along into parts."""
        self.check(items)
        part_of = np.arange(len(items)) * self.parts // self.slots.capacity
        self._part_of.array[: len(items)] = part_of
        self._batches.array[:] = 0
        self._batches.array[: part_of[-1] + 1] = 1

    def resync(self) -> None:
        """Start again with what is there, if somebody else added or removed items."""
        size = len(self.slots)
        if size != np.count_nonzero(self._part_of.array >= 0):
            self.clear_state()
            if size:
                self.adopt(self.slots.read(slice(0, size)))
