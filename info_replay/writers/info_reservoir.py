"""InfoRS: reservoir sampling among the items that are informative (Alg. 1)."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.decision import Decision, Places
from info_replay.model.criteria import MIC, Criterion
from info_replay.model.memory_posterior import MemoryPosterior
from info_replay.model.moments import RunningMoments
from info_replay.model.posterior import BayesianLinearPosterior
from info_replay.model.scored_batch import ScoredBatch
from info_replay.model.sequential_scores import SequentialScores
from info_replay.model.standardization import RunningStandardization
from info_replay.registry import register_policy
from info_replay.validation import (
    check_count,
    check_finite,
    check_model,
    read_features,
    read_labels,
    read_regression_targets,
)
from info_replay.writers.base import SelectionWriter

__all__ = ["InfoReservoirWriter"]

# Items that are decided together; the result is the same for any number. Larger blocks
# cost more where much is written, smaller ones where little is.
_BLOCK = 512
# Items that are stored together while the memory fills: their mutual products are
# factorized, which must not grow with the batch.
_FILL_BLOCK = 256
# A memory that less than this share of so many items enter says so.
_FEW = 0.002
_MANY_ITEMS = 1000
# Non-finite values are detected only after the transfer; silence NumPy until then.
_QUIET = np.errstate(all="ignore")


@register_policy("infors")
class InfoReservoirWriter(SelectionWriter):
    """Keeps a uniform sample of the informative items (Sec. 3.2, Alg. 1 "InfoRS").

    An item enters reservoir sampling if the memory has room, or if its criterion given
    the memory is at least ``mean + gamma * deviation`` of all criteria before it.

    The algorithm is sequential: each item meets the memory and the moments that the one
    before it left. A batch gives exactly that result at batch speed; see
    :mod:`info_replay.model.sequential_scores`.

    Args:
        criterion: what "informative" means, :class:`MIC` by default.
        gamma: ``gamma_i`` of the threshold.
        noise: ``sigma`` of the Bayesian model.
        jitter: ``c`` of the Bayesian model.
        num_classes: targets are labels of that many classes; ``None`` for regression
            targets of shape ``(n,)`` or ``(n, K)``.
        feature_key: entry that holds the features, shape ``(n, d0)``.
        target_key: entry that holds the targets.
        decay: of the running moments; see :class:`RunningMoments`.
        scale_targets: whether regression targets are standardized, inside the model, by
            mean and deviation of all that were offered, so that their units make no
            difference; what is stored stays as it is.
        dtype: floating type of the statistics.

    Attributes:
        moments: running moments of the criterion over all offered items.
        standardization: statistics of regression targets, ``None`` without.
        block_size: items that are decided together at most, ``None`` for all.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> writer = InfoReservoirWriter(num_classes=2)
        >>> writer.seed = 0
        >>> buffer = TensorDictReplayBuffer(
        ...     storage=LazyTensorStorage(10), writer=writer
        ... )
        >>> labels = torch.tensor([0] * 990 + [1] * 10)
        >>> items = TensorDict(
        ...     {"feature": labels[:, None] + torch.zeros(1000, 3), "target": labels},
        ...     batch_size=[1000],
        ... )
        >>> slots = buffer.extend(items)
        >>> buffer[:]["target"].bincount().tolist()  # the rare class has a share
        [4, 6]
        >>> writer.reservoir_count, buffer.write_count  # repetitions did not pass
        (20, 1000)
    """

    block_size: int | None = _BLOCK

    def __init__(
        self,
        *,
        criterion: Criterion | None = None,
        gamma: float = 0.0,
        noise: float = 0.3,
        jitter: float = 0.1,
        num_classes: int | None = None,
        feature_key: NestedKey = "feature",
        target_key: NestedKey = "target",
        decay: float | None = None,
        scale_targets: bool = True,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        criterion = MIC() if criterion is None else criterion
        if not isinstance(criterion, Criterion):
            raise TypeError(
                f"criterion must be a Criterion such as MIC(), got {criterion!r}"
            )
        check_finite("gamma", gamma)
        if dtype not in (torch.float32, torch.float64):
            raise TypeError(f"dtype must be torch.float32 or float64, got {dtype}")
        check_model(noise, jitter, dtype)
        if num_classes is not None:
            check_count("num_classes", num_classes)
        if not isinstance(scale_targets, bool):
            raise TypeError(f"scale_targets must be a bool, got {scale_targets!r}")
        self.criterion = criterion
        self.gamma = gamma
        self.noise = noise
        self.jitter = jitter
        self.num_classes = num_classes
        self.feature_key: NestedKey = feature_key
        self.target_key = target_key
        self.decay = decay
        self.scale_targets = scale_targets
        self.dtype = dtype
        self.moments = self.declare("moments", RunningMoments(decay))
        self.standardization: RunningStandardization | None = None
        if scale_targets and num_classes is None:
            self.standardization = self.declare(
                "standardization", RunningStandardization()
            )
        self.memory = self.declare(
            "memory",
            MemoryPosterior(
                feature_key,
                target_key,
                num_classes=num_classes,
                noise=noise,
                jitter=jitter,
                dtype=dtype,
                standardization=self.standardization,
            ),
        )
        self._warned = False
        self.largest_feature = self.memory.largest_feature

    # -- Algorithm 1 ------------------------------------------------------------------

    @_QUIET
    def decide(self, batch: TensorDictBase) -> Decision:
        """Give slots to the items of a batch; see :meth:`SelectionWriter.decide`."""
        if self.memory.posterior is not None:  # shapes and types are as before
            features = batch.get(self.feature_key)
            items = ScoredBatch(self.memory, features, batch.get(self.target_key))
        else:
            items = self._read(batch)
        if len(self.slots) < self.slots.capacity:
            return self._fill(items)
        return self._select(items)

    def _select(self, items: ScoredBatch) -> Decision:
        """Algorithm 1 for items that meet a full memory, with its line numbers."""
        if not self._warned:
            self._warn_of_few()
        capacity = self.slots.capacity
        draws = self.uniforms(items.count)[:, 0]

        def accept(
            first: int, by_criterion: list[NDArray[np.float64]], state: tuple[Any, int]
        ) -> tuple[Places, Places, Callable[[int], tuple[Any, int]]]:
            # Lines 6 to 12 for the items from the first on, given what they score.
            (scores,), (before, n) = by_criterion, state
            moments = self.moments.walk(scores, before)
            # Line 7: information thresholding.
            passes = scores >= moments.thresholds(self.gamma, self.dtype)
            rows = passes.nonzero()[0]
            # Line 8: reservoir sampling, a random place of n + 1 that may be a slot.
            places = draws[first + rows] * (n + 1 + np.arange(rows.size))
            enters = places < capacity

            # Line 8: the count n, and line 11: the running moments.
            def state_after(count: int) -> tuple[Any, int]:
                return moments.after(count), n + int(rows.searchsorted(count))

            return first + rows[enters], places[enters].astype(np.int64), state_after

        # Line 9: SequentialScores updates A and b where the memory is updated.
        sequence = SequentialScores(items, self.criterion)
        state = sequence.run(accept, (self.moments.state, self.reservoir_count))
        assignment = sequence.assignment

        def commit() -> None:
            self.moments.state, self.reservoir_count = state
            self._add_to_standardization(items)
            if assignment.owner:
                self.memory.follow(*assignment.changes(items.rows))

        return Decision(assignment.slots, commit)

    def _fill(self, items: ScoredBatch) -> Decision:
        """Store all items of a batch for which there is room."""
        slots = len(self.slots) + np.arange(items.count)
        scores = self._score_in_sequence(items)

        def commit() -> None:
            self._add_to_moments(scores)
            self._add_to_standardization(items)
            self.reservoir_count += items.count
            self.memory.keep(items.posterior)
            self.memory.follow(None, items.rows, slots)

        return Decision(slots, commit)

    # -- moments ----------------------------------------------------------------------

    def _all_moments(self) -> list[tuple[RunningMoments, Criterion]]:
        """The moments that the policy keeps and what they are of."""
        return [(self.moments, self.criterion)]

    def _score_in_sequence(self, items: ScoredBatch) -> list[NDArray[np.float64]]:
        """What the moments are of, for items of which each is stored."""
        leverages, residuals = items.candidates().in_sequence()
        points: Any = items.fetch(leverages, items.errors(residuals))
        return [items.score(criterion, *points) for _, criterion in self._all_moments()]

    def _add_to_standardization(self, items: ScoredBatch) -> None:
        if self.standardization is not None and (
            items.standardization_state is not None
        ):
            self.standardization.state = items.standardization_state

    def _add_to_moments(self, scores: list[NDArray[np.float64]]) -> None:
        for (moments, _), values in zip(self._all_moments(), scores, strict=True):
            moments.update(values)

    def _warn_of_few(self) -> None:
        """Say, once, if hardly anything has passed; before anything is changed."""
        capacity = self.slots.capacity
        offered = self._write_count - capacity
        passed = self.reservoir_count - capacity
        if passed < _FEW * offered and offered >= max(_MANY_ITEMS, 2 * capacity):
            self._warned = True
            warnings.warn(
                f"only {passed} of the last {offered} items were informative enough to "
                "enter the memory, which keeps its first items then: is gamma "
                f"({self.gamma:g}) too high, or noise ({self.noise:g}) too small or "
                "too large beside the targets?",
                RuntimeWarning,
                stacklevel=2,
            )

    # -- the rest of the contract -----------------------------------------------------

    def _read(self, data: TensorDictBase) -> ScoredBatch:
        """Features and targets of a batch."""
        read_targets = (
            read_regression_targets if self.num_classes is None else read_labels
        )
        return ScoredBatch(
            self.memory,
            read_features(data, self.feature_key),
            read_targets(data, self.target_key),
        )

    def split(self, count: int) -> list[slice]:
        """Parts that fill the memory, and parts that meet a full one."""
        filled = min(count, self.slots.capacity - len(self.slots))
        size = self.block_size or count
        if not filled and count <= size:
            return [slice(0, count)]
        cuts = [*range(0, filled, _FILL_BLOCK), *range(filled, count, size), count]
        return [slice(a, b) for a, b in itertools.pairwise(cuts)]

    def check_state(self, state_dict: dict[str, Any]) -> None:
        """Raise ``ValueError`` if a saved state does not fit; changes nothing."""
        super().check_state(state_dict)
        counts, state = state_dict["counts"], state_dict["state"]
        posterior = state["memory"]["posterior"]
        stored = counts["reservoir_count"] and not counts["preloaded"]
        if stored and posterior is None:
            raise ValueError("cannot restore 'memory': expected a posterior of items")
        if posterior is None or not self.slots.schema():
            return
        width = self.memory.check_widths(posterior)
        standards = state.get("standardization")
        if standards is not None and len(standards) != 1 + 2 * width:
            raise ValueError(
                f"cannot restore 'standardization': expected statistics of {width} "
                f"targets, got {len(standards) // 2}"
            )

    def check_stored(self, items: TensorDictBase) -> None:
        """Raise ``ValueError`` if saved items cannot be computed with."""
        self.check(items)

    def check(self, batch: TensorDictBase) -> None:
        """Refuse features and targets that cannot be computed with."""
        self._read(batch).check()

    def prepare(self, batch: TensorDictBase) -> None:
        """Make the posterior, if there is none yet."""
        if self.memory.posterior is None:
            items = self._read(batch[:1])
            self.memory.keep(items.posterior)
            if self.standardization is not None:
                self.standardization.prepare(items.num_outputs)

    def adopt(self, items: TensorDictBase) -> None:
        """Count items that the storage brought along, as if they had filled it."""
        self.check(items)
        for start in range(0, len(items), _FILL_BLOCK):
            part = slice(start, min(start + _FILL_BLOCK, len(items)))
            batch = self._read(items[part])
            self._add_to_moments(self._score_in_sequence(batch))
            self._add_to_standardization(batch)
            batch.posterior.statistics.replace(None, batch.rows, part)
            self.memory.keep(batch.posterior)

    def computing(self) -> AbstractContextManager[None]:
        """On one thread, unless features are wide."""
        return self.memory.threads()

    def mark_in_step(self) -> None:
        """Note that the posterior is that of the stored items, if it is."""
        if self.memory.is_current:
            super().mark_in_step()

    def resync(self) -> None:
        """Rebuild the posterior from what is stored."""
        self.memory.rebuild()

    def refresh(self, slots: Places, features: Tensor) -> bool:
        """Let the posterior follow new features of stored items."""
        return self.memory.refresh(slots, features)

    # -- for the user -----------------------------------------------------------------

    @property
    def posterior(self) -> BayesianLinearPosterior | None:
        """What the memory knows, in step with it; ``None`` before the first item.

        With ``scale_targets``, of targets in units of their deviation from their mean.
        """
        with self.computing():
            self.catch_up()
            return self.memory.standardized()

    @_QUIET
    def score(self, data: TensorDictBase) -> Tensor:
        """The criterion of items against the memory as it is; changes nothing.

        Args:
            data: a batch with features and targets.

        Returns:
            Scores, shape ``(n,)``.
        """
        with self.computing():
            self.catch_up()
            items = self._read(data)
            candidates = items.candidates()
        residuals = torch.as_tensor(candidates.residual)
        if self.standardization is not None:
            eps = torch.finfo(items.targets.dtype).eps
            matrix = self.standardization.now(items.num_outputs, eps).matrix()
            residuals = residuals @ torch.from_numpy(matrix).to(residuals)
        scores = self.criterion(
            torch.as_tensor(candidates.leverage),
            torch.linalg.vecdot(residuals, residuals),
            noise=self.noise,
            num_outputs=items.num_outputs,
        )
        items.fetch(scores)
        return scores
