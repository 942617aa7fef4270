"""What the memory knows, in step with what is in its slots: :class:`Knowledge`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.linear_algebra import on_host
from info_replay.posterior import BayesianLinearPosterior
from info_replay.statistics import Rows
from info_replay.writers.host import Counters
from info_replay.writers.offer import Changes, Offer, Plan
from info_replay.writers.rows import StoredRows
from info_replay.writers.slots import Slots

__all__ = ["Knowledge"]

#: Rows that may be added and subtracted, in units of the capacity, before the
#: statistics are computed anew, so that rounding never grows.
_REBUILD_AFTER = 10


class Knowledge:
    """A posterior of the features and targets in the slots of a storage.

    It follows what its writer stores by rank-one updates, and notices when somebody
    else wrote to the storage: then it starts again from what is there.

    Args:
        feature_key: entry that holds the features.
        target_key: entry that holds the targets.
        num_classes: targets are labels of that many classes; ``None`` for numbers.
        noise: ``sigma`` of the Bayesian model.
        jitter: ``c`` of the Bayesian model.
        dtype: floating type of the statistics.

    Attributes:
        posterior: the model, ``None`` before the first item; it may be out of step.
    """

    def __init__(
        self,
        feature_key: NestedKey,
        target_key: NestedKey,
        *,
        num_classes: int | None,
        noise: float,
        jitter: float,
        dtype: torch.dtype,
    ) -> None:
        self.feature_key = feature_key
        self.target_key = target_key
        self.num_classes = num_classes
        self.noise = noise
        self.jitter = jitter
        self.dtype = dtype
        self.posterior: BayesianLinearPosterior | None = None
        self._counters = Counters("revision", "changed_rows")
        self._counters["revision"] = -1
        self._shared = False
        self._classes = np.arange(num_classes or 0)[:, None]
        # The stored features and targets, when in step.
        self._seen: tuple[Tensor, Tensor] | None = None
        # Tells what was written but is not in the statistics yet.
        self._pending: Callable[[], Changes] | None = None
        self.rows = StoredRows(feature_key, target_key, self.encode)

    def encode(self, targets: Tensor) -> Rows:
        """Targets as numbers ``(n, K)``: one-hot for labels, all 0 for a wrong one.

        Labels on the host give an array.
        """
        if self.num_classes is None:
            return targets[:, None] if targets.ndim == 1 else targets
        if targets.ndim == 2:
            targets = targets[:, 0]
        if on_host(targets):
            # Class by class, which compares many labels at once.
            encoded: Rows = (self._classes == targets.numpy()).T
            return encoded
        return targets[:, None] == torch.arange(self.num_classes, device=targets.device)

    def make_posterior(
        self, slots: Slots, feature_dim: int, target_dim: int
    ) -> BayesianLinearPosterior:
        """A posterior without rows, for a memory of these slots."""
        return BayesianLinearPosterior(
            feature_dim,
            target_dim,
            noise=self.noise,
            jitter=self.jitter,
            max_rows=slots.capacity,
            dtype=self.dtype,
            device=slots.device,
        )

    def keep(self, posterior: BayesianLinearPosterior) -> None:
        """Take a posterior, if there is none yet."""
        if self.posterior is None:
            self.posterior = posterior
            if self._shared:
                posterior.share_memory_()

    def in_step(self, slots: Slots, revision: int | None = None) -> bool:
        """Whether nobody else wrote to the storage, whose revision may be known."""
        return (
            self._counters["revision"]
            == (slots.revision if revision is None else revision)
            # An entry that was replaced whole leaves the revision as it was.
            and (
                self._seen is None
                or (
                    self._seen[0] is slots.leaf(self.feature_key)
                    and self._seen[1] is slots.leaf(self.target_key)
                )
            )
        )

    def mark_in_step(self, slots: Slots, revision: int | None = None) -> None:
        """Note that the posterior is that of the slots as they are, or were at one."""
        self._counters["revision"] = slots.revision if revision is None else revision
        self._seen = (
            (slots.leaf(self.feature_key), slots.leaf(self.target_key))
            if slots.initialized
            else None
        )

    def catch_up(self, slots: Slots, size: int) -> None:
        """Rebuild the posterior if others wrote to the storage, or for rounding.

        Args:
            slots: of the storage.
            size: how many of them are in use.
        """
        posterior = self.posterior
        if posterior is None:
            return
        revision = slots.revision
        limit = _REBUILD_AFTER * max(slots.capacity, 1000)
        if self.in_step(slots, revision) and self._counters["changed_rows"] < limit:
            self._settle()
            return
        self._pending = None
        # Other processes would not know of what is kept here.
        rows = None if self._shared else self.rows.keep(slots, size, posterior)
        if rows is None:
            posterior.restart(size, lambda where: self.rows.of(slots, where, posterior))
        else:
            posterior.statistics.restart(rows)
        self._counters["changed_rows"] = 0
        self.mark_in_step(slots, revision)

    def learn(self, slots: Slots, offer: Offer, plan: Plan) -> None:
        """Follow what was written: the rows of a batch in the slots of a plan.

        Args:
            slots: of the storage.
            offer: the batch.
            plan: which of its rows were written, and where.
        """
        if plan.written:
            self.keep(offer.posterior)
            self.rows.drop()
            # New features of most slots are likely to come before the next batch, and
            # then the statistics start again from what is stored.
            self._pending = functools.partial(offer.changes, plan)
            self._counters["changed_rows"] += plan.written
            self.mark_in_step(slots)
            if self._shared:
                self._settle()

    def _settle(self) -> None:
        """Bring what is pending into the statistics."""
        if self._pending is not None and self.posterior is not None:
            self.posterior.statistics.replace(*self._pending())
        self._pending = None

    def write_back(
        self, slots: Slots, places: NDArray[np.int64], features: Tensor, size: int
    ) -> None:
        """Write new features to some slots, all different, and follow.

        Args:
            slots: of the storage.
            places: the slots to write to, shape ``(n,)``.
            features: shape ``(n, d0)``.
            size: how many slots are in use.
        """
        posterior = self.posterior
        self.rows.drop()
        if (
            posterior is None
            # Where most of the memory changes, starting again is cheaper than the
            # difference, and exact.
            or (posterior.form == "primal" and 2 * places.size >= size)
            or not self.in_step(slots)
        ):
            slots.write_leaf(self.feature_key, places, features)
        else:
            index = torch.from_numpy(places).to(features.device)
            old = slots.leaf(self.feature_key).index_select(0, index)
            targets = self.encode(slots.leaf(self.target_key).index_select(0, index))
            self._settle()
            slots.write_leaf(self.feature_key, places, features, index)
            posterior.refresh(old, features, torch.as_tensor(targets), rows=index)
            self._counters["changed_rows"] += places.size
            self.mark_in_step(slots)

    def clear(self) -> None:
        """Forget everything."""
        if self.posterior is not None:
            self.posterior.clear()
        self.rows.drop()
        self._pending = None
        self._counters["changed_rows"] = 0
        # The storage is emptied after its writer: the next use finds it changed.
        self._counters["revision"] = -1

    def state_dict(self, slots: Slots) -> dict[str, Any]:
        """The posterior to the bit, and whether it is in step."""
        self._settle()
        return {
            "posterior": None
            if self.posterior is None
            else self.posterior.state_dict(),
            "in_step": self.in_step(slots),
            "changed_rows": self._counters["changed_rows"],
        }

    def load_state_dict(self, slots: Slots, state: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`, the storage being restored already."""
        self.rows.drop()
        self._pending = None
        saved = state["posterior"]
        if saved is None:
            self.posterior = None
        else:
            posterior = self.posterior or self.make_posterior(
                slots, saved["feature_dim"], saved["target_dim"]
            )
            self.keep(posterior)
            posterior.load_state_dict(saved)
        self._counters["changed_rows"] = state["changed_rows"]
        if state["in_step"]:
            self.mark_in_step(slots)
        else:
            self._counters["revision"] = -1

    def share_memory_(self) -> None:
        """Move the posterior to memory that child processes share."""
        self._shared = True
        self._settle()
        self.rows.drop()
        self._counters.share_memory_()
        if self.posterior is not None:
            self.posterior.share_memory_()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the stored entries out: the twin has its own.

        On the way to a child process all becomes shared, so from now on nothing may
        wait or be kept in this process alone.
        """
        self._settle()
        if get_spawning_popen() is not None:
            self._shared = True
            self.rows.drop()
        return {**self.__dict__, "_seen": None}
