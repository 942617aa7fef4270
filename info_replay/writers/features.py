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
from info_replay.writers.host import to_host
from info_replay.writers.sample import Sample
from info_replay.writers.slots import Slots, last_rows

__all__ = ["FeatureWriter"]


class FeatureWriter(SelectionWriter):
    """A writer that looks at stored features, so replay should bring new ones back.

    Attributes:
        feature_key: entry that holds the features, shape ``(n, d0)``.
    """

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
        places, features = self._read_sample(data, self.slots, self._generations)
        if places.size:
            index = torch.from_numpy(places).to(features.device)
            self._write_back(index, features, len(self.slots))

    def _read_sample(
        self, data: TensorDictBase, slots: Slots, generations: Generations
    ) -> tuple[NDArray[np.int64], Tensor]:
        """The slots that a sample still belongs to, all different, and new features.

        Args:
            data: the sample, not empty.
            slots: that it came from.
            generations: of these slots.
        """
        sample = Sample(
            data, self.feature_key, slots, len(slots), given_up=self.regroups
        )
        low, high, *held = to_host(*sample.tensors(generations.stamps))
        places = sample.live_slots(*held)
        features = sample.features
        if not self._in_range(float(low), float(high)):
            refuse_infinite(features, self.feature_key)
            self._refuse_large(float(max(-low, high)))
        rows = last_rows(places)
        if len(rows) < len(features):
            pick = torch.from_numpy(rows).to(features.device)
            features = features.index_select(0, pick)
        return places[rows], features

    def _write_back(self, index: Tensor, features: Tensor, size: int) -> None:
        """Store new features of some slots, all different."""
        self.slots.write_leaf(self.feature_key, index, features)

    def _in_range(self, low: float, high: float) -> bool:
        """Whether features can be computed with; NaN and infinity can't."""
        largest = self._largest_feature
        return -largest <= low and high <= largest and math.isfinite(high - low)

    def _refuse_large(self, largest: float) -> None:
        raise ValueError(
            f"entry {self.feature_key!r} has values up to {largest:g}, too large to "
            "compute with; expected features of the order of 1"
        )
