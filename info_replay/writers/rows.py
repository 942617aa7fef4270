"""What is stored, as the posterior takes it: :class:`StoredRows`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensordict.utils import NestedKey
from torch import Tensor

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
        self._seen: tuple[int, int, int, Tensor, Tensor] | None = None

    def _version(self, slots: Slots) -> tuple[int, int, int, Tensor, Tensor]:
        """What changes when somebody writes, replaces an entry or changes it in place.

        The entries themselves are part of it, not their numbers, which could come back.
        """
        return (
            slots.revision,
            slots.version(self.feature_key),
            slots.version(self.target_key),
            slots.leaf(self.feature_key),
            slots.leaf(self.target_key),
        )

    def _in_step(self, slots: Slots) -> bool:
        """Whether the kept rows are those of the slots as they are."""
        if self._seen is None:
            return False
        *counts, features, targets = self._seen
        *counts_now, features_now, targets_now = self._version(slots)
        return (
            counts == counts_now and features is features_now and targets is targets_now
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
        self.drop()
        small = slots.capacity <= _LARGEST * posterior.feature_dim
        if not small or posterior.form != "primal" or not size:
            return None
        self._kept = self.of(slots, slice(0, size), posterior)
        self._seen = self._version(slots)
        return self._kept

    def drop(self) -> None:
        """Keep nothing."""
        self._kept = self._seen = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what is kept: the twin has a storage of its own."""
        return {**self.__dict__, "_kept": None, "_seen": None}
