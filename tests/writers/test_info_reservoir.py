"""InfoRS: reservoir sampling among the informative items (Alg. 1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from torch import Tensor
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from info_replay import (
    MIC,
    Criterion,
    EntropyReduction,
    InfoReservoirWriter,
    InformationGain,
    ReservoirWriter,
)

from . import reference
from .reference import (
    Settings,
    as_items,
    chunkings,
    examples,
    extend_all,
    kept_ids,
    make_buffer,
    make_stream,
)

#: Each criterion of the package and its definition.
CRITERIA: list[tuple[Criterion, reference.Criterion]] = [
    (MIC(eta=0.0), reference.mic(0.0)),
    (MIC(eta=1.0), reference.mic(1.0)),
    (MIC(eta=3.0), reference.mic(3.0)),
    (InformationGain(eta=0.0), reference.information_gain(0.0)),
    (InformationGain(eta=1.0), reference.information_gain(1.0)),
    (InformationGain(eta=3.0), reference.information_gain(3.0)),
    (EntropyReduction(), reference.entropy_reduction),
]


@dataclass(frozen=True)
class Case:
    """A memory and its settings."""

    capacity: int
    criterion: tuple[Criterion, reference.Criterion] = CRITERIA[1]
    gamma: float = 0.0
    decay: float | None = None
    noise: float = 0.3
    jitter: float = 0.1
    num_classes: int | None = None
    seed: int = 0

    def buffer(self) -> TensorDictReplayBuffer:
        writer = InfoReservoirWriter(
            criterion=self.criterion[0],
            gamma=self.gamma,
            decay=self.decay,
            noise=self.noise,
            jitter=self.jitter,
            num_classes=self.num_classes,
        )
        return make_buffer(writer, self.capacity, self.seed)

    def settings(self) -> Settings:
        return Settings(
            capacity=self.capacity,
            criterion=self.criterion[1],
            gamma=self.gamma,
            decay=self.decay,
            noise=self.noise,
            jitter=self.jitter,
        )


def check_against_algorithm_1(
    case: Case, stream: TensorDict, sizes: Sequence[int]
) -> tuple[InfoReservoirWriter, reference.Run]:
    """Feed a stream in chunks and compare every decision."""
    buffer = case.buffer()
    writer = buffer.writer
    slots = extend_all(buffer, stream, sizes)
    items, settings = as_items(stream, case.num_classes), case.settings()
    run = reference.info_reservoir(
        items,
        settings,
        reference.random_numbers(writer.seed, len(stream)),
    )
    assert slots == reference.settled(run.slots, sizes)
    assert kept_ids(buffer) == run.memory
    assert torch.equal(buffer[:]["feature"], stream["feature"][run.memory])
    assert torch.equal(buffer[:]["target"], stream["target"][run.memory])
    assert writer.reservoir_count == run.reservoir_count
    assert buffer.write_count == len(stream)
    mean, deviation = reference.moments(run.scores, case.decay)
    assert writer.moments.mean == pytest.approx(mean, rel=1e-9, abs=1e-9)
    assert writer.moments.deviation == pytest.approx(deviation, rel=1e-9, abs=1e-9)
    for item, score in enumerate(writer.score(stream[:5]).tolist()):
        point = items.point(item, run.memory, settings)
        assert score == pytest.approx(settings.criterion(point), rel=1e-9, abs=1e-9)
    return writer, run


@given(
    case=st.builds(
        Case,
        capacity=st.integers(1, 40),
        criterion=st.sampled_from(CRITERIA),
        gamma=st.sampled_from([-0.3, 0.0, 0.3, 1.0]),
        decay=st.sampled_from([None, 0.9, 0.99]),
        noise=st.sampled_from([0.3, 1.0]),
        jitter=st.sampled_from([0.1, 2.0]),
        num_classes=st.sampled_from([None, 1, 2, 5]),
        seed=st.integers(0, 2**62),
    ),
    count=st.integers(1, 300),
    feature_dim=st.integers(1, 40),
    num_outputs=st.integers(1, 3),
    distinct=st.sampled_from([None, None, 1, 7]),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
    data=st.data(),
)
@examples(100)
def test_every_decision_is_that_of_algorithm_1(
    case, count, feature_dim, num_outputs, distinct, scale, data
):
    stream = make_stream(
        data.draw(st.integers(0, 2**32)),
        count,
        feature_dim=feature_dim,
        num_classes=case.num_classes,
        num_outputs=num_outputs,
        distinct=distinct,
        scale=scale,
    )
    check_against_algorithm_1(case, stream, data.draw(chunkings(count)))


@pytest.mark.parametrize("num_classes", [None, 5], ids=["regression", "classes"])
@pytest.mark.parametrize(
    ("form", "capacity", "feature_dim"), [("primal", 40, 6), ("kernel", 12, 30)]
)
def test_a_long_stream_at_once_in_both_forms(form, capacity, feature_dim, num_classes):
    stream = make_stream(
        1, 2000, feature_dim=feature_dim, num_classes=num_classes, num_outputs=2
    )
    case = Case(capacity, gamma=0.3, decay=0.99, num_classes=num_classes)
    writer, run = check_against_algorithm_1(case, stream, [2000])
    assert writer.posterior.form == form
    # All fates occur: refused by the threshold, by the reservoir, and kept.
    assert 100 < run.reservoir_count < 1900
    kept = sum(slot >= 0 for slot in run.slots[capacity:])
    assert 30 < kept < run.reservoir_count - capacity


@pytest.mark.parametrize("sizes", [[1] * 150, [150]])
@pytest.mark.parametrize(("capacity", "feature_dim"), [(1, 23), (5, 20), (20, 30)])
def test_large_features_in_a_small_memory_cost_no_precision(
    capacity, feature_dim, sizes
):
    stream = make_stream(1, 150, feature_dim=feature_dim, scale=30.0)
    check_against_algorithm_1(Case(capacity, gamma=-0.3), stream, sizes)


@pytest.mark.parametrize("sizes", [[1] * 150, [150]])
def test_large_features_in_a_large_memory_cost_no_precision(sizes):
    stream = make_stream(1, 150, feature_dim=5, scale=30.0)
    check_against_algorithm_1(Case(30, gamma=-0.3), stream, sizes)


@pytest.mark.parametrize("sizes", [[2000], [100, 900, 1000], [1] * 20 + [1980]])
def test_filling_and_selecting_in_blocks_makes_no_difference(sizes):
    stream = make_stream(2, 2000, feature_dim=5, num_classes=5)
    writer, run = check_against_algorithm_1(
        Case(300, num_classes=5, gamma=-0.3), stream, sizes
    )
    assert sum(slot >= 0 for slot in run.slots[300:]) > 200
    assert run.reservoir_count < 1900


@pytest.mark.parametrize("decay", [None, 0.9, 0.99])
@pytest.mark.parametrize("sizes", [[60], [5, 55], [9, 2, 49], [10, 50]])
def test_one_batch_may_fill_the_memory_and_select(sizes, decay):
    stream = make_stream(3, 60, num_classes=3)
    check_against_algorithm_1(Case(10, num_classes=3, decay=decay), stream, sizes)


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda pair: repr(pair[0]))
@pytest.mark.parametrize("gamma", [-0.3, 0.0, 0.3, 1.0])
def test_every_criterion_and_threshold_selects(criterion, gamma):
    stream = make_stream(4, 200, num_outputs=2)
    case = Case(8, criterion=criterion, gamma=gamma)
    _, run = check_against_algorithm_1(case, stream, [64, 64, 64, 8])
    assert 8 < run.reservoir_count < 200


@pytest.mark.parametrize("decay", [None, 0.9, 0.99])
@pytest.mark.parametrize("distinct", [1, 2, 5])
def test_repeated_items_are_decided_alike(distinct, decay):
    stream = make_stream(5, 300, distinct=distinct)
    check_against_algorithm_1(Case(4, decay=decay), stream, [32] * 9 + [12])


def test_a_threshold_out_of_reach_stores_what_fills_the_memory():
    buffer = Case(10, gamma=1e6).buffer()
    slots = buffer.extend(make_stream(6, 200))
    assert slots.tolist() == [*range(10), *[-1] * 190]
    assert buffer.writer.reservoir_count == 10
    assert buffer.write_count == 200


def test_without_a_threshold_it_is_reservoir_sampling():
    stream = make_stream(7, 500)
    informed = Case(10, gamma=-1e6).buffer()
    plain = make_buffer(ReservoirWriter(), 10)
    sizes = [100] * 5
    assert extend_all(informed, stream, sizes) == extend_all(plain, stream, sizes)
    assert informed.writer.reservoir_count == 500


def test_moments_are_of_all_offered_items():
    buffer = Case(10, gamma=1e6).buffer()
    stream = make_stream(8, 50)
    buffer.extend(stream[:4])
    assert buffer.writer.moments.weight == 4
    buffer.extend(stream[4:])
    assert buffer.writer.moments.weight == 50


def test_an_item_is_tested_against_the_memory_that_it_meets():
    buffer = Case(10).buffer()
    stream = make_stream(9, 60)
    buffer.extend(stream[:20])
    scores = [float(buffer.writer.score(item[None])) for item in stream[20:].unbind(0)]
    mean, weight = buffer.writer.moments.mean, buffer.writer.moments.weight
    buffer.extend(stream[20:21])
    expected = (mean * weight + scores[0]) / (weight + 1)
    assert buffer.writer.moments.mean == pytest.approx(expected, rel=1e-12)


def test_the_score_that_equals_the_mean_passes():
    # With a memory of copies, each copy scores what the last one did.
    item = make_stream(10, 1)
    writer = InfoReservoirWriter(decay=0.5)
    buffer = make_buffer(writer, 2)
    for _ in range(100):
        buffer.extend(item.clone())
    before = writer.reservoir_count
    for _ in range(20):
        buffer.extend(item.clone())
    assert writer.reservoir_count == before + 20


def test_repetitions_stay_out_and_what_is_new_comes_in():
    stream = make_stream(11, 2, feature_dim=3)
    old, new = stream[:1], stream[1:]
    writer = InfoReservoirWriter()
    buffer = make_buffer(writer, 5)
    buffer.extend(torch.cat([old] * 100))
    assert writer.reservoir_count == 5
    buffer.extend(new)
    assert writer.reservoir_count == 6


def test_seeds_decide():
    stream = make_stream(12, 400)
    first, second, other = (Case(20, seed=seed).buffer() for seed in (1, 1, 2))
    for buffer in (first, second, other):
        buffer.extend(stream.clone())
    assert kept_ids(first) == kept_ids(second)
    assert kept_ids(first) != kept_ids(other)


def test_works_in_a_plain_buffer():
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(10), writer=InfoReservoirWriter(), batch_size=4
    )
    stream = make_stream(13, 100)
    slots = [buffer.add(item) for item in stream.unbind(0)]
    assert {type(slot) for slot in slots} == {int}
    assert slots[:10] == list(range(10))
    assert min(slots[10:]) == -1
    assert buffer.write_count == 100
    assert set(buffer.sample()["id"].tolist()) <= set(kept_ids(buffer))


def _with(key: str, value: torch.Tensor) -> TensorDict:
    return make_stream(0, 3, num_classes=2).set(key, value)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (_with("target", torch.tensor([0, 1, 2])), ValueError),
        (_with("target", torch.tensor([0, 1, -1])), ValueError),
        (_with("target", torch.tensor([0.0, 1.0, 1.0])), TypeError),
        (_with("feature", torch.full((3, 4), torch.nan)), ValueError),
        (_with("feature", torch.full((3, 4), torch.inf)), ValueError),
        (_with("feature", torch.zeros(3, 5)), ValueError),
        (_with("feature", torch.zeros(3, 4).long()), TypeError),
        (make_stream(0, 3, num_classes=2).exclude("feature"), KeyError),
        (make_stream(0, 3, num_classes=2).exclude("target"), KeyError),
    ],
)
def test_a_refused_batch_leaves_no_trace(bad, error):
    case = Case(5, num_classes=2)
    buffer, twin = case.buffer(), case.buffer()
    for part in make_stream(14, 40, num_classes=2).split(4):
        buffer.extend(part)
        twin.extend(part.clone())
        with pytest.raises(error):
            buffer.extend(bad)
    assert kept_ids(buffer) == kept_ids(twin)
    assert buffer.write_count == 40
    assert buffer.writer.reservoir_count == twin.writer.reservoir_count
    assert repr(buffer.writer.moments) == repr(twin.writer.moments)


class _OwnCriterion(Criterion):
    """As a user writes one: with methods that tensors have and arrays do not."""

    def __call__(self, leverage: Tensor, squared_error: Tensor, **_: object) -> Tensor:
        return leverage.log1p() + squared_error.clamp(max=1)


def test_a_criterion_of_the_user_gets_tensors() -> None:
    stream = make_stream(1, 40)
    writer = InfoReservoirWriter(criterion=_OwnCriterion())
    buffer = make_buffer(writer, 8)
    buffer.extend(stream)
    scores = writer.score(stream)
    assert scores.shape == (40,)
    assert scores.isfinite().all()
