"""Balanced InfoRS: equal groups, of which the least informative items leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey

from info_replay.decision import Decision, Places
from info_replay.model.criteria import Criterion, Learnability
from info_replay.model.moments import RunningMoments
from info_replay.model.scored_batch import ScoredBatch
from info_replay.model.sequential_scores import SequentialScores
from info_replay.random_stream import generator_of
from info_replay.transfer import to_host
from info_replay.validation import check_choice, check_count, check_finite
from info_replay.writers.info_reservoir import InfoReservoirWriter

__all__ = ["BalancedInfoReservoirWriter"]

_ADMISSION = ("reservoir", "capped", "balanced")
_VICTIMS = ("all", "largest", "own")
# What slots are drawn for: see generator_of().
_PURPOSE = 1


class BalancedInfoReservoirWriter(InfoReservoirWriter):
    """Reservoir sampling in which groups are balanced and information decides the rest.

    Three decisions about every item, each a part that can be chosen:

    * **Does it take part?** If its criterion reaches ``mean + gamma * deviation``, as
      in InfoRS (Sec. 3.2), and its learnability a threshold of the same form, as in
      InfoGS (Sec. 2.4). Either may be left out, with ``None``.
    * **Is it stored?** With probability ``M / N`` (``admission``). As in reservoir
      sampling, ``N`` is the number of items that took part (``"reservoir"``). With
      ``"capped"``, no other group counts more than the item's own group or the median
      of all groups: one that comes late is not shut out by a long one before it, and
      still comes in gradually. With ``"balanced"``, every group counts as much as the
      item's own, so that each has a reservoir sample of its own.
    * **Which item leaves?** Of ``tournament`` items that are drawn at random, the one
      with the least criterion given the rest of the memory; 1 is a random item. They
      are drawn from ``"all"`` slots, from the ``"largest"`` group, or from the item's
      ``"own"`` (``victims``).

    Groups are the classes; without ``num_classes`` all items are of one group. A batch
    gives exactly the result of its items one by one.

    Args:
        gamma: ``gamma_i`` of the threshold of the criterion, ``None`` for none.
        gamma_learnability: ``gamma_l`` of that of the learnability, ``None`` for none.
        admission: ``"reservoir"``, ``"capped"`` or ``"balanced"``.
        victims: where items are drawn from of which one leaves: ``"all"``,
            ``"largest"`` or ``"own"``.
        tournament: how many are drawn.
        criterion, noise, jitter, num_classes, feature_key, target_key: as in
            :class:`InfoReservoirWriter`.
        decay, scale_targets, dtype: as in :class:`InfoReservoirWriter`.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> writer = BalancedInfoReservoirWriter(num_classes=2)
        >>> writer.seed = 0
        >>> buffer = TensorDictReplayBuffer(
        ...     storage=LazyTensorStorage(10), writer=writer
        ... )
        >>> labels = torch.tensor([0] * 900 + [1] * 100)
        >>> features = labels[:, None] + torch.randn(1000, 3)
        >>> items = TensorDict(
        ...     {"feature": features, "target": labels}, batch_size=[1000]
        ... )
        >>> slots = buffer.extend(items)
        >>> buffer[:]["target"].bincount().tolist()
        [5, 5]
    """

    def __init__(
        self,
        *,
        criterion: Criterion | None = None,
        gamma: float | None = 0.0,
        gamma_learnability: float | None = 0.0,
        admission: str = "capped",
        victims: str = "largest",
        tournament: int = 2,
        noise: float = 0.3,
        jitter: float = 0.1,
        num_classes: int | None = None,
        feature_key: NestedKey = "feature",
        target_key: NestedKey = "target",
        decay: float | None = None,
        scale_targets: bool = True,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(
            criterion=criterion,
            gamma=0.0 if gamma is None else gamma,
            noise=noise,
            jitter=jitter,
            num_classes=num_classes,
            feature_key=feature_key,
            target_key=target_key,
            decay=decay,
            scale_targets=scale_targets,
            dtype=dtype,
        )
        if gamma_learnability is not None:
            check_finite("gamma_learnability", gamma_learnability)
        check_choice("admission", admission, _ADMISSION)
        check_choice("victims", victims, _VICTIMS)
        check_count("tournament", tournament)
        self.gamma = gamma  # type: ignore[assignment]
        self.gamma_learnability = gamma_learnability
        self.admission = admission
        self.victims = victims
        self.tournament = tournament
        self.learnability_moments = self.declare(
            "learnability_moments", RunningMoments(decay)
        )
        # Items of each group that took part, and the group of what is in each slot.
        self._numbers = self.array("numbers", num_classes or 1, np.int64, low=0)
        self._groups = self.per_slot(
            "groups", np.int64, empty=-1, low=-1, high=(num_classes or 1) - 1
        )

    def _all_moments(self) -> list[tuple[RunningMoments, Criterion]]:
        return [
            (self.moments, self.criterion),
            (self.learnability_moments, Learnability()),
        ]

    def _select(self, items: ScoredBatch) -> Decision:
        """Decide about items that meet a full memory."""
        labels = self._labels(items.targets)
        draws = self.uniforms(items.count)[:, 0]
        capacity = self.slots.capacity
        tests = self._all_moments()
        gammas = self.gamma, self.gamma_learnability
        sequence = SequentialScores(items, *(criterion for _, criterion in tests))

        def accept(
            first: int, by_criterion: list[NDArray[np.float64]], state: _State
        ) -> tuple[Places, Places, Callable[[int], _State]]:
            before, numbers, groups = state
            walks = [
                moments.walk(scores, its)
                for (moments, _), scores, its in zip(
                    tests, by_criterion, before, strict=True
                )
            ]
            passes = np.ones(len(by_criterion[0]), dtype=bool)
            for walk, scores, gamma in zip(walks, by_criterion, gammas, strict=True):
                if gamma is not None:
                    passes &= scores >= walk.thresholds(gamma, self.dtype)
            rows = passes.nonzero()[0]
            part = labels[first + rows]
            stored = (
                first
                + rows[
                    _admitted(
                        self.admission,
                        numbers,
                        part,
                        draws[first + rows] / capacity,
                        sequence.look_ahead,
                    )
                ]
            )
            slots = self._find_slots(stored.tolist(), labels, groups, sequence)

            def state_after(count: int) -> _State:
                new = np.bincount(
                    part[: rows.searchsorted(count)], minlength=len(numbers)
                )
                done = int(stored.searchsorted(first + count))
                after = groups
                if done:
                    after = groups.copy()
                    for item, slot in zip(stored[:done], slots[:done], strict=True):
                        after[slot] = labels[item]
                return [walk.after(count) for walk in walks], numbers + new, after

            return stored, slots, state_after

        states = [moments.state for moments, _ in tests]
        after = sequence.run(accept, (states, self._numbers.array, self._groups.array))
        assignment = sequence.assignment

        def commit() -> None:
            states, self._numbers.array[:], self._groups.array[:] = after
            for (moments, _), its in zip(tests, states, strict=True):
                moments.state = its
            self.reservoir_count = int(self._numbers.array.sum())
            self._add_to_standardization(items)
            if assignment.owner:
                self.memory.follow(*assignment.changes(items.rows))

        return Decision(assignment.slots, commit)

    def _find_slots(
        self,
        stored: list[int],
        labels: Places,
        groups: Places,
        sequence: SequentialScores,
    ) -> Places:
        """The slot that each of some items gets."""
        drawn = self._draw_slots(stored, labels, groups, sequence.presumed)
        if self.tournament == 1 or not stored:
            return np.array([slots[0] for slots in drawn], dtype=np.int64)
        scores = sequence.leave_one_out(stored, drawn)
        return np.array(
            [
                slots[_least(found, self.dtype)]
                for slots, found in zip(drawn, scores, strict=True)
            ]
        )

    def _draw_slots(
        self,
        stored: list[int],
        labels: Places,
        groups: Places,
        presumed: dict[int, int],
    ) -> list[Places]:
        """Slots of the items of which one leaves, for each item that is stored.

        How many items of each group there are follows from the items that are stored;
        which slot each of them gets is presumed, as scores presume it.
        """
        sizes = np.bincount(groups, minlength=len(self._numbers.array))
        groups = groups.copy()
        drawn = []
        for item in stored:
            group = int(labels[item])
            generator = generator_of(self.seed, _PURPOSE, self.draw_count + item)
            place = self._place_of_victims(group, sizes, generator)
            members = np.arange(len(groups))
            if place is not None:
                # None may be there where a slot that was got is not presumed yet.
                its = (groups == place).nonzero()[0]
                members = its if its.size else members
                sizes[place] -= 1
                sizes[group] += 1
            count = min(self.tournament, len(members))
            drawn.append(members[generator.choice(len(members), count, replace=False)])
            if item in presumed:
                groups[presumed[item]] = group
        return drawn

    def _place_of_victims(
        self, group: int, sizes: Places, generator: np.random.Generator
    ) -> int | None:
        """The group that an item's victim is of, ``None`` for any."""
        if self.victims == "all":
            return None
        if self.victims == "own" and sizes[group]:
            return group
        largest = (sizes == sizes.max()).nonzero()[0]
        if group in largest:
            return group
        return int(largest[generator.integers(len(largest))])

    # -- the rest of the contract -----------------------------------------------------

    def _labels(self, targets: torch.Tensor) -> Places:
        """The group of each item."""
        if self.num_classes is None:
            return np.zeros(len(targets), dtype=np.int64)
        (labels,) = to_host(targets.flatten())
        return labels.astype(np.int64)

    def _fill(self, items: ScoredBatch) -> Decision:
        """Store all items of a batch for which there is room."""
        decision = super()._fill(items)
        labels, fill = self._labels(items.targets), decision.commit

        def commit() -> None:
            fill()
            self._count(labels, decision.slots)

        return Decision(decision.slots, commit)

    def _count(self, labels: Places, slots: Places) -> None:
        """Count items that were stored because there was room."""
        self._numbers.array += np.bincount(labels, minlength=len(self._numbers.array))
        self._groups.array[slots] = labels

    def adopt(self, items: TensorDictBase) -> None:
        """Count items that the storage brought along, as if they had filled it."""
        super().adopt(items)
        self._count(self._labels(items.get(self.target_key)), np.arange(len(items)))

    def resync(self) -> None:
        """Look again at what is stored."""
        super().resync()
        size = len(self.slots)
        stored = self.slots.leaf(self.target_key)[:size]
        self._groups.array[:size] = self._labels(stored)


#: Moments, items of each group that took part, group of each slot.
_State = tuple[list[NDArray[np.float64]], Places, Places]


def _admitted(
    admission: str, numbers: Places, groups: Places, draws: Any, most: int
) -> Places:
    """Which items that take part are stored, up to the first ``most`` of them.

    Args:
        admission: how groups count.
        numbers: items of each group that took part before.
        groups: of the items.
        draws: random numbers in [0, 1 / M) of the items.
        most: how many are asked for.
    """
    if admission == "reservoir":
        totals = numbers.sum() + 1 + np.arange(len(groups))
        return (draws * totals < 1).nonzero()[0][:most]
    # Without a new group, no total is less than that of the numbers before.
    own = numbers[groups]
    may = np.arange(len(groups))
    if own.all():
        may = (draws * _totals(admission, numbers, own) < 1).nonzero()[0]
    found: list[int] = []
    for row in may.tolist():
        now = numbers + np.bincount(groups[: row + 1], minlength=len(numbers))
        if draws[row] * _totals(admission, now, now[groups[row]]) < 1:
            found.append(row)
            if len(found) == most:
                break
    return np.array(found, dtype=np.int64)


def _totals(admission: str, numbers: Places, own: Any) -> Any:
    """What an item of a group of ``own`` items competes with."""
    seen = np.sort(numbers[numbers > 0])
    count = len(seen)
    if admission == "balanced":
        return own * count
    cap = np.maximum(own, (seen[(count - 1) // 2] + seen[count // 2]) / 2)
    below = seen.searchsorted(cap)
    return np.concatenate([[0], seen.cumsum()])[below] + cap * (count - below)


def _least(scores: NDArray[np.float64], dtype: torch.dtype) -> int:
    """The first of the least scores; rounding must not decide between equal ones."""
    least = scores.min()
    slack = float(torch.finfo(dtype).eps ** 0.5) * (1 + abs(least))
    return int((scores <= least + slack).argmax())
