"""What is stored, as the posterior takes it: :class:`StoredRows`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.linear_algebra import alike, on_host
from info_replay.posterior import BayesianLinearPosterior
from info_replay.writers.slots import Slots

__all__ = ["StoredRows"]

# Memories of at most so many times d items keep their rows, which then need no more
# room than the posterior itself.
_LARGEST = 2


class StoredRows:
    """Features and targets of the slots, as rows of a posterior.

    Small memories keep the rows that their posterior was made of, for those who ask
    until something is written. They are derived: nothing of them is saved.

    Args:
        feature_key: entry that holds the features.
        target_key: entry that holds the targets.
        encode: turns targets into numbers ``(n, K)``.
    """

    def __init__(
        self,
        feature_key: NestedKey,
        target_key: NestedKey,
        encode: Callable[[Tensor], Tensor],
    ) -> None:
        self.feature_key = feature_key
        self.target_key = target_key
        self.encode = encode
        self._kept: Tensor | None = None
        self._columns: Any = None  # the same, as an array where it can be one
        self._seen: tuple[Tensor, Tensor, int, int] | None = None

    def _in_step(self, slots: Slots) -> bool:
        """Whether the kept rows are those of the slots as they are.

        The entries themselves are compared, not their numbers, which could come back.
        """
        if self._seen is None:
            return False
        features, targets, *versions = self._seen
        return (
            features is slots.leaf(self.feature_key)
            and targets is slots.leaf(self.target_key)
            and versions
            == [slots.version(self.feature_key), slots.version(self.target_key)]
        )

    def of(
        self, slots: Slots, where: slice, posterior: BayesianLinearPosterior
    ) -> Tensor:
        """Rows of some slots, not to be changed.

        Args:
            slots: of the storage.
            where: which of them.
            posterior: whose rows.

        Returns:
            Shape ``(n, d + K)``.
        """
        if self._kept is not None and self._in_step(slots):
            return self._kept[where]
        return posterior.join(
            slots.leaf(self.feature_key)[where],
            self.encode(slots.leaf(self.target_key)[where]),
        )

    def keep(
        self, slots: Slots, size: int, posterior: BayesianLinearPosterior
    ) -> Tensor | None:
        """Keep the rows of the slots as they are, if that is worth while.

        Args:
            slots: of the storage.
            size: how many of them are in use.
            posterior: whose rows.

        Returns:
            The rows of the slots in use, not to be changed, if they are kept.
        """
        small = slots.capacity <= _LARGEST * posterior.feature_dim
        if not small or posterior.form != "primal" or not size:
            self.drop()
            return None
        features, targets = slots.leaf(self.feature_key), slots.leaf(self.target_key)
        seen, kept, width = self._seen, self._kept, posterior.feature_dim
        self._seen = (
            features,
            targets,
            slots.version(self.feature_key),
            slots.version(self.target_key),
        )
        if kept is None or seen is None or kept.shape[0] != size:
            kept = posterior.join(features[:size], self.encode(targets[:size]))
            self._kept = kept
            self._columns = kept.numpy() if on_host(kept) else kept
            return kept
        columns: Any = self._columns
        columns[:, :width] = alike(features[:size], columns)
        # Often the features alone are new.
        if seen[1] is not targets or seen[3] != self._seen[3]:
            columns[:, width + 1 :] = alike(self.encode(targets[:size]), columns)
        return kept

    def drop(self) -> None:
        """Keep nothing."""
        self._kept = self._columns = self._seen = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what is kept: the twin has a storage of its own."""
        return {**self.__dict__, "_kept": None, "_columns": None, "_seen": None}
