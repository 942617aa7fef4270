"""What a memory should hold: :class:`Model`, a dictionary from slots to items."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, field

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor

from info_replay import SelectiveReplayBuffer

from ..buffer.helpers import COMPACTING, HYBRID, INFORMATION, RECENT
from ..reference import Memory, one_hot
from .items import CLASSES, WIDTH, assert_whole, make_items

#: Where posteriors and scores are compared.
POINTS = make_items([1_000_003, 1_000_033])


@dataclass
class Held:
    """An item in a slot.

    Attributes:
        id: of the item.
        feature: as it is now.
        visit: a number of its own for each time that an item comes to a slot.
    """

    id: int
    feature: Tensor
    visit: int


@dataclass
class Sample:
    """What was sampled, and what the slots held then."""

    rows: TensorDictBase
    held: list[Held]


@dataclass
class Model:
    """The expected content and counts of a memory.

    Attributes:
        policy: name of the policy.
        capacity: number of slots.
        held: the items by slot.
        offered: items since the memory was last empty.
        brought: items that the storage held before.
    """

    policy: str
    capacity: int
    held: dict[int, Held] = field(default_factory=dict)
    offered: int = 0
    brought: int = 0
    visits: itertools.count[int] = field(default_factory=itertools.count)

    def put(self, slot: int, item: TensorDictBase) -> None:
        """An item comes to a slot."""
        feature = item["feature"].detach().clone()
        self.held[slot] = Held(int(item["id"]), feature, next(self.visits))

    def sampled(self, rows: TensorDictBase) -> Sample:
        """Remember what a sample is of."""
        held = [copy.copy(self.held[slot]) for slot in rows["index"].tolist()]
        return Sample(rows, held)

    def restored(self) -> Model:
        """The same content once it was saved and restored."""
        twin = copy.copy(self)
        twin.held = {
            slot: Held(item.id, item.feature, next(self.visits))
            for slot, item in self.held.items()
        }
        return twin

    # -- operations -------------------------------------------------------------------

    def extend(
        self, items: TensorDictBase, slots: list[int], buffer: SelectiveReplayBuffer
    ) -> None:
        """Items were offered and given these slots, -1 where they were not kept."""
        assert len(slots) == len(items), f"{len(slots)} slots for {len(items)} items"
        self.offered += len(items)
        given = {slot: row for row, slot in enumerate(slots) if slot >= 0}
        kept = sum(slot >= 0 for slot in slots)
        assert kept == len(given), f"a slot was given twice: {slots}"
        if self.policy in (*COMPACTING, *HYBRID):
            self._follow(items, given, buffer)
        else:
            for slot, row in given.items():
                self.put(slot, items[row])

    def _follow(
        self,
        items: TensorDictBase,
        given: dict[int, int],
        buffer: SelectiveReplayBuffer,
    ) -> None:
        """Old items may have moved or gone; those kept are where it was said."""
        old = {item.id: item for item in self.held.values()}
        new = {int(items["id"][row]): row for row in given.values()}
        before, self.held = self.held, {}
        for slot, number in enumerate(buffer[:]["id"].tolist()):
            if slot in before and before[slot].id == number:
                self.held[slot] = before[slot]
            elif number in old:
                moved = old[number]
                self.held[slot] = Held(number, moved.feature, next(self.visits))
            else:
                assert number in new, f"slot {slot} holds {number}, which was not kept"
                self.put(slot, items[new[number]])
        for slot, row in given.items():
            number = int(items["id"][row])
            assert slot in self.held, f"item {number} is not in slot {slot}"
            assert self.held[slot].id == number, f"item {number} is not in slot {slot}"
        ids = [item.id for item in self.held.values()]
        assert len(ids) == len({*ids}), f"an item is stored twice: {ids}"

    def write_back(
        self, sample: Sample, features: Tensor, buffer: SelectiveReplayBuffer
    ) -> None:
        """Features came back: an item that is still where it was has them, no other.

        Of an item that was saved and restored meanwhile, both is right.
        """
        stored = buffer[:]["feature"] if len(buffer) else features[:0]
        newest: dict[int, Tensor] = {}
        either: dict[int, list[Tensor]] = {}
        for row, slot in enumerate(sample.rows["index"].tolist()):
            then, now = sample.held[row], self.held.get(slot)
            if now is None or now.id != then.id:
                continue
            if now.visit == then.visit:
                newest[slot] = features[row].clone()
            else:
                either.setdefault(slot, []).append(features[row])
        for slot, feature in newest.items():
            self.held[slot].feature = feature
        for slot, some in either.items():
            if any(torch.equal(stored[slot], each) for each in some):
                self.held[slot].feature = stored[slot].clone()

    def empty(self) -> None:
        """All items are gone."""
        self.held, self.offered, self.brought = {}, 0, 0

    # -- comparison -------------------------------------------------------------------

    def check(self, buffer: SelectiveReplayBuffer) -> None:
        """The memory holds what it should, row by row, and knows what it holds."""
        size, seen = len(buffer), self.offered + self.brought
        assert size == len(self.held), f"{size} items, not {len(self.held)}"
        assert size <= self.capacity
        if self.policy not in COMPACTING:
            assert size == min(seen, self.capacity), f"{size} items of {seen}"
        assert buffer.write_count == self.offered
        selected = max(0, seen - RECENT) if self.policy in HYBRID else seen
        if self.policy in ("rs", "recent-rs", "cbrs"):
            assert buffer.reservoir_count == selected
        assert 0 <= buffer.reservoir_count <= selected
        if size:
            rows = buffer[:]
            held = [self.held[slot] for slot in range(size)]
            found = rows["id"].tolist()
            assert found == [item.id for item in held], f"the memory holds {found}"
            assert_whole(rows)
            features = torch.stack([item.feature for item in held])
            assert torch.equal(rows["feature"], features), "features of other items"
        if self.policy in INFORMATION:
            self._check_posterior(buffer)

    def _check_posterior(self, buffer: SelectiveReplayBuffer) -> None:
        """The posterior is that of the items, by the formulas of the paper."""
        posterior = buffer.posterior
        if posterior is None:
            return
        ring = RECENT if self.policy in HYBRID else 0
        held = [self.held[slot] for slot in range(ring, len(self.held))]
        labels = make_items([item.id for item in held])["target"].tolist()
        rows = [item.feature.double().numpy() for item in held]
        features = np.stack(rows) if rows else np.zeros((0, WIDTH))
        memory = Memory(features, one_hot(labels, CLASSES))
        points = POINTS["feature"].double().numpy()
        np.testing.assert_allclose(
            posterior.leverage(POINTS["feature"]).numpy(),
            memory.leverages(points),
            rtol=1e-7,
            err_msg="the posterior is not that of the stored items",
        )
        targets = one_hot(POINTS["target"].tolist(), CLASSES)
        np.testing.assert_allclose(
            buffer.score(POINTS).numpy(),
            [memory.mic(*point, 1.0) for point in zip(points, targets, strict=True)],
            rtol=1e-6,
            err_msg="scores are not those of the stored items",
        )
