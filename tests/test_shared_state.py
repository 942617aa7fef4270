"""What is declared once is saved, restored, compared, cleared and shared."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import pickle
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from info_replay import MIC, InfoReservoirWriter, ReservoirWriter, RunningMoments
from info_replay import shared_state as module
from info_replay.shared_state import DeclaredState, PerSlot, SharedArray, SharedNumber


class Tally(DeclaredState):
    """Has one part of each kind."""

    def __init__(self, step: int = 1, *, label: str | None = None) -> None:
        super().__init__()
        self.step = step
        self.label = label
        self.total = self.counter("total")
        self.weight = self.number("weight")
        self.table = self.array("table", (2, 3), np.int64, empty=-1)
        self.scores = self.per_slot("scores", np.float64, empty=0.5)
        self.moments = self.declare("moments", RunningMoments())
        self.scores.attach(SimpleNamespace(capacity=4))

    def count(self) -> None:
        self.total.value += self.step
        self.weight.value += 0.25
        self.table.array[1, 2] = 7
        self.scores.array[3] = 9.0
        self.moments.update([1.0, 3.0])

    def seen(self) -> list[Any]:
        return [
            self.total.value,
            self.weight.value,
            self.table.array.tolist(),
            self.scores.array.tolist(),
            self.moments.mean,
        ]


EMPTY = [0, 0.0, [[-1] * 3] * 2, [0.5] * 4, 0.0]
COUNTED = [1, 0.25, [[-1] * 3, [-1, -1, 7]], [0.5, 0.5, 0.5, 9.0], 2.0]


def test_state_starts_empty_and_goes_back_to_that() -> None:
    tally = Tally()
    assert tally.seen() == EMPTY
    tally.count()
    assert tally.seen() == COUNTED
    tally.clear_state()
    assert tally.seen() == EMPTY


def test_a_saved_state_stays_as_it_is_and_is_restored() -> None:
    tally, other = Tally(), Tally()
    tally.count()
    saved = tally.save_state()
    tally.count()
    other.check_saved(saved)
    other.restore_state(saved)
    assert other.seen() == COUNTED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"total": torch.zeros(2)}, r"'total'.* shape \(1,\)"),
        ({"table": torch.zeros(3, 2)}, r"'table'.* shape \(2, 3\)"),
        ({"scores": [1.0]}, r"'scores'.* shape \(4,\)"),
        ({"moments": {}}, "'moments'"),
        ({"extra": torch.zeros(1)}, "Tally keeps .*extra"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_by_name(
    change: dict[str, Any], message: str
) -> None:
    tally = Tally()
    tally.count()
    with pytest.raises(ValueError, match=message):
        tally.check_saved({**tally.save_state(), **change})
    with pytest.raises(ValueError, match="Tally keeps"):
        tally.check_saved(None)
    assert tally.seen() == COUNTED


def test_a_name_is_declared_once() -> None:
    with pytest.raises(ValueError, match="'total' is declared already"):
        Tally().counter("total")


# -- settings --------------------------------------------------------------------------


def test_settings_are_what_the_constructor_was_given() -> None:
    assert Tally().settings() == {"step": 1, "label": None}
    assert Tally(3, label="a").settings() == {"step": 3, "label": "a"}
    assert ReservoirWriter().settings() == {}
    settings = InfoReservoirWriter(criterion=MIC(0.5), jitter=0.2).settings()
    assert (settings["criterion"], settings["jitter"]) == ("MIC(eta=0.5)", 0.2)
    assert settings["dtype"] == "torch.float64"


def test_a_setting_must_be_kept_under_its_name() -> None:
    class Forgetful(DeclaredState):
        def __init__(self, step: int) -> None:
            super().__init__()

    with pytest.raises(TypeError, match="Forgetful must keep its argument 'step'"):
        Forgetful(2).settings()


@dataclass(frozen=True)
class Point:
    x: float


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (("a", "b"), ["a", "b"]),
        ({"a": np.int64(1)}, {"a": 1}),
        (functools.partial(copy.copy, 2, x=3), ["copy", 2, {"x": 3}]),
        (torch.device("cpu"), "cpu"),
        (torch.float32, "torch.float32"),
        (Point(2.0), "Point(x=2.0)"),
        (Point, "Point"),
        (copy.copy, "copy"),
        (SimpleNamespace(a=1, _b=2), "SimpleNamespace(a=1)"),
    ],
)
def test_settings_are_plain_values(value: Any, plain: Any) -> None:
    found = Tally(value).settings()["step"]
    assert found == plain
    assert type(found) is type(plain)


# -- numbers of slots ------------------------------------------------------------------


def test_numbers_of_slots_move_with_their_items() -> None:
    numbers = PerSlot(np.int64, empty=-1)
    assert numbers.array.tolist() == []
    numbers.attach(SimpleNamespace(capacity=5))
    assert numbers.array.tolist() == [-1] * 5
    numbers.array[:] = range(5)
    numbers.move(np.array([4, 3]), np.array([0, 1]))
    assert numbers.array.tolist() == [4, 3, 2, 3, 4]
    numbers.attach(SimpleNamespace(capacity=5))  # as many as before: they stay
    assert numbers.array.tolist() == [4, 3, 2, 3, 4]


# -- copies and processes --------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda tally: pickle.loads(pickle.dumps(tally))]
)
def test_a_copy_goes_its_own_way(duplicate: Any, shared: bool) -> None:
    tally = Tally()
    tally.count()
    if shared:
        tally.share_state()
    twin = duplicate(tally)
    assert twin.seen() == COUNTED
    twin.clear_state()
    assert tally.seen() == COUNTED


@pytest.mark.parametrize("shared", [False, True])
def test_processes_see_state_that_was_shared(shared: bool) -> None:
    tally = Tally()
    if shared:
        tally.share_state()
        tally.share_state()  # twice does no harm
    child = multiprocessing.get_context("fork").Process(target=tally.count)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert tally.seen() == (COUNTED if shared else EMPTY)


def test_slots_that_come_later_are_shared_too() -> None:
    numbers = PerSlot(np.int64)
    numbers.share_memory_()
    numbers.attach(SimpleNamespace(capacity=3))
    child = multiprocessing.get_context("fork").Process(
        target=numbers.move, args=(np.array([0]), np.array([2]))
    )
    numbers.array[0] = 5
    child.start()
    child.join()
    assert numbers.array.tolist() == [5, 0, 5]


def test_on_the_way_to_a_child_process_numbers_become_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number = SharedNumber()
    number.value = 2**63 - 1  # as large as a seed
    monkeypatch.setattr(module, "get_spawning_popen", lambda: object())
    twin = SharedArray.__new__(SharedNumber)
    twin.__setstate__(number.__getstate__())
    assert twin.value == 2**63 - 1
    twin.value = 3
    assert number.value == 3


def test_shared_state_stays_where_it_is_when_torch_shares_in_another_way() -> None:
    before = torch.multiprocessing.get_sharing_strategy()
    tally = Tally()
    tally.share_state()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        child = torch.multiprocessing.get_context("spawn").Process(target=tally.count)
        child.start()
        child.join()
    finally:
        torch.multiprocessing.set_sharing_strategy(before)
    assert tally.seen() == COUNTED


def test_settings_of_a_subclass_include_those_that_it_passes_on() -> None:
    class Base(DeclaredState):
        def __init__(self, jitter: float = 0.1) -> None:
            super().__init__()
            self.jitter = jitter

    class Own(Base):
        def __init__(self, extra: int = 1, **options: Any) -> None:
            super().__init__(**options)
            self.extra = extra

    assert Own(jitter=5.0).settings() == {"extra": 1, "jitter": 5.0}


def test_arrays_are_told_apart_by_their_values() -> None:
    class Weighted(DeclaredState):
        def __init__(self, weights: Any) -> None:
            super().__init__()
            self.weights = weights

    zeros, ones = (Weighted(make(3)).settings() for make in (np.zeros, np.ones))
    assert zeros != ones
    assert zeros == Weighted(np.zeros(3)).settings()
