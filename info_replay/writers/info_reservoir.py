"""InfoRS: reservoir sampling among the items that are informative (Alg. 1)."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase

from info_replay.candidates import CandidateBatch
from info_replay.linear_algebra import alike
from info_replay.moments import deviations
from info_replay.writers.base import Commit
from info_replay.writers.information import InformationWriter, tolerance
from info_replay.writers.offer import Offer, Plan

__all__ = ["InfoReservoirWriter"]

# Items that are decided together; the result is the same for any number. Larger blocks
# cost more where much is written, smaller ones where little is.
_BLOCK = 512


class InfoReservoirWriter(InformationWriter):
    """Keeps a uniform sample of the informative items (Sec. 3.2, Alg. 1 "InfoRS").

    An item enters reservoir sampling if the memory has room, or if its criterion given
    the memory is at least ``mean + gamma * deviation`` of all criteria before it.

    The algorithm is sequential: each item meets the memory and the moments that the one
    before it left. A batch gives exactly that result at batch speed: all items are
    scored at once, everything up to the first one that is written is final, and only
    then are the scores of the rest corrected, at rank-one cost.

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
        dtype: floating type of the statistics.

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

    def _block_size(self) -> int:
        return _BLOCK

    def _select(self, offer: Offer, data: TensorDictBase) -> tuple[Plan, Commit]:
        """Alg. 1 for a batch that meets a full memory."""
        batch = offer.candidates()
        plan = Plan.empty(len(offer))
        draws = self._uniforms(len(offer))[:, 0]
        state = self.moments.state
        count, capacity = self.reservoir_count, self.slots.capacity
        start = 0
        while start < len(offer):
            (scores,) = self._fetch_scores(
                [self.criterion],
                offer,
                data,
                batch.leverage[start:],
                batch.squared_error[start:],
            )
            path = self.moments.path(scores, state)
            threshold = path[1, :-1]
            if self.gamma:
                threshold = threshold + self.gamma * deviations(path[:, :-1])
            passed = scores >= threshold - tolerance(threshold, self.dtype)
            counts = count + passed.cumsum()
            slots = draws[start:] * counts
            written = (passed & (slots < capacity)).nonzero()[0]
            # Up to and with the first item that is written, the scores are final.
            final = int(written[0]) + 1 if written.size else len(scores)
            state = path[:, final]
            count = int(counts[final - 1])
            start += final
            if written.size:
                slot, row = int(slots[final - 1]), start - 1
                gone = self._holder(batch, offer, plan, slot)
                plan.put(row, slot)
                if batch.is_worn:
                    batch = offer.candidates(plan)
                elif start < len(offer):
                    batch.swap(row, *gone)

        def commit() -> None:
            self.moments.state = state
            self._counters["reservoir_count"] = count

        return plan, commit

    def _holder(
        self, batch: CandidateBatch[Any], offer: Offer, plan: Plan, slot: int
    ) -> tuple[Any, Any]:
        """Representation and target of the item that holds a slot right now."""
        row = plan.owner(slot)
        if row is not None:
            return batch.representation[row : row + 1], batch.targets[row : row + 1]
        stored = self._knowledge.rows.of(
            self.slots, slice(slot, slot + 1), offer.posterior
        )
        plan.old.append(stored)
        row = alike(stored, batch.targets)
        width = offer.posterior.statistics.feature_dim
        return batch.represent(row[:, :width]), row[:, width:]
