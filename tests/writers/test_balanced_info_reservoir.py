"""Balanced InfoRS: thresholds, capped counts and tournaments, item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage

from info_replay import BalancedInfoReservoirWriter, SelectiveReplayBuffer
from info_replay.model import clusters
from info_replay.testing import check_writer, make_items

from . import reference
from .information import CRITERIA
from .information import Case as AnyCase
from .reference import as_items, chunkings, examples, extend_all, make_stream

ADMISSIONS = ["reservoir", "capped", "balanced"]
VICTIMS = ["all", "largest", "own"]
PERIOD = 16


@contextmanager
def short_period() -> Iterator[None]:
    """Clusters are found anew often, so that short streams show it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "_PERIOD", PERIOD)
        yield


@dataclass(frozen=True)
class Case(AnyCase):
    """A memory of balanced InfoRS."""

    gamma: float | None = 0.0  # type: ignore[assignment]
    groups: str = "modes"
    num_clusters: int = 3
    admission: str = "capped"
    victims: str = "largest"
    tournament: int = 3

    def buffer(self) -> SelectiveReplayBuffer:
        writer = BalancedInfoReservoirWriter(
            criterion=self.criterion[0],
            gamma=self.gamma,
            groups=self.groups,
            num_clusters=self.num_clusters,
            admission=self.admission,
            victims=self.victims,
            tournament=self.tournament,
            decay=self.decay,
            num_classes=self.num_classes,
            scale_targets=self.scale_targets,
        )
        generator = torch.Generator().manual_seed(self.seed)
        return SelectiveReplayBuffer(self.capacity, writer=writer, generator=generator)

    def run(self, stream: TensorDict, sizes: Sequence[int], seed: int) -> reference.Run:
        classes = self.num_classes
        labels = [0] * len(stream) if classes is None else stream["target"].tolist()
        return reference.balanced_info_reservoir(
            as_items(stream, classes, self.scale_targets),
            labels,
            self.settings(),
            reference.random_numbers(seed, len(stream)),
            seed,
            gamma=self.gamma,
            by_mode=self.groups == "modes",
            num_clusters=self.num_clusters if self.groups == "clusters" else None,
            period=max(self.capacity, clusters._PERIOD),
            admission=self.admission,
            victims=self.victims,
            tournament=self.tournament,
        )


gammas = st.sampled_from([None, -2.0, -0.5, 0.0])
cases = st.builds(
    Case,
    capacity=st.integers(1, 12),
    criterion=st.sampled_from(CRITERIA),
    gamma=gammas,
    groups=st.sampled_from(["modes", "classes", "clusters"]),
    num_clusters=st.integers(1, 5),
    admission=st.sampled_from(ADMISSIONS),
    victims=st.sampled_from(VICTIMS),
    tournament=st.integers(1, 5),
    decay=st.sampled_from([None, 0.9, 0.99]),
    num_classes=st.sampled_from([None, 4]),
    seed=st.integers(0, 2**62),
)


@given(
    case=cases,
    count=st.integers(1, 50),
    feature_dim=st.integers(2, 20),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
    data=st.data(),
)
@examples(80)
def test_every_decision_is_that_of_the_items_one_by_one(
    case: Case, count: int, feature_dim: int, scale: float, data: st.DataObject
) -> None:
    stream = make_stream(
        data.draw(st.integers(0, 2**32)),
        count,
        feature_dim=feature_dim,
        num_classes=case.num_classes,
        num_outputs=2,
        scale=scale,
    )
    with short_period():
        case.check(stream, data.draw(chunkings(count)))


@given(case=cases, count=st.integers(1, 50), data=st.data())
def test_repeated_items_make_no_difference(
    case: Case, count: int, data: st.DataObject
) -> None:
    stream = make_stream(
        data.draw(st.integers(0, 2**32)),
        count,
        num_classes=case.num_classes,
        distinct=6,
    )
    with short_period():
        case.check(stream, data.draw(chunkings(count)))


@pytest.mark.parametrize("size", [7, 128, 480])
@pytest.mark.parametrize("feature_dim", [6, 60], ids=["primal", "kernel"])
def test_a_long_stream(size: int, feature_dim: int) -> None:
    stream = make_stream(1, 480, feature_dim=feature_dim, num_classes=5)
    sizes = [size] * (480 // size) + ([480 % size] if 480 % size else [])
    case = Case(30, gamma=-0.5, decay=0.99, num_classes=5)
    _, run = case.check(stream, sizes)
    assert run.reservoir_count > 150
    assert sum(slot >= 0 for slot in run.slots) > 60


def changing_stream(count: int) -> TensorDict:
    """Items of four classes that look different from the middle on."""
    stream = make_stream(2, count, feature_dim=8, num_classes=4, scale=0.3)
    centers = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))
    half = (torch.arange(count) >= count // 2).long()
    stream["feature"] = stream["feature"] + centers[half, stream["target"]]
    return stream


@pytest.mark.parametrize("size", [1, 50, 600])
@pytest.mark.parametrize("admission", ADMISSIONS)
def test_modes_are_groups(admission: str, size: int) -> None:
    stream = changing_stream(600)
    case = Case(24, gamma=-0.5, num_classes=4, admission=admission)
    buffer, run = case.check(stream, [size] * (600 // size))
    writer = buffer.writer
    assert isinstance(writer, BalancedInfoReservoirWriter)
    assert writer.modes.state[:, 4].sum() >= 2
    held = writer.save_state()["held"].tolist()
    assert held == [label + 4 * mode for label, mode in run.groups]


# -- what the parts are for -----------------------------------------------------------


def offer(writer: BalancedInfoReservoirWriter, labels: list[int], seed: int) -> Any:
    """Class counts of a memory of 20 after a stream of such labels."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.tensor(labels)
    items = TensorDict(
        {
            "feature": torch.eye(4)[kinds]
            + 0.5 * torch.randn(len(labels), 4, generator=generator),
            "target": kinds,
            "id": torch.arange(len(labels)),
        },
        batch_size=[len(labels)],
    )
    buffer = SelectiveReplayBuffer(20, writer=writer, generator=generator)
    for batch in items.split(64):
        buffer.extend(batch)
    return buffer[:]


def without_thresholds(**options: Any) -> BalancedInfoReservoirWriter:
    return BalancedInfoReservoirWriter(num_classes=4, gamma=None, **options)


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        ({"admission": "balanced"}, 4.5, 5.5),
        ({"admission": "capped"}, 3, 7),
        ({"admission": "reservoir", "victims": "all"}, 1, 17),
    ],
    ids=str,
)
def test_a_long_group_does_not_crowd_out_others_unless_all_items_count(
    options: dict[str, Any], least: float, most: float
) -> None:
    labels = [0] * 1500 + [1] * 150 + [2] * 150 + [3] * 150
    counts = np.mean(
        [
            offer(without_thresholds(**options), labels, seed)["target"].bincount(
                minlength=4
            )
            for seed in range(10)
        ],
        axis=0,
    )
    assert counts[0] == pytest.approx(max(counts))
    assert least < min(counts) <= counts[0] < most
    assert (counts[0] > 12) == (options["admission"] == "reservoir")


def test_a_late_group_comes_in_gradually_where_counts_are_capped() -> None:
    """A group after a long one has items of all of its time, as many as the other."""
    labels = [0] * 1600 + [1] * 400
    counts, shares = [], []
    for seed in range(20):
        held = offer(without_thresholds(admission="capped"), labels, seed)
        late = held["id"][held["target"] == 1]
        counts.append(len(late))
        shares.append(float((late < 1800).double().mean()))
    assert np.mean(counts) > 5  # 4 is its share of the stream
    assert 0.35 < np.mean(shares) < 0.65


def test_admission_without_classes_is_that_of_reservoir_sampling() -> None:
    writers = [
        BalancedInfoReservoirWriter(admission=admission, tournament=2)
        for admission in ADMISSIONS
    ]
    stream = make_stream(3, 200)
    memories = []
    for writer in writers:
        writer.seed = 5
        buffer = SelectiveReplayBuffer(10, writer=writer)
        extend_all(buffer, stream, [50] * 4)
        memories.append(buffer[:]["id"].tolist())
    assert memories[0] == memories[1] == memories[2]


def test_by_default_classes_of_any_length_get_about_the_same_share() -> None:
    """Also of a memory with few slots for each."""
    labels = [0] * 1500 + [1] * 300 + [2] * 300 + [3] * 300
    counts = np.zeros(4)
    for seed in range(10):
        held = offer(BalancedInfoReservoirWriter(num_classes=4), labels, seed)
        counts += held["target"].bincount(minlength=4).numpy() / 10
    assert min(counts) > 3
    assert max(counts) < 8


def share_of_regimes(regimes: torch.Tensor, groups: str) -> torch.Tensor:
    """Slots of each of four regimes, which nothing tells but features; of 20."""
    counts = []
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(len(regimes), 4, generator=generator)
        features = 3 * torch.eye(4)[regimes] + 0.2 * noise
        items = TensorDict(
            {"feature": features, "target": noise[:, :1], "regime": regimes},
            batch_size=[len(regimes)],
        )
        writer = BalancedInfoReservoirWriter(groups=groups, num_clusters=4)
        buffer = SelectiveReplayBuffer(20, writer=writer, generator=generator)
        for batch in items.split(600):
            buffer.extend(batch)
        counts.append(buffer[:]["regime"].bincount(minlength=4))
    return torch.stack(counts).double().mean(0)


@pytest.mark.parametrize("groups", ["clusters", "modes"])
def test_clusters_give_regimes_that_come_mixed_their_share(groups: str) -> None:
    """Three rare regimes with a long one; their share of the stream is a third each."""
    regimes = torch.tensor([0] * 57 + [1, 2, 3]).repeat(200)
    rare = share_of_regimes(regimes, groups)[1:]
    assert bool((rare > 1.5).all()) == (groups == "clusters"), rare


@pytest.mark.parametrize("groups", ["modes", "classes"])
def test_modes_give_regimes_one_after_the_other_their_share(groups: str) -> None:
    """Short regimes after long ones; the share of both in the stream is 2.5."""
    regimes = torch.arange(4).repeat_interleave(torch.tensor([6000, 1000, 500, 500]))
    short = float(share_of_regimes(regimes, groups)[2:].sum())
    assert (short > 5) == (groups == "modes"), short
    assert (short < 4) == (groups == "classes"), short


def test_a_tournament_keeps_what_is_informative() -> None:
    """Of many copies and a few other items in one group, copies leave."""
    labels = torch.zeros(600, dtype=torch.int64)
    features = torch.ones(600, 4)
    features[:5] = 3 * torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    items = TensorDict(
        {"feature": features, "target": labels, "id": torch.arange(600)},
        batch_size=[600],
    )

    def kept(tournament: int) -> float:
        total = 0
        for seed in range(10):
            writer = without_thresholds(tournament=tournament)
            writer.seed = seed
            buffer = SelectiveReplayBuffer(20, writer=writer)
            buffer.extend(items)
            total += int((buffer[:]["id"] < 5).sum())
        return total / 10

    assert kept(1) < 1
    assert kept(8) > 3


# -- the contract ---------------------------------------------------------------------


@pytest.mark.parametrize("admission", ADMISSIONS)
@pytest.mark.parametrize("victims", VICTIMS)
def test_it_is_a_writer(admission: str, victims: str) -> None:
    def make() -> BalancedInfoReservoirWriter:
        return BalancedInfoReservoirWriter(
            num_classes=4, admission=admission, victims=victims, tournament=3
        )

    check_writer(make, chunk_invariant=True)


@pytest.mark.parametrize("groups", ["modes", "clusters"])
def test_it_is_a_writer_for_numbers(groups: str) -> None:
    def make() -> BalancedInfoReservoirWriter:
        return BalancedInfoReservoirWriter(groups=groups)

    def items(count: int, seed: int) -> TensorDict:
        made = make_items(count, seed)
        return made.set("target", made["logits"][:, :2])

    with short_period():
        check_writer(make, items=items, chunk_invariant=True)


def test_items_that_others_write_change_group() -> None:
    buffer = Case(8, num_classes=4, tournament=1).buffer()
    stream = make_stream(0, 60, num_classes=4)
    extend_all(buffer, stream, [60])
    new = stream[:3].clone()
    new["target"] = torch.tensor([3, 3, 3])
    buffer[torch.arange(3)] = new
    buffer.writer.catch_up()
    held = buffer.writer.save_state()["held"] % 4
    assert held.tolist() == buffer[:]["target"].tolist()


def numbers(count: int, seed: int) -> TensorDict:
    """Items of six kinds with a number to predict."""
    stream = make_stream(seed, count, feature_dim=4, scale=0.3)
    centers = 3 * torch.randn(6, 4, generator=torch.Generator().manual_seed(9))
    stream["feature"] = stream["feature"] + centers[stream["id"] % 6]
    return stream


@pytest.mark.parametrize("groups", ["modes", "classes", "clusters"])
@pytest.mark.parametrize("emptied", [False, True])
def test_it_goes_on_with_items_of_others_where_there_are_no_classes(
    groups: str, emptied: bool
) -> None:
    case = Case(20, groups=groups)
    buffer = case.buffer()
    buffer.extend(numbers(100 if emptied else 5, 0))
    if emptied:
        buffer.empty(empty_write_count=False)
    buffer.storage.set(torch.arange(20), numbers(20, 1))
    slots = buffer.extend(numbers(300, 2))
    assert (slots >= 0).sum() > 5
    state = buffer.writer.save_state()
    assert (state["held"] >= 0).all()
    assert state["numbers"].sum() == buffer.reservoir_count


@pytest.mark.parametrize("filled", ["before", "after"])
def test_clusters_are_found_in_time_whoever_filled_the_memory(filled: str) -> None:
    """Items that were there before count, so they say when clusters are due."""
    memories = []
    for size in (7, 50, 400):
        buffer = Case(13, groups="clusters", num_clusters=4).buffer()
        storage = buffer.storage
        if filled == "before":
            storage = LazyTensorStorage(13)
            storage.set(torch.arange(13), numbers(13, 1))
            writer = buffer.writer
            buffer = SelectiveReplayBuffer(storage=storage, writer=writer)
            writer.seed = 5
        else:
            storage.set(torch.arange(13), numbers(13, 1))
        with short_period():
            for batch in numbers(400, 2).split(size):
                buffer.extend(batch)
        memories.append(buffer[:]["id"].tolist())
    assert memories[0] == memories[1] == memories[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"centers": torch.zeros(3, 9).double()}, r".* got .*9"),
        ({"centers": torch.zeros(2, 6).double()}, r"expected .*3.*, got .*2, 6"),
        ({"centers": torch.zeros(3, 6)}, "expected .*float64.* got .*float32"),
        ({"centers": None}, "expected a number from -1 to -1, got"),
        ({"item": -2}, "expected a number from -1 to"),
        ({"item": 1.5}, "expected a number from -1 to .* got 1.5"),
        ({"item": 60}, "expected those of an item before 60, got 60"),
    ],
    ids=str,
)
def test_saved_clusters_that_do_not_fit_are_refused(
    change: dict[str, Any], message: str
) -> None:
    case = Case(8, groups="clusters")
    buffer = case.buffer()
    extend_all(buffer, make_stream(0, 60, feature_dim=6), [60])
    state = buffer.state_dict()
    state["_writer"]["state"]["clusters"] |= change
    new = case.buffer()
    for target in (buffer, new):
        with pytest.raises(ValueError, match=f"cannot restore 'clusters': {message}"):
            target.load_state_dict(state)
    assert not len(new)


@pytest.mark.parametrize("groups", ["modes", "clusters"])
@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("held", -1, "expected a group of what is in each slot, got -1"),
        ("numbers", 1000, "expected .* items in all groups, got 1"),
    ],
    ids=str,
)
def test_groups_that_are_not_those_of_the_items_are_refused(
    groups: str, part: str, change: int, message: str
) -> None:
    case = Case(40, groups=groups)
    buffer = case.buffer()
    extend_all(buffer, make_stream(0, 200, feature_dim=6), [50] * 4)
    state = buffer.state_dict()
    assert state["_writer"]["in_step"]
    state["_writer"]["state"][part][0] = change
    new = case.buffer()
    for target in (buffer, new):
        with pytest.raises(ValueError, match=f"cannot restore '{part}': {message}"):
            target.load_state_dict(state)
    assert not len(new)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"admission": "all"}, "admission must be one of reservoir, capped, balanced"),
        ({"victims": "some"}, "victims must be one of all, largest, own, got 'some'"),
        ({"tournament": 0}, "tournament must be at least 1, got 0"),
        ({"gamma": float("nan")}, "gamma must be a finite number, got nan"),
        ({"groups": "all"}, "groups must be one of modes, classes, clusters, got"),
        ({"num_clusters": 0}, "num_clusters must be at least 1, got 0"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_named(options: dict[str, Any], message: str) -> None:
    make: Callable[..., Any] = BalancedInfoReservoirWriter
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_a_case_of_its_own_is_not_that_of_another() -> None:
    """The reference tells settings apart, so the tests above can fail."""
    stream = changing_stream(600)
    case = Case(10, num_classes=4, gamma=-0.5)
    expected = case.run(stream, [600], 0).memory
    for changed in (
        {"admission": "reservoir"},
        {"victims": "all"},
        {"tournament": 1},
        {"gamma": None},
        {"groups": "classes"},
        {"groups": "clusters"},
    ):
        assert replace(case, **changed).run(stream, [600], 0).memory != expected
