"""InfoGS: the most informative item takes the place of the least informative one."""

from __future__ import annotations

import functools

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.decision import Decision
from info_replay.model.candidates import CandidateBatch, largest_leverage
from info_replay.model.criteria import Criterion, Values, learnability
from info_replay.model.linear_algebra import on_host, row_products
from info_replay.model.moments import RunningMoments
from info_replay.model.scored_batch import ScoredBatch
from info_replay.model.sequential_scores import Assignment
from info_replay.registry import register_policy
from info_replay.validation import check_finite
from info_replay.writers.info_reservoir import InfoReservoirWriter

__all__ = ["InfoGreedyWriter"]

# An item of which a memory with it leaves less than this unexplained is far from all
# others.
_FAR = 1e-3


@register_policy("infogs")
class InfoGreedyWriter(InfoReservoirWriter):
    """Greedy selection (Sec. 2.4, Appendix, Alg. "InfoGS"), InfoGS-RS included.

    Again and again, the item of the batch with the largest criterion among those that
    pass the learnability threshold takes the place of the memory's item with the
    smallest criterion, provided that this improves the information by at least the
    threshold; then the batch is done. Thresholds stand still during a batch.

    Where the pseudocode leaves room: an item is stored once; what a batch adds to the
    moments is the score with which each item was tested last; items that fill the
    memory count as a batch of their own. Targets are standardized as before the batch.

    It shares model, moments and filling with :class:`InfoReservoirWriter`.

    Args:
        gamma: ``gamma_i`` of the information improvement threshold.
        gamma_learnability: ``gamma_l`` of the learnability threshold.
        reservoir: if true, an item that passes both thresholds is only stored if
            reservoir sampling accepts it, too (InfoGS-RS, Appendix "Ablation studies").
        criterion, noise, jitter, num_classes, feature_key, target_key: as in
            :class:`InfoReservoirWriter`.
        decay, scale_targets, dtype: as in :class:`InfoReservoirWriter`.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> writer = InfoGreedyWriter(num_classes=2, gamma_learnability=-3.0)
        >>> buffer = TensorDictReplayBuffer(
        ...     storage=LazyTensorStorage(4), writer=writer
        ... )
        >>> labels = torch.tensor([0] * 8 + [1] * 8)
        >>> items = TensorDict(
        ...     {"feature": torch.eye(2)[labels], "target": labels}, batch_size=[16]
        ... )
        >>> for batch in items.split(4):
        ...     slots = buffer.extend(batch)
        >>> bool((buffer[:]["target"] == 1).any())
        True
    """

    def __init__(
        self,
        *,
        criterion: Criterion | None = None,
        gamma: float = 0.0,
        gamma_learnability: float = 0.0,
        reservoir: bool = False,
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
            gamma=gamma,
            noise=noise,
            jitter=jitter,
            num_classes=num_classes,
            feature_key=feature_key,
            target_key=target_key,
            decay=decay,
            scale_targets=scale_targets,
            dtype=dtype,
        )
        check_finite("gamma_learnability", gamma_learnability)
        self.gamma_learnability = gamma_learnability
        self.reservoir = reservoir
        self.block_size = None  # a batch is decided as a whole
        self._warned = True  # that few items enter is what greedy selection does
        self.learnability_moments = self.declare(
            "learnability_moments", RunningMoments(decay)
        )

    def _all_moments(self) -> list[tuple[RunningMoments, Criterion]]:
        return [
            (self.moments, self.criterion),
            (self.learnability_moments, _Learnability()),
        ]

    def _select(self, items: ScoredBatch) -> Decision:
        """Alg. "InfoGS" for a batch that meets a full memory, with its line numbers."""
        count, capacity = items.count, self.slots.capacity
        assignment = Assignment(count)
        contest = _Contest(self, items)
        improvement = self.moments.threshold(self.gamma, self.dtype)
        least_learnability = self.learnability_moments.threshold(
            self.gamma_learnability, self.dtype
        )
        draws = self.uniforms(count)[:, 0]
        reservoir_count = self.reservoir_count
        waiting = np.ones(count, dtype=bool)
        tested = np.zeros((2, count))
        while waiting.any():
            # Lines 12 and 13: the best item of the batch, the worst of the memory.
            scores, learnabilities, choice, *spread = items.fetch(
                *contest.best_swap(waiting, least_learnability)
            )
            items.check_scores(scores, learnabilities, choice)
            tested[0, waiting] = scores[waiting]
            tested[1, waiting] = learnabilities[waiting]
            eligible, row, slot, gained, lost = choice
            # Line 14: information thresholding.
            if not eligible or gained < lost + improvement:
                break
            row, slot = int(row), int(slot)
            waiting[row] = False
            reservoir_count += 1
            if not self.reservoir or draws[row] * reservoir_count < capacity:
                # Lines 15 and 16: the memory, A and b.
                assignment.give(row, slot, contest.memory[slot : slot + 1])
                contest.swap(row, slot, assignment, *map(float, spread))

        def commit() -> None:
            # Lines 18 and 22: the running moments.
            self.moments.update(tested[0])
            self.learnability_moments.update(tested[1])
            self._add_to_standardization(items)
            self.reservoir_count = reservoir_count
            if assignment.owner:
                rows = torch.as_tensor(items.rows)
                self.memory.follow(*assignment.changes(rows))

        return Decision(assignment.slots, commit)


class _Learnability(Criterion):
    """Learnability alone, whose moments InfoGS keeps beside those of its criterion."""

    takes_arrays = True

    def __call__(
        self,
        leverage: Values,
        squared_error: Values,
        *,
        noise: float,
        num_outputs: int = 1,
    ) -> Values:
        """Score points; see :meth:`Criterion.__call__`."""
        return learnability(
            leverage, squared_error, noise=noise, num_outputs=num_outputs
        )


class _Contest:
    """The items of a batch and of the memory, as one set of candidates.

    Rows ``0 .. n-1`` are the batch, rows ``n .. n+M-1`` the slots; ``memory`` has the
    features and targets of the slots before the batch.
    """

    def __init__(self, writer: InfoGreedyWriter, items: ScoredBatch) -> None:
        self.writer = writer
        self.items = items
        self.count = items.count
        stored = writer.memory.rows(np.arange(len(writer.slots)))
        self.memory = torch.as_tensor(stored)
        self.rows = torch.cat([torch.as_tensor(items.rows), self.memory])
        self.batch = CandidateBatch(items.posterior.statistics, self.rows)
        self.standards = self._standards_before()

    @property
    def alone(self) -> Tensor:
        """The leverage ``(n + M,)`` of each in a memory of its own: the largest one."""
        statistics = self.items.posterior.statistics
        features = self.rows[:, : statistics.feature_dim]
        return row_products(features, features) / statistics.jitter

    def _rest(self, leverage: Tensor) -> Tensor:
        """``1 - v`` of the slots, which are in the memory themselves."""
        rest = 1 - leverage
        # Where rounding shows, an item is far from all others. The host can see that.
        if on_host(rest) and float(rest.min()) > _FAR:
            return rest
        return torch.maximum(rest, 1 / (1 + self.alone[self.count :]))

    def _standards_before(self) -> Tensor | None:
        """The matrix that standardizes targets, by what came before the batch."""
        statistics = self.writer.memory.standardization
        if statistics is None:
            return None
        eps = torch.finfo(self.items.targets.dtype).eps
        matrix = statistics.now(self.items.num_outputs, eps).matrix()
        return torch.from_numpy(matrix).to(self.rows)

    def _errors(self, residuals: Tensor) -> Tensor:
        """Squared errors ``(n,)`` of residuals ``(n, K)``."""
        if self.standards is not None:
            residuals = residuals @ self.standards
        return row_products(residuals, residuals)

    def _criterion(
        self, criterion: Criterion, leverage: Tensor, error: Tensor
    ) -> Tensor:
        noise, outputs = self.writer.noise, self.items.num_outputs
        return criterion(leverage, error, noise=noise, num_outputs=outputs)

    def best_swap(
        self, waiting: NDArray[np.bool_], least_learnability: float
    ) -> list[Tensor]:
        """The best of the waiting, learnable items and the worst slot of the memory.

        Returns criteria ``(n,)`` and learnabilities ``(n,)`` of the batch and ``(5,)``
        numbers: whether an item is eligible, the best one, the worst slot, and the
        criteria of these two. Not on the host, where it can be asked for later, also
        the largest leverage that an item could have.
        """
        batch, count = self.batch, self.count
        leverage, error = batch.leverage[:count], self._errors(batch.residual[:count])
        scores = self._criterion(self.writer.criterion, leverage, error)
        learnabilities = self._criterion(_Learnability(), leverage, error)
        eligible = learnabilities >= least_learnability
        eligible &= torch.from_numpy(waiting).to(scores.device)
        gained, row = torch.where(eligible, scores, -torch.inf).max(0)
        # The memory with the best item added, then each of its items left out: all
        # stays on the device, row included, until the one transfer of the round.
        leverages, residuals = batch.with_point(
            batch.representation.index_select(0, row[None]),
            batch.targets.index_select(0, row[None]),
        )
        with_it, residuals = leverages[count:], residuals[count:]
        rest = self._rest(with_it)
        memory = self._criterion(
            self.writer.criterion,
            with_it / rest,
            self._errors(residuals) / rest.square(),
        )
        lost, slot = memory.min(0)
        some = eligible.any()
        choice = (some, row, slot, torch.where(some, gained, 0), lost)
        numbers = torch.stack([each.double() for each in choice])
        more = [] if on_host(scores) else [self.alone.max()]
        return [scores, learnabilities, numbers, *more]

    def swap(
        self, row: int, slot: int, assignment: Assignment, largest: float | None = None
    ) -> None:
        """Store an item of the batch in a slot of the memory, as it was assigned."""
        if largest is None:
            largest = float(self.alone.max())
        place = self.count + slot
        pair = [row, place]
        batch = self.batch
        fragile = not largest < largest_leverage(self.writer.dtype)
        if not fragile:
            batch.change(batch.representation[pair], batch.targets[pair], (1, -1))
            batch.copy_row(row, place)
        self.rows[place] = self.rows[row]
        if fragile or batch.needs_refresh:
            statistics = self.items.posterior.statistics.clone()
            old, new, slots = assignment.changes(self.rows[: self.count])
            places = torch.from_numpy(slots).to(statistics.device)
            statistics.replace(old, new, places)
            self.batch = CandidateBatch(statistics, self.rows)


register_policy("infogs-rs")(functools.partial(InfoGreedyWriter, reservoir=True))
