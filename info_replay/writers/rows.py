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

    Small memories keep them, so that they need not be converted and joined anew in
    every step. They are derived: nothing of them is saved.

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
        self._seen: list[Any] = []

    def _version(self, slots: Slots) -> list[Any]:
        """What changes when somebody writes, replaces an entry or changes it in place.

        The entries themselves are part of it, not their numbers, which could come back.
        """
        keys = (self.feature_key, self.target_key)
        counts = [slots.version(key) for key in keys]
        return [slots.revision, *counts, *(slots.leaf(key) for key in keys)]

    def in_step(self, slots: Slots) -> bool:
        """Whether the kept rows are those of the slots as they are."""
        if self._kept is None:
            return False
        revision, first, second, features, targets = self._seen
        now = self._version(slots)
        return (
            [revision, first, second] == now[:3]
            and features is now[3]
            and targets is now[4]
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
        if self.in_step(slots):
            assert self._kept is not None
            return self._kept[where]
        return posterior.join(
            slots.leaf(self.feature_key)[where],
            self.encode(slots.leaf(self.target_key)[where]),
        )

    def keep(self, slots: Slots, posterior: BayesianLinearPosterior) -> None:
        """Keep all rows from now on, if that is worth while.

        Args:
            slots: of the storage.
            posterior: whose rows.
        """
        small = slots.capacity <= _LARGEST * posterior.feature_dim
        if small and posterior.form == "primal" and not self.in_step(slots):
            self._kept = self.of(slots, slice(0, slots.capacity), posterior)
            self._seen = self._version(slots)

    def follow(self, slots: Slots, index: Tensor, values: Tensor) -> None:
        """Follow a write; the rows were in step before it.

        Args:
            slots: of the storage.
            index: the slots that were written, all different.
            values: the first columns of their rows, of any floating type.
        """
        assert self._kept is not None
        columns = self._kept[:, : values.shape[1]]
        columns.index_copy_(0, index, values.to(columns.dtype))
        self._seen = self._version(slots)

    def drop(self) -> None:
        """Keep nothing."""
        self._kept = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what is kept: the twin has a storage of its own."""
        return {**self.__dict__, "_kept": None, "_seen": []}
