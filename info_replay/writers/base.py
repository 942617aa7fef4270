"""The contract of selection policies: :class:`SelectionWriter`.

A policy only decides; checking, writing, counting, saving and sharing are done here,
once.
"""

from __future__ import annotations

import abc
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.decision import Decision, Places, check_decision, last_rows
from info_replay.random_stream import RandomStream
from info_replay.shared_state import PerSlot
from info_replay.storage.entries import check_tensordict
from info_replay.storage.stateful_writer import (
    DRAWS,
    PRELOADED,
    RESERVOIR,
    REVISION,
    SEED,
    SEEDED,
    WRITES,
    StatefulWriter,
)
from info_replay.storage.write_back import read_write_back

__all__ = ["Decision", "Places", "SelectionWriter"]

_NOWHERE = nullcontext()


class SelectionWriter(StatefulWriter):
    """A TorchRL writer that keeps some of the items that it is offered.

    ``extend`` returns the slot of every item, -1 where it was not kept. The write count
    counts offered items. Slots have generations, so that a sample can be told from a
    later item in the same slot.

    A policy of your own defines :meth:`decide`. In its constructor it may declare what
    it keeps between batches (see :class:`~info_replay.shared_state.DeclaredState`);
    :func:`info_replay.testing.check_writer` puts it through the contract.

    Attributes:
        slots: the slots that the writer manages; their number is ``slots.capacity``,
            and ``len(slots)`` of them are in use.
        feature_key: entry that holds features which replay should bring back, ``None``
            if the policy does not look at any.
        largest_feature: features that are larger are refused.
        compacts: whether items may be moved to other slots.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from info_replay import Decision
        >>> class FirstComeWriter(SelectionWriter):
        ...     '''Keeps the first items.'''
        ...
        ...     def decide(self, batch):
        ...         slots = len(self.slots) + np.arange(len(batch))
        ...         slots[slots >= self.slots.capacity] = -1
        ...         return Decision(slots)
        >>> from info_replay import SelectiveReplayBuffer
        >>> buffer = SelectiveReplayBuffer(3, writer=FirstComeWriter())
        >>> buffer.extend(TensorDict({"x": torch.arange(5)}, batch_size=[5]))
        tensor([ 0,  1,  2, -1, -1])
    """

    feature_key: NestedKey | None = None
    largest_feature: float = float("inf")
    compacts: bool = False

    def __init__(self) -> None:
        super().__init__()
        self._stream = RandomStream()
        # Revisions of the storage between which features alone were new.
        self._new_features = (-1, -1)

    # -- the contract -----------------------------------------------------------------

    @abc.abstractmethod
    def decide(self, batch: TensorDictBase) -> Decision:
        """Choose the slots of a batch, without changing anything yet.

        Args:
            batch: at least one item; its entries have the shapes and types of what is
                stored.

        Raises:
            TypeError, KeyError, ValueError: if the batch is not what the policy needs.
        """

    def check(self, batch: TensorDictBase) -> None:
        """Raise what :meth:`decide` would raise of a batch; changes nothing.

        Asked where a batch is decided in parts, or later.
        """
        self.decide(batch)

    def split(self, count: int) -> list[slice]:
        """Parts of a batch that are decided one after the other; by default one."""
        return [slice(0, count)]

    def prepare(self, batch: TensorDictBase) -> None:
        """Make what takes its shape from the items; the first ones are stored now."""

    def adopt(self, items: TensorDictBase) -> None:
        """Count items that the storage brought along as the first of the stream."""

    def resync(self) -> None:
        """Derive again what follows from the stored items: somebody else wrote them."""

    def resync_features(self) -> None:
        """Do what :meth:`resync` does, where it is known that only features are new.

        A shortcut, which must come to the same: it is not always known.
        """
        self.resync()

    def refresh(self, slots: Places, features: Tensor) -> bool:
        """Follow new features of stored items, which are about to be written.

        Args:
            slots: of the items, all different.
            features: shape ``(n, d)``.

        Returns:
            Whether the policy has followed; if not, :meth:`resync_features` or
            :meth:`resync` will be called.
        """
        return True

    def computing(self) -> AbstractContextManager[None]:
        """Where to decide: a context for linear algebra, by default none."""
        return _NOWHERE

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """Four random numbers in [0, 1) for each of the next items, ``(count, 4)``.

        They depend on the seed and on the number of the item alone, not on how the
        stream was cut into batches; asked twice, they are the same.
        """
        counts = self.counts.array
        if not counts[SEEDED]:
            self.seed  # noqa: B018  draws one
        return self._stream.uniforms(int(counts[SEED]), int(counts[DRAWS]), count)

    @property
    def draw_count(self) -> int:
        """Number of the next item, for random decisions."""
        return int(self.counts.array[DRAWS])

    @property
    def reservoir_count(self) -> int:
        """Items that entered reservoir sampling or, without one, that were stored."""
        return int(self.counts.array[RESERVOIR])

    @reservoir_count.setter
    def reservoir_count(self, value: int) -> None:
        self.counts.array[RESERVOIR] = value

    # -- offering items ---------------------------------------------------------------

    @torch.inference_mode(False)
    @torch.no_grad()
    def extend(self, data: TensorDictBase) -> Tensor:
        """Offer a batch of items.

        Args:
            data: the batch, ``batch_size=[n]``.

        Returns:
            The slot of each item, shape ``(n,)``, -1 where it was not kept.
        """
        device = data.device if isinstance(data, TensorDictBase) else None
        slots = torch.from_numpy(self._offer(data))
        return slots if device is None else slots.to(device)

    @torch.inference_mode(False)
    @torch.no_grad()
    def add(self, data: TensorDictBase) -> int:
        """Offer one item, ``batch_size=[]``; gives its slot, -1 if it was not kept."""
        check_tensordict(data, "an item")
        return int(self._offer(data.unsqueeze(0))[0])

    def _offer(self, data: TensorDictBase) -> Places:
        batch = self.slots.admit(data)
        with self.computing():
            self._count_preloaded()  # parts may depend on the number of items
            parts = self.split(len(batch))
            if len(parts) == 1:
                return self._offer_part(batch).slots.copy()
            self.check(batch)
            slots = np.full(len(batch), -1)
            with self.all_or_nothing():
                for part in parts:
                    decision = self._offer_part(batch[part])
                    slots = decision.follow(slots)
                    slots[part] = decision.slots
            return slots

    def _offer_part(self, batch: TensorDictBase) -> Decision:
        self._catch_up(self.slots.revision)  # admit() has looked
        slots, count = self.slots, len(batch)
        size = len(slots)
        decision = self.decide(batch)
        rows = self.check_decision(decision, count)
        if decision.moves is not None:
            slots.move(*decision.moves)
        if rows.size:
            slots.write(decision.slots[rows], rows, batch)
        if decision.size is not None:
            slots.shrink(decision.size)
        if decision.moves is not None or decision.size is not None:
            self._move_state(decision, size)
        self.carried_out(decision, count)
        if not size and rows.size:
            self.prepare(batch)
        return decision

    def check_decision(self, decision: Decision, count: int) -> Places:
        """Raise if a decision about some items cannot be carried out.

        Returns:
            The rows of the items that are kept.

        Raises:
            TypeError, ValueError: see :func:`~info_replay.decision.check_decision`.
        """
        return check_decision(
            decision,
            count,
            size=len(self.slots),
            capacity=self.slots.capacity,
            policy=type(self).__name__,
            may_move=self.compacts or self.policy is not self,
        )

    def _move_state(self, decision: Decision, before: int) -> None:
        """Let per-slot numbers follow their items."""
        for part in self._parts.values():
            if isinstance(part, PerSlot):
                if decision.moves is not None:
                    part.move(*decision.moves)
                if decision.size is not None:
                    part.array[decision.size : before] = part.empty

    def carried_out(self, decision: Decision, count: int) -> None:
        """Note that a decision of this writer was carried out.

        Args:
            decision: of this writer.
            count: number of items that it was about.
        """
        decision.commit()
        counts = self.counts.array
        counts[WRITES] += count
        counts[DRAWS] += count
        self.mark_in_step()

    def mark_in_step(self) -> None:
        """Note that what the writer knows is that of the stored items."""
        self.counts.array[REVISION] = self.slots.revision

    @torch.inference_mode(False)
    @torch.no_grad()
    def catch_up(self) -> None:
        """Take in what others wrote to the storage since this writer last looked."""
        self._catch_up(self.slots.look())

    def _catch_up(self, revision: int) -> None:
        counts = self.counts.array
        if counts[REVISION] == revision:
            return
        self._count_preloaded()
        if counts[PRELOADED]:
            self.adopt(self.slots.read(slice(0, int(counts[PRELOADED]))))
            counts[PRELOADED] = 0
        elif self._new_features == (counts[REVISION], revision):
            self.resync_features()
        else:
            self.resync()
        self.mark_in_step()

    @torch.inference_mode(False)
    @torch.no_grad()
    def replace(self, index: Any, items: TensorDictBase) -> None:
        """Put other items into slots in use; the policy is not asked.

        Args:
            index: of the slots: a number, a slice, or what indexes a tensor; of a slot
                that is given twice the last item counts.
            items: one for each slot, or one for all.

        Raises:
            IndexError: if a slot is not in use.
            TypeError, KeyError, ValueError: if an item is not what the memory stores;
                nothing is changed.
        """
        places = self.slots.places(index)
        batch = items if items.batch_dims else items.expand(len(places))
        if len(batch) != len(places):
            raise ValueError(
                f"{len(places)} slots need as many items, got {len(batch)}"
            )
        if places.size:
            batch = self.slots.admit(batch)
            with self.computing():
                self.check(batch)
            rows = last_rows(places)
            self.slots.write(places[rows], rows, batch)

    # -- write-backs ------------------------------------------------------------------

    @property
    def policy(self) -> SelectionWriter:
        """The writer that selects: this one, unless it leaves that to another."""
        return self

    @torch.no_grad()
    def update_features(self, data: TensorDictBase) -> None:
        """Write features back to the slots that they were sampled from.

        A slot that holds another item by now is left alone; of a slot that was sampled
        several times the last row counts.

        Args:
            data: a sample with its ``"index"`` and new features.

        Raises:
            AttributeError: if the policy does not look at features.
            KeyError, TypeError, ValueError, IndexError: if the sample is not what it
                should be; nothing is changed.
        """
        key, slots = self.feature_key, self.slots
        if key is None:
            raise AttributeError(f"{type(self.policy).__name__} does not keep features")
        if data.batch_dims and not len(data):
            return
        places, features = read_write_back(
            data, key, slots, largest=self.largest_feature
        )
        if places.size:
            followed = self.refresh(places, features)
            # What was out of step before remains so, whatever followed.
            before, seen = slots.look(), int(self.counts.array[REVISION])
            only_features_new = before == seen or self._new_features == (seen, before)
            slots.write_leaf(key, places, features)
            if before == seen and followed:
                self.mark_in_step()
            elif only_features_new:
                self._new_features = seen, slots.revision

    def __repr__(self) -> str:
        """Class and counts."""
        return (
            f"{type(self).__name__}(write_count={self.counts.array[WRITES]}, "
            f"reservoir_count={self.reservoir_count})"
        )
