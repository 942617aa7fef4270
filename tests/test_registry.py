"""Policies and criteria are found by name, here, in other packages, or anywhere."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from info_replay import (
    MIC,
    EntropyReduction,
    HybridWriter,
    InfoGreedyWriter,
    ReservoirWriter,
    make_criterion,
    make_replay_buffer,
    register_criterion,
    register_policy,
    registry,
)
from info_replay.registry import CRITERIA, POLICIES, Registry


@pytest.fixture
def colors() -> Registry[Any]:
    found: Registry[Any] = Registry("color", "tests.colors")

    @found.register("red")
    def red() -> str:
        return "red"

    return found


def test_a_registered_entry_is_found_by_its_name(colors: Registry[Any]) -> None:
    assert colors.get("red")() == "red"
    assert colors.names() == ["red"]
    assert "red" in colors
    assert "green" not in colors


def test_an_unknown_name_is_answered_with_those_that_there_are(
    colors: Registry[Any],
) -> None:
    with pytest.raises(ValueError, match="must be 'red' or 'module:Name', got 'blue'$"):
        colors.get("blue")
    with pytest.raises(ValueError, match="got 'rde'; did you mean 'red'"):
        colors.get("rde")
    with pytest.raises(ValueError, match="got None"):
        colors.get(None)  # type: ignore[arg-type]


def test_a_name_belongs_to_one_entry(colors: Registry[Any]) -> None:
    entry = colors.get("red")
    assert colors.register("red")(entry) is entry  # the same one again, after a reload
    with pytest.raises(ValueError, match="the color 'red' is .*red already, got .*MIC"):
        colors.register("red")(MIC)
    for name in ("", "a:b"):
        with pytest.raises(ValueError, match=f"name without a colon, got '{name}'"):
            colors.register(name)


def test_module_and_name_need_no_registration(colors: Registry[Any]) -> None:
    assert colors.get("info_replay:MIC") is MIC
    assert colors.get("info_replay:InfoGreedyWriter.score") is InfoGreedyWriter.score
    for name in ("info_replay:Missing", "no_such_module:X", ":X"):
        with pytest.raises(ValueError, match=f"cannot import the color '{name}'"):
            colors.get(name)
    with pytest.raises(ValueError, match="must be a class or function, got "):
        colors.get("math:pi")


def test_other_packages_bring_entries(
    colors: Registry[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [
        EntryPoint("mic", "info_replay:MIC", "tests.colors"),
        EntryPoint("pi", "math:pi", "tests.colors"),
        EntryPoint("red", "info_replay:MIC", "tests.colors"),
    ]
    monkeypatch.setattr(
        registry, "entry_points", lambda *, group: points * (group == "tests.colors")
    )
    assert colors.get("mic") is MIC
    assert colors.names() == ["red", "mic", "pi"]
    assert colors.get("red") is not MIC  # what is registered here comes first
    with pytest.raises(ValueError, match="'pi' must be a class or function, got 3.14"):
        colors.get("pi")


# -- policies --------------------------------------------------------------------------


@pytest.fixture
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (POLICIES, CRITERIA):
        monkeypatch.setattr(each, "_entries", dict(each._entries))


@pytest.mark.usefixtures("_clean")
def test_a_policy_and_a_criterion_of_the_user_are_found() -> None:
    @register_policy("mine")
    class Mine(ReservoirWriter):
        def __init__(self, size: int = 3, **rest: Any) -> None:
            super().__init__()
            self.size, self.rest = size, rest

    writer = make_replay_buffer("mine", 9, size=4, other=1, batch_size=2).writer
    assert isinstance(writer, Mine)
    assert (writer.size, writer.rest) == (4, {"other": 1})

    @register_criterion("mine")
    class Own(EntropyReduction):
        pass

    assert isinstance(make_criterion("mine"), Own)


def test_what_is_found_must_be_a_policy_or_a_criterion() -> None:
    with pytest.raises(
        TypeError, match="'fractions:Fraction' must make a SelectionWriter"
    ):
        make_replay_buffer("fractions:Fraction", 9)
    with pytest.raises(TypeError, match="'fractions:Fraction' must make a Criterion"):
        make_criterion("fractions:Fraction")


def test_options_of_other_policies_are_ignored() -> None:
    options: dict[str, Any] = {"num_classes": 3, "parts": 2, "noise": 0.4}
    for policy in ("rs", "cbrs", "coreset", "infogs", "infors"):
        make_replay_buffer(policy, 12, recent=None, **options)
    assert make_replay_buffer("infogs-rs", 9).writer.reservoir
    assert isinstance(make_replay_buffer("rs", 9, recent=2).writer, HybridWriter)
    assert make_criterion("mic", eta=0.5) == MIC(0.5)
    assert make_criterion("er", eta=0.5) == EntropyReduction()


def test_unknown_and_missing_options_are_named() -> None:
    with pytest.raises(TypeError, match="an option 'num_clases'; did you mean 'num_c"):
        make_replay_buffer("rs", 9, num_clases=3)
    with pytest.raises(TypeError, match="an option 'qqq'$"):
        make_replay_buffer("rs", 9, qqq=3)
    with pytest.raises(TypeError, match="policy 'cbrs' needs the option 'num_classes'"):
        make_replay_buffer("cbrs", 9)
    with pytest.raises(TypeError, match=r"no criterion has an option 'et'.*\['eta'\]"):
        make_criterion("er", et=3)
