"""InfoRS: reservoir sampling among the items that are informative (Alg. 1)."""

from __future__ import annotations

import functools
from typing import Any

from tensordict import TensorDictBase

from info_replay.moments import tolerance
from info_replay.posterior import BayesianLinearPosterior
from info_replay.registry import register_policy
from info_replay.writers.base import Commit
from info_replay.writers.information import InformationWriter
from info_replay.writers.offer import Offer, Plan
from info_replay.writers.swaps import MOST_SWAPS, Swaps

__all__ = ["InfoReservoirWriter"]

# Items that are decided together; the result is the same for any number. Larger blocks
# cost more where much is written, smaller ones where little is.
_BLOCK = 512


@register_policy("infors")
class InfoReservoirWriter(InformationWriter):
    """Keeps a uniform sample of the informative items (Sec. 3.2, Alg. 1 "InfoRS").

    An item enters reservoir sampling if the memory has room, or if its criterion given
    the memory is at least ``mean + gamma * deviation`` of all criteria before it.

    The algorithm is sequential: each item meets the memory and the moments that the one
    before it left. A batch gives exactly that result at batch speed: all items are
    scored at once as if none were written, then again as if those were that should be,
    until both agree; see :class:`~info_replay.writers.swaps.Swaps`.

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
        swaps = Swaps(offer, functools.partial(self._stored_row, offer.posterior))
        state = self.moments.state
        count, capacity = self.reservoir_count, self.slots.capacity
        end = len(offer)
        # Most items would not be written even if they and nobody else passed; a few
        # more than that are looked at, for rounding.
        draws = self._uniforms(end)[:, 0]
        rows = (draws < 1.001 * capacity / (count + 1)).nonzero()[0]
        lucky = list(zip(rows.tolist(), draws[rows].tolist(), strict=True))
        start = 0
        while start < end:
            points = self._fetch_points(offer, data, *swaps.points(start))
            scores = self._score_on_host(self.criterion, offer, points)
            walk = self.moments.walk(scores, state)
            threshold = walk.means[:-1]
            if self.gamma:
                threshold = threshold + self.gamma * walk.deviations[:-1]
            # As bytes, 1 for each that passed: few are asked for, and quickly counted.
            passed = (scores >= threshold - tolerance(threshold, self.dtype)).tobytes()
            found: list[tuple[int, int]] = []
            for row, draw in lucky:
                if row >= start and passed[row - start]:
                    slot = draw * (count + passed.count(1, 0, row - start + 1))
                    if slot < capacity:
                        found.append((row, int(slot)))
                        if len(found) > MOST_SWAPS:
                            break
            final = swaps.confirm(found)
            state = walk.after(final - start)
            count += passed.count(1, 0, final - start)
            start = final

        def commit() -> None:
            self.moments.state = state
            self._counters["reservoir_count"] = count

        return swaps.plan, commit

    def _stored_row(self, posterior: BayesianLinearPosterior, slot: int) -> Any:
        return self._knowledge.rows.of(self.slots, slice(slot, slot + 1), posterior)
