"""What is kept in the long run: each policy is a fair sample of what it should be.

Every test repeats a stream often enough that an unfair policy is caught; seeds are
fixed, so it always ends alike. Items exclude each other from the memory, which makes
counts vary a little less than the chi-square test assumes: it errs on the safe side.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from tensordict import TensorDict

from info_replay import (
    ClassBalancedReservoirWriter,
    ReservoirWriter,
    SelectionWriter,
    WeightedReservoirWriter,
)

from .reference import kept_ids, make_buffer

Sample = NDArray[np.int64]


def p_value(
    samples: list[Sample], expected: NDArray[np.float64], bins: int | None = None
) -> float:
    """Chi-square test of how often each item was kept.

    Args:
        samples: numbers of the items that each repeat kept.
        expected: probability of each item to be kept.
        bins: if given, neighbors are counted together in so many equal bins.
    """
    counts = np.bincount(np.concatenate(samples), minlength=len(expected))
    bins = bins or len(expected)
    observed = counts.reshape(bins, -1).sum(1)
    return float(
        stats.chisquare(
            observed, len(samples) * expected.reshape(bins, -1).sum(1)
        ).pvalue
    )


def repeat(
    writer: SelectionWriter, capacity: int, stream: TensorDict, batch: int, times: int
) -> Iterator[Sample]:
    """Feed the same stream again and again; each time the draws are new."""
    buffer = make_buffer(writer, capacity)
    parts = stream.split(batch)
    for _ in range(times):
        buffer.empty()
        for part in parts:
            writer.extend(part)
        yield np.array(kept_ids(buffer))


def numbered(count: int, **entries: torch.Tensor) -> TensorDict:
    return TensorDict({"id": torch.arange(count), **entries}, batch_size=[count])


# -- RS -------------------------------------------------------------------------------

#: Batch size, length of the stream and number of repeats.
STREAMS = [(1, 40, 80), (20, 100, 400), (128, 640, 300)]


def frozen_reservoir(
    capacity: int, count: int, batch: int, generator: np.random.Generator
) -> Sample:
    """Reservoir sampling gone wrong: the count stands still within a batch."""
    memory = np.arange(capacity)
    for start in range(0, count, batch):
        items = np.arange(max(start, capacity), min(start + batch, count))
        slots = generator.integers(max(start, capacity) + 1, size=len(items))
        kept = slots < capacity
        memory[slots[kept]] = items[kept]
    return memory


@pytest.mark.parametrize(("batch", "count", "times"), STREAMS)
def test_rs_is_uniform_over_the_stream(batch, count, times):
    samples = list(repeat(ReservoirWriter(), 10, numbered(count), batch, times))
    assert all(len(set(sample)) == 10 for sample in samples)
    assert p_value(samples, np.full(count, 10 / count), bins=20) > 1e-3


@pytest.mark.parametrize(("batch", "count", "times"), STREAMS[1:])
def test_a_reservoir_that_freezes_its_count_would_be_caught(batch, count, times):
    generator = np.random.default_rng(0)
    samples = [frozen_reservoir(10, count, batch, generator) for _ in range(times)]
    assert p_value(samples, np.full(count, 10 / count), bins=20) < 1e-6


def test_rs_keeps_pairs_as_often_as_any_others():
    # Uniform over sets, not only over items: M (M - 1) / N (N - 1) for each pair.
    samples = repeat(ReservoirWriter(), 3, numbered(8), 4, 800)
    counts = np.zeros((8, 8))
    for sample in samples:
        counts[np.ix_(sample, sample)] += 1
    pairs = counts[np.triu_indices(8, 1)]
    assert pairs.sum() == 800 * 3
    assert stats.chisquare(pairs).pvalue > 1e-3


# -- WRS ------------------------------------------------------------------------------


def by_weight() -> WeightedReservoirWriter:
    return WeightedReservoirWriter(score=lambda items: items["weight"])


def chao(weights: NDArray[np.float64], capacity: int) -> NDArray[np.float64]:
    """Probability of each item where no weight exceeds its share.

    An item is stored with probability ``M w / W``, ``W`` being the sum up to it, and
    survives each later one with probability ``1 - w' / W'``: that is ``M w / W_N`` in
    the end. Those that filled the memory were stored surely: ``W_M / W_N``.
    """
    total = weights.sum()
    probability = capacity * weights / total
    probability[:capacity] = weights[:capacity].sum() / total
    return probability


def weights_within_their_share(count: int, capacity: int) -> NDArray[np.float64]:
    weights = np.random.default_rng(1).uniform(0.2, 3.0, count)
    weights[:capacity] = np.linspace(3.0, 4.0, capacity)
    assert (weights[capacity:] <= np.cumsum(weights)[capacity:] / capacity).all()
    return weights


@pytest.mark.parametrize("batch", [20, 40])
def test_wrs_keeps_items_in_proportion_to_their_weights(batch):
    weights = weights_within_their_share(40, capacity=5)
    stream = numbered(40, weight=torch.from_numpy(weights))
    samples = list(repeat(by_weight(), 5, stream, batch, 500))
    assert p_value(samples, chao(weights, 5)) > 1e-3
    # Not what sampling without weights would give.
    assert p_value(samples, np.full(40, 5 / 40)) < 1e-6


# -- CBRS -----------------------------------------------------------------------------


def phases(*counts: dict[int, int]) -> torch.Tensor:
    """Labels that come in phases, shuffled within each."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for phase in counts:
        labels = torch.tensor([k for k, n in phase.items() for _ in range(n)])
        parts.append(labels[torch.randperm(len(labels), generator=generator)])
    return torch.cat(parts)


BALANCED_IN_THE_END: dict[str, Callable[[], torch.Tensor]] = {
    "at once": lambda: phases({0: 100, 1: 50, 2: 12}),
    "late": lambda: phases({0: 60}, {1: 60}, {2: 12}),
    "while filling": lambda: phases({0: 5, 1: 2}, {0: 3, 2: 12}, {1: 12, 0: 30}),
    "just filled": lambda: phases({0: 20}, {1: 10}, {2: 12}),
    "in turns": lambda: phases(*[{0: 9}, {1: 3}, {2: 2}] * 10),
}


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("name", BALANCED_IN_THE_END)
def test_cbrs_holds_all_classes_equally(name, batch):
    labels = BALANCED_IN_THE_END[name]()
    for capacity in (7, 20, 22):
        writer = ClassBalancedReservoirWriter(3)
        buffer = make_buffer(writer, capacity)
        for part in numbered(len(labels), target=labels).split(batch):
            buffer.extend(part)
        held = buffer[:]["target"].bincount(minlength=3)
        assert held.sum() == capacity
        assert held.max() - held.min() <= 1


@pytest.mark.parametrize("batch", [1, 100])
def test_cbrs_keeps_all_items_of_a_small_class(batch):
    labels = phases({0: 100}, {1: 4, 0: 50}, {2: 100, 0: 20})
    buffer = make_buffer(ClassBalancedReservoirWriter(3), 20)
    for part in numbered(len(labels), target=labels).split(batch):
        buffer.extend(part)
    small = (labels == 1).nonzero().flatten().tolist()
    assert set(small) <= set(kept_ids(buffer))
    assert buffer[:]["target"].bincount().tolist() == [8, 4, 8]


@pytest.mark.parametrize("batch", [32, 200])
@pytest.mark.parametrize(
    "labels",
    [
        phases({0: 60, 1: 24, 2: 12}),
        phases({0: 40}, {1: 40}, {2: 16}),
        phases({0: 8, 1: 4}, {0: 36, 2: 24}, {1: 24}),
    ],
    ids=["together", "one after the other", "coming back"],
)
def test_cbrs_is_uniform_within_each_class(labels, batch):
    stream = numbered(len(labels), target=labels)
    samples = list(repeat(ClassBalancedReservoirWriter(3), 12, stream, batch, 200))
    for label in range(3):
        members = (labels == label).nonzero().flatten().numpy()
        ranks = np.full(len(labels), -1)
        ranks[members] = np.arange(len(members))
        kept = [ranks[sample][ranks[sample] >= 0] for sample in samples]
        assert all(len(sample) == 4 for sample in kept)
        share = np.full(len(members), 4 / len(members))
        assert p_value(kept, share, bins=len(members) // 2) > 1e-3
