"""The posterior of what a memory holds, kept in step with it: :class:`MemoryPosterior`.

It follows what is stored by rank-one updates and, from time to time, starts again from
what is there, so that rounding never grows.
"""

from __future__ import annotations

import contextlib
import math
from contextlib import AbstractContextManager
from multiprocessing.context import get_spawning_popen
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from info_replay.model.linear_algebra import as_array, known_within, on_host
from info_replay.model.posterior import BayesianLinearPosterior
from info_replay.model.standardization import RunningStandardization
from info_replay.model.statistics import Rows
from info_replay.shared_state import SharedNumber
from info_replay.threads import ONE_BLAS_THREAD
from info_replay.validation import check_count, told

__all__ = ["MemoryPosterior", "StoredItems"]

# Rows that may be added and subtracted, in units of the capacity, before the statistics
# are computed anew.
_REBUILD_AFTER = 10
# Memories of up to so many times d items start again with every change: that costs as
# much as following a few rows, and new features of most items are likely to come first.
_SMALL = 2
# Rows with features above this share of the largest ones are not added and subtracted:
# their rounding would add up.
_LARGE = 0.1
# Features of up to this width are computed with on one thread.
_NARROW = 1024


class StoredItems(Protocol):
    """The slots of a memory, as far as a posterior looks at them."""

    capacity: int

    def __len__(self) -> int:
        """Number of slots in use, the first ones."""

    @property
    def device(self) -> torch.device:
        """Where they are."""

    def leaf(self, key: Any) -> Tensor:
        """The entry of all slots, one row per slot."""


class MemoryPosterior:
    """A posterior of the features and targets in the slots of a memory (Sec. 2.3).

    Args:
        feature_key: entry that holds the features.
        target_key: entry that holds the targets.
        num_classes: targets are labels of that many classes; ``None`` for numbers.
        noise: ``sigma`` of the Bayesian model.
        jitter: ``c`` of the Bayesian model.
        dtype: floating type of the statistics.
        standardization: statistics that the targets are standardized by, whenever they
            are asked about; the posterior has them as they are, and a column of ones.

    Attributes:
        posterior: the model, ``None`` before the first item.
        is_current: whether it has followed the last change.
        largest_feature: size of features that can be computed with.
        largest_target: size of targets that can be computed with.
    """

    slots: StoredItems

    def __init__(
        self,
        feature_key: Any,
        target_key: Any,
        *,
        num_classes: int | None,
        noise: float,
        jitter: float,
        dtype: torch.dtype,
        standardization: RunningStandardization | None = None,
    ) -> None:
        self.standardization = standardization
        self.feature_key = feature_key
        self.target_key = target_key
        self.num_classes = num_classes
        self.noise = noise
        self.jitter = jitter
        self.dtype = dtype
        # Beyond this, the jitter would be lost in rounding beside a squared norm.
        self.largest_feature = math.sqrt(0.01 * jitter / torch.finfo(dtype).eps)
        # Beyond this, sums of squared errors would not be finite.
        self.largest_target = 1e-4 * math.sqrt(torch.finfo(dtype).max) * min(noise, 1.0)
        self.posterior: BayesianLinearPosterior | None = None
        self._classes = np.arange(num_classes or 0)[:, None]
        self.is_current = True
        self._rows: Any = None  # that a small memory was last rebuilt from
        self._changed_rows = SharedNumber()
        self._shared = False

    def attach(self, slots: StoredItems) -> None:
        """Take the slots whose items the posterior is of."""
        self.slots = slots

    def encode(self, targets: Tensor) -> Rows:
        """Targets as numbers ``(n, K)``: one-hot for labels, all 0 for a wrong one.

        Labels on the host give an array.
        """
        if self.num_classes is None:
            numbers = targets[:, None] if targets.ndim == 1 else targets
            if self.standardization is None:
                return numbers
            return torch.nn.functional.pad(numbers, (0, 1), value=1.0)
        if targets.ndim == 2:
            targets = targets[:, 0]
        if on_host(targets):
            # Class by class, which compares many labels at once.
            encoded: Rows = (self._classes == targets.numpy()).T
            return encoded
        return targets[:, None] == torch.arange(self.num_classes, device=targets.device)

    def for_shapes(self, feature_dim: int, target_dim: int) -> BayesianLinearPosterior:
        """The posterior or, before the first item, a new one for these shapes."""
        posterior = self.posterior
        if posterior is None:
            return BayesianLinearPosterior(
                feature_dim,
                target_dim,
                noise=self.noise,
                jitter=self.jitter,
                max_rows=self.slots.capacity,
                dtype=self.dtype,
                device=self.slots.device,
            )
        if feature_dim != posterior.feature_dim:
            raise ValueError(
                f"entry {self.feature_key!r} must be {posterior.feature_dim} wide, got "
                f"{feature_dim}"
            )
        if target_dim != posterior.target_dim:
            ones = int(self.standardization is not None)
            raise ValueError(
                f"entry {self.target_key!r} must have {posterior.target_dim - ones} "
                f"outputs, got {target_dim - ones}"
            )
        return posterior

    def standardized(self) -> BayesianLinearPosterior | None:
        """The posterior of standardized targets, as they are now; a copy."""
        if self.standardization is None or self.posterior is None:
            return self.posterior
        width = self.posterior.target_dim - 1
        eps = torch.finfo(self.slots.leaf(self.target_key).dtype).eps
        standards = self.standardization.now(width, eps)
        return self.posterior.with_targets(torch.from_numpy(standards.matrix()))

    def keep(self, posterior: BayesianLinearPosterior) -> None:
        """Take a posterior, if there is none yet."""
        if self.posterior is None:
            self.posterior = posterior
            if self._shared:
                posterior.share_memory_()

    def threads(self) -> AbstractContextManager[None]:
        """Around linear algebra; features known to be wide are worth all threads."""
        narrow = self.posterior is None or self.posterior.feature_dim <= _NARROW
        return ONE_BLAS_THREAD if narrow else contextlib.nullcontext()

    # -- in step with the memory ------------------------------------------------------

    def rows(self, slots: list[int] | NDArray[np.int64]) -> Any:
        """Rows ``(n, d + K)`` of some slots: an array on the host, else a tensor."""
        if self._rows is not None:
            return self._rows[slots]
        assert self.posterior is not None
        index = torch.as_tensor(slots, device=self.posterior.device)
        features = self.slots.leaf(self.feature_key).index_select(0, index)
        targets = self.slots.leaf(self.target_key).index_select(0, index)
        return self.posterior.statistics.join(features, self.encode(targets))

    def rebuild(self) -> None:
        """Start again from what the memory holds."""
        self.is_current = True
        posterior, size = self.posterior, len(self.slots)
        if posterior is None:
            return
        features = self.slots.leaf(self.feature_key)
        targets = self.slots.leaf(self.target_key)
        if size < self.slots.capacity:
            features, targets = features[:size], targets[:size]
        self._changed_rows.array[:] = 0
        if self._is_small and size:
            rows = posterior.statistics.join(features, self.encode(targets))
            posterior.statistics.restart(rows)
            # Other processes would not know when they are outdated.
            self._rows = None if self._shared else rows
        else:
            posterior.statistics.rebuild(features, targets, self.encode)

    @property
    def _is_small(self) -> bool:
        """Whether starting again costs no more than following a few rows."""
        posterior = self.posterior
        return (
            posterior is not None
            and posterior.form == "primal"
            and self.slots.capacity <= _SMALL * posterior.feature_dim
        )

    def follow(self, old: Rows | None, new: Rows, slots: NDArray[np.int64]) -> None:
        """Follow items that were stored, or leave that to the next :meth:`rebuild`."""
        posterior = self.posterior
        assert posterior is not None
        self._rows = None
        self.is_current = not (
            self._is_small or self._is_worn(len(slots)) or self._are_large(new)
        )
        if self.is_current:
            places = torch.from_numpy(slots).to(posterior.device)
            posterior.statistics.replace(old, new, places)

    def refresh(self, slots: NDArray[np.int64], features: Tensor) -> bool:
        """Follow new features, before they are written; ``False`` if it could not."""
        posterior = self.posterior
        self._rows = None
        # Where most of the memory changes, starting again is cheaper, and exact.
        most = 2 * slots.size >= len(self.slots)
        if posterior is None or (posterior.form == "primal" and most):
            return False
        if self._is_worn(slots.size) or self._are_large(features):
            return False
        places = torch.from_numpy(slots).to(features.device)
        targets = self.encode(self.slots.leaf(self.target_key).index_select(0, places))
        old = self.slots.leaf(self.feature_key).index_select(0, places)
        statistics = posterior.statistics
        statistics.replace(
            statistics.join(old, targets), statistics.join(features, targets), places
        )
        return True

    def _are_large(self, rows: Rows) -> bool:
        """Whether rounding of rows would add up, as far as the host knows."""
        posterior = self.posterior
        if posterior is None or posterior.form == "kernel":
            return False  # rows are written, not added
        if isinstance(rows, Tensor):
            if not on_host(rows):
                return False
            rows = as_array(rows)
        largest = _LARGE * self.largest_feature
        if known_within(rows, largest):
            return False
        features = rows[:, : posterior.feature_dim]
        return bool(features.max() > largest or features.min() < -largest)

    def _is_worn(self, count: int) -> bool:
        """Count changed rows; whether there have been too many."""
        changed_rows = self._changed_rows.array
        changed_rows += count
        return bool(changed_rows[0] >= _REBUILD_AFTER * max(self.slots.capacity, 1000))

    # -- state ------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget every row."""
        self._rows, self.is_current = None, True
        if self.posterior is not None:
            self.posterior.clear()
        self._changed_rows.clear()

    def state_dict(self) -> dict[str, Any]:
        """The posterior, bit for bit."""
        posterior = self.posterior
        return {
            "posterior": None if posterior is None else posterior.state_dict(),
            "changed_rows": self._changed_rows.value,
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise ``ValueError`` if a saved state does not fit."""
        saved, changed = state["posterior"], state["changed_rows"]
        if type(changed) is not int or not 0 <= changed < 2**62:
            raise ValueError(f"changed_rows must be a count, got {told(changed)}")
        if saved is not None:
            shapes = saved["feature_dim"], saved["target_dim"]
            for size in shapes:
                check_count("the width of features and targets", size)
            self.for_shapes(*shapes).check_state(saved)

    def check_widths(self, saved: dict[str, Any]) -> int:
        """Raise ``ValueError`` unless a saved posterior is of items like the stored.

        Args:
            saved: state of a posterior.

        Returns:
            The number ``K`` of targets.
        """
        features, targets = map(self.slots.leaf, (self.feature_key, self.target_key))
        if features is None or targets is None or features.ndim != 2:
            raise ValueError("cannot restore 'memory': its items have no features")
        expected = features.shape[1], self.encode(targets[:1]).shape[1]
        found = saved["feature_dim"], saved["target_dim"]
        if found != expected:
            raise ValueError(
                f"cannot restore 'memory': expected a posterior of {expected} "
                f"features and targets, got {found}"
            )
        return expected[1] - (self.standardization is not None)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`."""
        self._rows, self.is_current = None, True
        saved = state["posterior"]
        if saved is None:
            self.posterior = None
        else:
            posterior = self.for_shapes(saved["feature_dim"], saved["target_dim"])
            posterior.load_state_dict(saved)
            self.keep(posterior)
        self._changed_rows.value = state["changed_rows"]

    def share_memory_(self) -> None:
        """Move the posterior, now or when there is one, to shared memory."""
        self._shared = True
        self._rows = None
        self._changed_rows.share_memory_()
        if self.posterior is not None:
            self.posterior.share_memory_()

    def __getstate__(self) -> dict[str, Any]:
        """On the way to a child process, all becomes shared."""
        if get_spawning_popen() is not None:
            self._shared = True
            self._rows = None
        return {**self.__dict__, "_rows": None}
