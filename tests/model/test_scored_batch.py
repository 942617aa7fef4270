"""What a batch tells of itself before anything is computed with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from info_replay import BayesianLinearPosterior
from info_replay.writers.knowledge import Knowledge
from info_replay.writers.offer import Offer


def make_offer(labels: torch.Tensor, classes: int = 10) -> Offer:
    knowledge = Knowledge(
        "feature",
        "target",
        num_classes=classes,
        noise=0.3,
        jitter=0.1,
        dtype=torch.float64,
    )
    posterior = BayesianLinearPosterior(2, classes)
    features = torch.ones(len(labels), 2)
    return Offer(features, labels, knowledge.encode(labels), posterior)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
)
def test_labels_are_told_from_other_numbers(dtype: torch.dtype) -> None:
    assert make_offer(torch.tensor([0, 3, 9], dtype=dtype)).surely_labels()
    assert not make_offer(torch.tensor([0, 3, 10], dtype=dtype)).surely_labels()
    if dtype.is_signed:
        assert not make_offer(torch.tensor([0, -1, 9], dtype=dtype)).surely_labels()


def test_labels_become_ones_in_the_column_of_their_class() -> None:
    offer = make_offer(torch.tensor([2, 0, 7, 2]), classes=3)
    expected = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(offer.rows[:, 3:], expected)


def test_large_numbers_are_seen_in_features_and_in_numbers_as_targets() -> None:
    posterior = BayesianLinearPosterior(2, 1)
    for feature, target in ((1.0, 1e9), (1e9, 1.0), (np.nan, 1.0), (1.0, np.inf)):
        features = torch.tensor([[0.0, feature]])
        targets = torch.tensor([[target]])
        offer = Offer(features, targets, targets, posterior)
        assert not offer.surely_within(1e6)
        assert offer.surely_within(1e10) == np.isfinite(feature + target)
