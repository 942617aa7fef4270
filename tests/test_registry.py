"""Entries are found by name, here, in other packages, or anywhere."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from info_replay import (
    MIC,
    EntropyReduction,
    InfoGreedyWriter,
    make_criterion,
    make_replay_buffer,
    register_criterion,
    registry,
)
from info_replay.registry import CRITERIA, Registry


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
        registry, "installed_points", lambda group: points * (group == "tests.colors")
    )
    assert colors.get("mic") is MIC
    assert colors.names() == ["red", "mic", "pi"]
    assert colors.get("red") is not MIC  # what is registered here comes first
    with pytest.raises(ValueError, match="'pi' must be a class or function, got 3.14"):
        colors.get("pi")


# -- criteria --------------------------------------------------------------------------


def test_a_criterion_is_made_by_name() -> None:
    assert make_criterion("mic", eta=0.5) == MIC(0.5)
    assert make_criterion("er", eta=0.5) == EntropyReduction()  # of no use to it
    with pytest.raises(TypeError, match=r"no criterion has an option 'et'.*\['eta'\]"):
        make_criterion("er", et=3)


@pytest.mark.parametrize("name", ["fractions:Fraction", "builtins:dict"])
def test_what_is_found_must_be_a_policy_or_a_criterion(name: str) -> None:
    with pytest.raises(TypeError, match=f"'{name}' must make a SelectionWriter"):
        make_replay_buffer(name, 9)
    with pytest.raises(TypeError, match=f"'{name}' must make a Criterion"):
        make_criterion(name)


def test_a_criterion_of_the_user_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CRITERIA, "_entries", dict(CRITERIA._entries))

    @register_criterion("mine")
    class Own(EntropyReduction):
        pass

    assert isinstance(make_criterion("mine"), Own)
