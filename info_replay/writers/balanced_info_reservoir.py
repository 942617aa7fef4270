"""Balanced InfoRS: equal groups, of which the least informative items leave."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey

from info_replay.decision import Decision, Places
from info_replay.model.admission import ADMISSION, admitted
from info_replay.model.clusters import Clustering, FeatureClusters, regroup
from info_replay.model.criteria import MIC, Criterion
from info_replay.model.modes import ModeDetector
from info_replay.model.scored_batch import ScoredBatch
from info_replay.model.sequential_scores import SequentialScores
from info_replay.model.victims import VICTIMS, draw_victims, first_of_least
from info_replay.random_stream import generator_of
from info_replay.transfer import to_host
from info_replay.validation import check_choice, check_count
from info_replay.writers.info_reservoir import InfoReservoirWriter

__all__ = ["BalancedInfoReservoirWriter"]

_GROUPS = ("modes", "classes", "clusters")
_SURPRISE = MIC(eta=0.0)
# What random numbers are drawn for: see generator_of().
_VICTIM, _CLUSTERS = 1, 2
# Items that are decided together at most: modes need memory for their square.
_MOST = 512


class BalancedInfoReservoirWriter(InfoReservoirWriter):
    """Reservoir sampling in which groups are balanced and information decides the rest.

    Four decisions about every item, each a part that can be chosen:

    * **Which group is it of?** That of its class and, within the class, of the mode
      that the stream is in (``groups``): where items of a class that the memory knew
      well surprise it all at once, a new mode begins
      (:class:`~info_replay.model.modes.ModeDetector`). Without ``num_classes`` all
      items are of one class. Where there are no classes, groups may be ``"clusters"``
      of features instead (:class:`~info_replay.model.clusters.FeatureClusters`).
    * **Does it take part?** If its criterion reaches ``mean + gamma * deviation``, as
      in InfoRS (Sec. 3.2).
    * **Is it stored?** With probability ``M / N`` (``admission``). As in reservoir
      sampling, ``N`` is the number of items that took part (``"reservoir"``). With
      ``"capped"``, no other group counts more than the item's own group or the median
      of all groups: one that comes late is not shut out by a long one before it, and
      still comes in gradually. With ``"balanced"``, every group counts as much as the
      item's own, so that each has a reservoir sample of its own.
    * **Which item leaves?** Of ``tournament`` items that are drawn at random, the one
      with the least criterion given the rest of the memory; 1 is a random item. They
      are drawn from ``"all"`` slots, from the ``"largest"`` groups (the item's own, if
      it is one of them), or from the item's ``"own"`` (``victims``).

    A batch gives exactly the result of its items one by one.

    Args:
        gamma: ``gamma_i`` of the threshold, ``None`` for none.
        admission: ``"reservoir"``, ``"capped"`` or ``"balanced"``.
        victims: ``"all"``, ``"largest"`` or ``"own"``.
        tournament: how many are drawn.
        groups: ``"modes"``; ``"classes"`` for one mode per class; or ``"clusters"``,
            which do not look at classes.
        num_clusters: how many clusters there are.
        criterion, noise, jitter, num_classes, feature_key, target_key: as in
            :class:`InfoReservoirWriter`.
        decay, scale_targets, dtype: as in :class:`InfoReservoirWriter`.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> writer = BalancedInfoReservoirWriter(num_classes=3)
        >>> writer.seed = 0
        >>> buffer = TensorDictReplayBuffer(
        ...     storage=LazyTensorStorage(15), writer=writer
        ... )
        >>> labels = torch.tensor([0] * 1800 + [1] * 100 + [2] * 100)
        >>> features = torch.eye(3)[labels] + torch.rand(2000, 3)
        >>> items = TensorDict(
        ...     {"feature": features, "target": labels}, batch_size=[2000]
        ... )
        >>> slots = buffer.extend(items)
        >>> buffer[:]["target"].bincount().tolist()
        [5, 5, 5]
    """

    def __init__(
        self,
        *,
        criterion: Criterion | None = None,
        gamma: float | None = -0.5,
        admission: str = "capped",
        victims: str = "largest",
        tournament: int = 3,
        groups: str = "modes",
        num_clusters: int = 10,
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
        check_choice("admission", admission, ADMISSION)
        check_choice("victims", victims, VICTIMS)
        check_choice("groups", groups, _GROUPS)
        check_count("tournament", tournament)
        check_count("num_clusters", num_clusters)
        self.gamma = gamma  # type: ignore[assignment]
        self._warned = gamma is None  # all items take part
        self.admission = admission
        self.victims = victims
        self.tournament = tournament
        self.groups = groups
        self.num_clusters = num_clusters
        self.clusters: FeatureClusters | None = None
        kinds = num_classes or 1
        if groups == "clusters":
            kinds = num_clusters
            self.clusters = self.declare("clusters", FeatureClusters(num_clusters))
        self.modes = self.declare("modes", ModeDetector(kinds, finds=groups == "modes"))
        # Items of each group that took part, and the group of what is in each slot.
        self._numbers = self.array("numbers", self.modes.num_groups, np.int64, low=0)
        self._held = self.per_slot(
            "held", np.int64, empty=-1, low=-1, high=self.modes.num_groups - 1
        )

    def _select(self, items: ScoredBatch) -> Decision:
        """Decide about items that meet a full memory."""
        if not self._warned:
            self._warn_of_few()
        labels, held, numbers, found = self._find_kinds(items)
        draws = self.uniforms(items.count)[:, 0] / self.slots.capacity
        sequence = SequentialScores(items, self.criterion, _SURPRISE)

        def accept(
            first: int, by_criterion: list[NDArray[np.float64]], state: _State
        ) -> tuple[Places, Places, Callable[[int], _State]]:
            scores, surprises = by_criterion
            moments = self.moments.walk(scores, state.moments)
            modes = self.modes.walk(labels[first:], surprises, state.modes)
            groups = modes.groups
            rows = np.arange(len(scores))
            if self.gamma is not None:
                thresholds = moments.thresholds(self.gamma, self.dtype)
                rows = (scores >= thresholds).nonzero()[0]
            part = groups[rows]
            stored = rows[
                admitted(
                    self.admission,
                    state.numbers,
                    part,
                    draws[first + rows],
                    sequence.look_ahead,
                )
            ]
            slots = stored
            if stored.size:
                slots = self._find_slots(
                    first + stored, groups[stored], state, sequence
                )

            def state_after(count: int) -> _State:
                taking_part = int(rows.searchsorted(count))
                new = np.bincount(part[:taking_part], minlength=len(state.numbers))
                done = int(stored.searchsorted(count))
                held = state.held
                if done:
                    held = held.copy()
                    for group, slot in zip(groups[stored[:done]], slots, strict=False):
                        held[slot] = group
                return _State(
                    moments.after(count),
                    modes.after(count),
                    state.numbers + new,
                    held,
                    state.reservoir_count + taking_part,
                )

            return first + stored, slots, state_after

        before = _State(
            self.moments.state,
            self.modes.state,
            numbers,
            held,
            self.reservoir_count,
        )
        after = sequence.run(accept, before)
        assignment = sequence.assignment

        def commit() -> None:
            self.moments.state, self.modes.state = after.moments, after.modes
            self._numbers.array[:] = after.numbers
            self._held.array[:] = after.held
            if self.clusters is not None and found is not None:
                self.clusters.now = found
            self.reservoir_count = after.reservoir_count
            self._add_to_standardization(items)
            if assignment.owner:
                self.memory.follow(*assignment.changes(items.rows))

        return Decision(assignment.slots, commit)

    def _find_kinds(
        self, items: ScoredBatch
    ) -> tuple[Places, Places, Places, Clustering | None]:
        """What groups are when items come.

        Returns:
            The class or cluster of each item, the group of what is in each slot, how
            many items of each group there were, and the clusters, if groups are these.
        """
        held, numbers = self._held.array, self._numbers.array
        if self.clusters is None:
            return self._labels(items.targets), held, numbers, None
        item = self.draw_count
        if self.clusters.are_due(item, len(held)):
            draws = generator_of(self.seed, _CLUSTERS, item).random(self.num_clusters)
            found = self.clusters.find(item, self._stored_features(), draws)
            held, numbers = found.held, regroup(numbers, held, found.held)
        else:
            found = self.clusters.now
        width = items.posterior.feature_dim
        return found.labels(items.rows[:, :width]), held, numbers, found

    def _find_slots(
        self,
        stored: Places,
        groups: Places,
        state: _State,
        sequence: SequentialScores,
    ) -> Places:
        """The slot that each of some items gets, given their groups."""

        def generator(item: int) -> np.random.Generator:
            return generator_of(self.seed, _VICTIM, self.draw_count + item)

        items = [*zip(stored.tolist(), groups.tolist(), strict=True)]
        drawn = draw_victims(
            self.victims,
            self.tournament,
            state.held,
            items,
            generator,
            sequence.presumed,
        )
        if self.tournament == 1:
            return np.array([slots[0] for slots in drawn], dtype=np.int64)
        scores = sequence.leave_one_out(stored.tolist(), drawn)
        least = [first_of_least(each, torch.finfo(self.dtype).eps) for each in scores]
        return np.array([slots[n] for slots, n in zip(drawn, least, strict=True)])

    # -- the rest of the contract -----------------------------------------------------

    def split(self, count: int) -> list[slice]:
        """Parts as of InfoRS, not too large; with new clusters a new one begins."""
        parts = super().split(count)
        if count <= _MOST and self.clusters is None:
            return parts
        starts = {
            start for part in parts for start in range(part.start, part.stop, _MOST)
        }
        if self.clusters is not None:
            period = self.clusters.period(self.slots.capacity)
            starts |= {*range(-self.draw_count % period, count, period)}
        return [slice(a, b) for a, b in itertools.pairwise([*sorted(starts), count])]

    def prepare(self, batch: TensorDictBase) -> None:
        """Make what takes its shape from the features, if there is none yet."""
        super().prepare(batch)
        self._prepare_clusters()

    def _prepare_clusters(self) -> None:
        if self.clusters is not None and self.memory.posterior is not None:
            self.clusters.prepare(self.memory.posterior.feature_dim)

    def check_state(self, state_dict: dict[str, Any]) -> None:
        """Raise ``ValueError`` if a saved state does not fit; changes nothing."""
        super().check_state(state_dict)
        counts, state = state_dict["counts"], state_dict["state"]
        if not counts["preloaded"]:
            counted, known = int(state["numbers"].sum()), counts["reservoir_count"]
            if counted != known:
                raise ValueError(
                    f"cannot restore 'numbers': expected {known} items in all groups, "
                    f"got {counted}"
                )
            stored = state["held"][: min(known, self.slots.capacity)]
            if state_dict["in_step"] and (stored < 0).any():
                raise ValueError(
                    "cannot restore 'held': expected a group of what is in each slot, "
                    f"got {int(stored.min())}"
                )
        if self.clusters is not None:
            self._check_clusters(state, counts["draw_count"])

    @staticmethod
    def _check_clusters(state: dict[str, Any], items: int) -> None:
        """Raise ``ValueError`` if saved clusters are not of the rest of the state."""
        posterior, saved = state["memory"]["posterior"], state["clusters"]
        width = posterior["feature_dim"] if posterior is not None else 0
        if saved["centers"] is not None and saved["centers"].shape[1] != width:
            raise ValueError(
                f"cannot restore 'clusters': expected centers of {width} numbers, got "
                f"{saved['centers'].shape[1]}"
            )
        if saved["item"] >= items:
            raise ValueError(
                f"cannot restore 'clusters': expected those of an item before {items}, "
                f"got {saved['item']}"
            )

    def _stored_features(self) -> Any:
        """Features of what is in each slot, as the posterior has them."""
        rows = self.memory.rows(np.arange(len(self.slots)))
        assert self.memory.posterior is not None
        return rows[:, : self.memory.posterior.feature_dim]

    def _labels(self, targets: torch.Tensor) -> Places:
        """The class of each item; clusters are not found before the memory is full."""
        if self.num_classes is None or self.clusters is not None:
            return np.zeros(len(targets), dtype=np.int64)
        (labels,) = to_host(targets)
        return labels.ravel().astype(np.int64, copy=False)

    def _fill(self, items: ScoredBatch) -> Decision:
        """Store all items of a batch for which there is room."""
        decision = super()._fill(items)
        labels, fill = self._labels(items.targets), decision.commit

        def commit() -> None:
            fill()
            self._count_filled(labels, decision.slots)

        return Decision(decision.slots, commit)

    def _count_filled(self, labels: Places, slots: Places) -> None:
        """Count items that were stored because there was room, of their first modes."""
        self._numbers.array += np.bincount(labels, minlength=self.modes.num_groups)
        self._held.array[slots] = labels

    def adopt(self, items: TensorDictBase) -> None:
        """Count items that the storage brought along, as if they had filled it."""
        super().adopt(items)
        self._prepare_clusters()
        labels = self._labels(items.get(self.target_key))
        self._count_filled(labels, np.arange(len(items)))

    def resync_features(self) -> None:
        """Rebuild the posterior, and only that: new features are no new classes."""
        super().resync()

    def resync(self) -> None:
        """Look again at what is stored; a new class in a slot is in its last mode."""
        super().resync()
        size = len(self.slots)
        if not size:
            return
        held = self._held.array[:size]
        if self.clusters is not None:
            # Other items are of the group that was there, until clusters are found.
            np.maximum(held, 0, out=held)
            return
        labels = self._labels(self.slots.leaf(self.target_key)[:size])
        others = (held < 0) | (np.fmod(held, self.modes.num_classes) != labels)
        if others.any():
            held[others] = self.modes.groups_of(labels[others])


class _State(NamedTuple):
    """What follows from the items so far: as the writer keeps it."""

    moments: NDArray[np.float64]
    modes: NDArray[np.float64]
    numbers: Places
    held: Places
    reservoir_count: int
