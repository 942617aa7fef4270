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

    Small memories keep the rows that their posterior was made of, until something is
    written. They are derived: nothing of them is saved.

    Args:
        feature_key: entry that holds the features.
        target_key: entry that holds the targets.
        encode: turns targets into numbers ``(n, K)``.
    """

    def __init__(
        self,
        feature_key: NestedKey,
        target_key: NestedKey,
        encode: Callable[[Tensor], Any],
    ) -> None:
        self.feature_key = feature_key
        self.target_key = target_key
        self.encode = encode
        self._kept: Any = None

    def of(self, slots: Slots, where: slice, posterior: BayesianLinearPosterior) -> Any:
        """Rows of some slots, not to be changed.

        Args:
            slots: of the storage, with which the posterior is in step.
            where: which of them.
            posterior: whose rows.

        Returns:
            Shape ``(n, d + K)``: an array on the host, else a tensor.
        """
        if self._kept is not None:
            return self._kept[where]
        features, targets = slots.leaf(self.feature_key), slots.leaf(self.target_key)
        if where != slice(0, slots.capacity):
            features, targets = features[where], targets[where]
        return posterior.join_native(features, self.encode(targets))

    def keep(self, slots: Slots, size: int, posterior: BayesianLinearPosterior) -> Any:
        """Keep the rows of the slots as they are, if that is worth while.

        Args:
            slots: of the storage.
            size: how many of them are in use.
            posterior: whose rows.

        Returns:
            The rows of the slots in use, not to be changed; ``None`` if they are not
            kept.
        """
        self.drop()
        small = slots.capacity <= _LARGEST * posterior.feature_dim
        if small and posterior.form == "primal" and size:
            self._kept = self.of(slots, slice(0, size), posterior)
        return self._kept

    def drop(self) -> None:
        """Keep nothing: something was, or will be, written."""
        self._kept = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what is kept: the twin has a storage of its own."""
        return {**self.__dict__, "_kept": None}
