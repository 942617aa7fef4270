"""Keeping stored features those of the network as it is: :class:`FeatureWriter`."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.writers.base import SelectionWriter
from info_replay.writers.entries import refuse_infinite
from info_replay.writers.generations import Generations
from info_replay.writers.host import extremes, surely_within, to_host
from info_replay.writers.sample import Sample
from info_replay.writers.slots import Slots, last_rows

__all__ = ["FeatureWriter"]


class FeatureWriter(SelectionWriter):
    """A writer that looks at stored features, so replay should bring new ones back.

    Attributes:
        feature_key: entry that holds the features, shape ``(n, d0)``.
    """

    keeps_features = True
    feature_key: NestedKey
    #: Largest size of a feature that can be computed with.
    _largest_feature: float = math.inf

    def update_features(self, data: TensorDictBase) -> None:
        """Write features back to the slots that they were sampled from.

        A slot that holds another item by now is left alone; of a slot that was sampled
        several times the last row counts.

        Args:
            data: a sample with its ``"index"`` and new features.

        Raises:
            KeyError, TypeError, ValueError, IndexError: if the sample is not what it
                should be; nothing is changed.
        """
        if data.batch_dims and not len(data):
            return
        slots = self.slots
        size = len(slots)
        places, features = self._read_sample(data, slots, size, self._generations)
        if places.size:
            self._write_back(places, features, size)

    def _read_sample(
        self, data: TensorDictBase, slots: Slots, size: int, generations: Generations
    ) -> tuple[NDArray[np.int64], Tensor]:
        """The slots that a sample still belongs to, all different, and new features.

        Args:
            data: the sample, not empty.
            slots: that it came from.
            size: how many of them are in use.
            generations: of these slots.
        """
        sample = Sample(data, self.feature_key, slots, size, given_up=self.regroups)
        features = sample.features
        fine = surely_within(features, self._largest_feature)
        simple = sample.simple_slots(generations.stamps) if fine else None
        if simple is not None:
            return simple, features
        range_ = () if fine else extremes(features)
        held = to_host(*sample.tensors(generations.stamps), *range_)
        low, high = (0.0, 0.0) if fine else map(float, held[-2:])
        places = sample.live_slots(*held[: len(held) - len(range_)])
        if not self._in_range(low, high):
            refuse_infinite(features, self.feature_key)
            self._refuse_large(max(-low, high))
        rows = last_rows(places)
        if rows.size == places.size:
            return places, features
        pick = torch.from_numpy(rows).to(features.device)
        return places[rows], features.index_select(0, pick)

    def _write_back(
        self, places: NDArray[np.int64], features: Tensor, size: int
    ) -> None:
        """Store new features of some slots, all different."""
        self.slots.write_leaf(self.feature_key, places, features)

    def _in_range(self, low: float, high: float) -> bool:
        """Whether features can be computed with; NaN and infinity can't."""
        largest = self._largest_feature
        return -largest <= low and high <= largest and math.isfinite(high - low)

    def _refuse_large(self, largest: float) -> None:
        raise ValueError(
            f"entry {self.feature_key!r} has values up to {largest:g}, too large to "
            "compute with; expected features of the order of 1"
        )
