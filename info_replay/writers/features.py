"""Keeping stored features those of the network as it is: :class:`FeatureWriter`."""

from __future__ import annotations

import math

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.writers.base import SelectionWriter
from info_replay.writers.entries import refuse_infinite
from info_replay.writers.host import to_host
from info_replay.writers.sample import Sample
from info_replay.writers.slots import last_rows

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
        size = len(self.slots)
        sample = Sample(
            data, self.feature_key, self.slots, size, given_up=self.regroups
        )
        low, high, *held = to_host(*sample.tensors(self._generations.stamps))
        places = sample.live_slots(*held)
        features = sample.features
        if not self._in_range(float(low), float(high)):
            refuse_infinite(features, self.feature_key)
            self._refuse_large(float(max(-low, high)))
        rows = last_rows(places)
        if not rows.size:
            return
        device = features.device
        index = torch.from_numpy(places[rows]).to(device)
        if len(rows) < len(features):
            features = features.index_select(0, torch.from_numpy(rows).to(device))
        self._write_back(index, features, size)

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
