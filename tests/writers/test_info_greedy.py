"""InfoGS: the best item of a batch replaces the worst of the memory; InfoGS-RS too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from info_replay import (
    MIC,
    Criterion,
    EntropyReduction,
    InfoGreedyWriter,
    InformationGain,
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
    (InformationGain(eta=1.0), reference.information_gain(1.0)),
    (EntropyReduction(), reference.entropy_reduction),
]


@dataclass(frozen=True)
class Case:
    """A memory and its settings."""

    capacity: int
    criterion: tuple[Criterion, reference.Criterion] = CRITERIA[1]
    gamma: float = 0.0
    gamma_learnability: float = 0.0
    reservoir: bool = False
    decay: float | None = None
    num_classes: int | None = None
    seed: int = 0

    def buffer(self) -> TensorDictReplayBuffer:
        writer = InfoGreedyWriter(
            criterion=self.criterion[0],
            gamma=self.gamma,
            gamma_learnability=self.gamma_learnability,
            reservoir=self.reservoir,
            decay=self.decay,
            num_classes=self.num_classes,
        )
        return make_buffer(writer, self.capacity, self.seed)

    def settings(self) -> Settings:
        return Settings(
            capacity=self.capacity,
            criterion=self.criterion[1],
            gamma=self.gamma,
            decay=self.decay,
        )

    def run(self, stream: TensorDict, sizes: Sequence[int], seed: int) -> reference.Run:
        return reference.info_greedy(
            as_items(stream, self.num_classes),
            sizes,
            self.settings(),
            reference.random_numbers(seed, len(stream)),
            gamma_learnability=self.gamma_learnability,
            reservoir=self.reservoir,
        )


def check_moments(case: Case, writer: InfoGreedyWriter, run: reference.Run) -> None:
    for moments, values in (
        (writer.moments, run.scores),
        (writer.learnability_moments, run.learnabilities),
    ):
        mean, deviation = reference.moments(values, case.decay)
        assert moments.mean == pytest.approx(mean, rel=1e-9, abs=1e-9)
        assert moments.deviation == pytest.approx(deviation, rel=1e-9, abs=1e-9)


def check_against_the_algorithm(
    case: Case, stream: TensorDict, sizes: Sequence[int]
) -> tuple[InfoGreedyWriter, reference.Run]:
    """Feed a stream in batches and compare every decision."""
    buffer = case.buffer()
    slots = extend_all(buffer, stream, sizes)
    run = case.run(stream, sizes, buffer.writer.seed)
    assert slots == run.slots
    assert kept_ids(buffer) == run.memory
    assert torch.equal(buffer[:]["feature"], stream["feature"][run.memory])
    assert buffer.writer.reservoir_count == run.reservoir_count
    assert buffer.write_count == len(stream)
    check_moments(case, buffer.writer, run)
    items, settings = as_items(stream, case.num_classes), case.settings()
    scores = buffer.writer.score(stream[:5]).tolist()
    for item, score in enumerate(scores):
        point = items.point(item, run.memory, settings)
        assert score == pytest.approx(settings.criterion(point), rel=1e-9, abs=1e-9)
    return buffer.writer, run


cases = st.builds(
    Case,
    capacity=st.integers(1, 12),
    criterion=st.sampled_from(CRITERIA),
    gamma=st.sampled_from([-2.0, -0.5, 0.0, 1.0]),
    gamma_learnability=st.sampled_from([-100.0, -1.0, 0.0, 0.5]),
    reservoir=st.booleans(),
    decay=st.sampled_from([None, 0.9, 0.99]),
    num_classes=st.sampled_from([None, 3]),
    seed=st.integers(0, 2**62),
)


@given(
    case=cases,
    count=st.integers(1, 50),
    feature_dim=st.integers(2, 20),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
    data=st.data(),
)
@examples(100)
def test_every_decision_is_that_of_the_algorithm(case, count, feature_dim, scale, data):
    stream = make_stream(
        data.draw(st.integers(0, 2**32)),
        count,
        feature_dim=feature_dim,
        num_classes=case.num_classes,
        num_outputs=2,
        scale=scale,
    )
    check_against_the_algorithm(case, stream, data.draw(chunkings(count)))


@given(case=cases, count=st.integers(1, 40), data=st.data())
@examples(60)
def test_which_of_two_equal_items_is_kept_does_not_matter(case, count, data):
    # Random numbers and fading weights would tell equal items apart.
    case = replace(case, reservoir=False, decay=None)
    stream = make_stream(
        data.draw(st.integers(0, 2**32)),
        count,
        num_classes=case.num_classes,
        distinct=6,
    )
    sizes = data.draw(chunkings(count))
    buffer = case.buffer()
    extend_all(buffer, stream, sizes)
    run = case.run(stream, sizes, buffer.writer.seed)
    first = stream["feature"][:, 0]
    assert sorted(buffer[:]["feature"][:, 0].tolist()) == sorted(
        first[run.memory].tolist()
    )
    assert buffer.writer.reservoir_count == run.reservoir_count


LONG = make_stream(1, 2000, feature_dim=6, num_classes=5)
BATCHES = [32] * 62 + [16]


@pytest.mark.parametrize("decay", [None, 0.99])
@pytest.mark.parametrize("reservoir", [False, True], ids=["InfoGS", "InfoGS-RS"])
def test_a_long_stream_with_both_thresholds(reservoir, decay):
    case = Case(
        50,
        gamma=-0.4,
        gamma_learnability=-0.5,
        reservoir=reservoir,
        decay=decay,
        num_classes=5,
    )
    _, run = check_against_the_algorithm(case, LONG, BATCHES)
    chosen = run.reservoir_count - 50
    written = sum(slot >= 0 for slot in run.slots[50:])
    assert 60 < chosen < 1500
    assert 30 < written <= chosen


def test_a_long_stream_in_the_kernel_form():
    stream = make_stream(2, 600, feature_dim=30, num_outputs=2)
    case = Case(12, gamma=-0.3, gamma_learnability=-1.0, decay=0.99)
    writer, run = check_against_the_algorithm(case, stream, [32] * 18 + [24])
    assert writer.posterior.form == "kernel"
    assert run.reservoir_count > 12 + 20


@pytest.mark.parametrize(
    ("capacity", "feature_dim", "scale"),
    [
        (1, 23, 1.0),
        (5, 20, 10.0),
        (12, 20, 1.0),
        (30, 5, 30.0),
    ],
)
def test_many_swaps_in_a_batch_cost_no_precision(capacity, feature_dim, scale):
    stream = make_stream(1, 120, feature_dim=feature_dim, scale=scale)
    case = Case(capacity, gamma=-1e6, gamma_learnability=-1e6)
    check_against_the_algorithm(case, stream, [60, 60])


@pytest.mark.parametrize("changed", ["gamma", "gamma_learnability"])
def test_either_threshold_alone_makes_a_difference(changed):
    strict = Case(50, gamma=-0.4, gamma_learnability=-0.5, num_classes=5)
    lenient = replace(strict, **{changed: -100.0})
    memories = []
    for case in (strict, lenient):
        buffer = case.buffer()
        extend_all(buffer, LONG[:320], [32] * 10)
        memories.append(set(kept_ids(buffer)))
    assert memories[0] != memories[1]


def test_everything_is_kept_in_order_while_there_is_room():
    buffer = Case(10).buffer()
    stream = make_stream(3, 10)
    assert extend_all(buffer, stream, [3, 7]) == list(range(10))


def test_one_batch_may_fill_the_memory_and_select():
    for sizes in ([40], [5, 35], [10, 30]):
        _, run = check_against_the_algorithm(
            Case(10, gamma=-1.0, gamma_learnability=-1.0), make_stream(4, 40), sizes
        )
        assert run.reservoir_count > 10


def test_a_fill_larger_than_a_block_makes_no_difference():
    stream = make_stream(5, 308, feature_dim=2)
    _, run = check_against_the_algorithm(
        Case(300, gamma=-1.0, gamma_learnability=-100.0), stream, [308]
    )
    assert run.reservoir_count > 300


@pytest.mark.parametrize("threshold", ["gamma", "gamma_learnability"])
def test_a_threshold_out_of_reach_keeps_the_memory_as_it_is(threshold):
    buffer = replace(Case(10, gamma=-5.0), **{threshold: 1e6}).buffer()
    slots = extend_all(buffer, make_stream(6, 100), [20] * 5)
    assert slots == [*range(10), *[-1] * 90]
    assert buffer.writer.reservoir_count == 10


def test_the_learnability_threshold_keeps_an_outlier_out():
    stream = make_stream(7, 200, feature_dim=2, noise=0.1)
    outlier = stream[-1:].clone()
    outlier["target"] += 10
    kept = []
    for gamma_learnability in (-1e6, -1.0):
        case = Case(20, criterion=CRITERIA[0], gamma_learnability=gamma_learnability)
        buffer = case.buffer()
        buffer.extend(stream.clone())
        kept.append(bool(buffer.extend(outlier.clone()) >= 0))
    assert kept == [True, False]


def test_an_item_is_stored_once():
    buffer = Case(10, gamma=-1e6, gamma_learnability=-1e6).buffer()
    extend_all(buffer, make_stream(8, 300), [30] * 10)
    assert len(set(kept_ids(buffer))) == 10


def test_without_thresholds_every_item_is_chosen():
    buffer = Case(10, gamma=-1e6, gamma_learnability=-1e6).buffer()
    extend_all(buffer, make_stream(9, 100), [10] * 10)
    assert buffer.writer.reservoir_count == 100


def test_the_reservoir_lets_few_of_the_chosen_in():
    stream = make_stream(10, 300)
    case = Case(10, gamma=-1e6, gamma_learnability=-1e6)
    written = {}
    for reservoir in (False, True):
        buffer = replace(case, reservoir=reservoir).buffer()
        slots = extend_all(buffer, stream, [1] * 300)
        assert buffer.writer.reservoir_count == 300
        written[reservoir] = sum(slot >= 0 for slot in slots)
    assert written[False] == 300
    # As in reservoir sampling: M (1 + 1 / (M + 1) + ... + 1 / n) of them, about 43.
    assert 28 < written[True] < 60


def test_moments_are_of_all_offered_items():
    buffer = Case(10).buffer()
    extend_all(buffer, make_stream(11, 75), [25] * 3)
    assert buffer.writer.moments.weight == 75
    assert buffer.writer.learnability_moments.weight == 75


def test_works_in_a_plain_buffer():
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(10), writer=InfoGreedyWriter(), batch_size=4
    )
    slots = [buffer.add(item) for item in make_stream(12, 100).unbind(0)]
    assert {type(slot) for slot in slots} == {int}
    assert slots[:10] == list(range(10))
    assert min(slots[10:]) == -1
    assert buffer.write_count == 100
    assert set(buffer.sample()["id"].tolist()) <= set(kept_ids(buffer))


def test_a_refused_batch_leaves_no_trace():
    case = Case(5, num_classes=2, gamma=-2.0, gamma_learnability=-2.0)
    buffer, twin = case.buffer(), case.buffer()
    bad = make_stream(0, 3, num_classes=2).set("target", torch.tensor([0, 1, 2]))
    for part in make_stream(13, 60, num_classes=2).split(6):
        buffer.extend(part)
        twin.extend(part.clone())
        with pytest.raises(ValueError, match="2 for item 2"):
            buffer.extend(bad)
    assert kept_ids(buffer) == kept_ids(twin)
    assert buffer.write_count == 60
    assert repr(buffer.writer.moments) == repr(twin.writer.moments)


def test_the_memory_forgets_both_moments_when_it_is_emptied():
    buffer = Case(5).buffer()
    buffer.extend(make_stream(14, 30))
    buffer.empty()
    assert buffer.writer.moments.weight == 0
    assert buffer.writer.learnability_moments.weight == 0
    assert buffer.writer.reservoir_count == 0
