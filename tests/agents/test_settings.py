"""Every field of settings is checked by its type, its range and its choices."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import pytest

from agents.q_learning import DQNConfig
from agents.settings import Settings, option
from agents.supervised.config import ExperimentConfig
from info_replay.registry import Registry

NAN, INF = float("nan"), float("inf")
COLORS: Registry[Any] = Registry("color", "tests.colors")
COLORS.register("red")(dict)


def refuse_odd(value: int) -> None:
    if value % 2:
        raise ValueError(f"even must be even, got {value}")


@dataclass(frozen=True)
class Sample(Settings):
    count: int = option(3, "how many", min=1, max=9)
    share: float = option(0.5, "how much", min=0, below=1)
    decay: float | None = option(None, "how fast", above=0)
    name: str = option("a", "who", choices=("a", "b"))
    color: str = option("red", "which", choices=COLORS)
    switch: bool = option(False, "whether")
    even: int = option(2, "which", check=refuse_odd)


def test_what_is_allowed_is_taken() -> None:
    given = {"count": 9, "share": 0, "decay": 1e-9, "name": "b", "even": 4}
    found = Sample(**given, color="collections:OrderedDict", switch=True)
    assert found.as_dict() == dataclasses.asdict(found)
    assert {name: found.as_dict()[name] for name in given} == given
    assert Sample(decay=None).decay is None
    assert type(Sample(share=0).share) is float  # as it is from the command line


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("count", [1.5, "3", True, None, NAN], "a whole number"),
        ("share", [NAN, INF, -INF, "0.5", False, None], "a finite number"),
        ("decay", [NAN, "x", True], "a finite number"),
        ("name", [3, None], "text"),
        ("switch", [1, "no", None], "True or False"),
        ("count", [0, -3, 10], "at least 1 and at most 9"),
        ("share", [-0.1, 1.0, 7], "at least 0 and below 1"),
        ("decay", [0, -0.5], "above 0"),
        ("name", ["c", ""], "one of a, b"),
        ("color", ["blue"], "'red' or 'module:Name'"),
        ("even", [5], "even"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(
    name: str, values: list[Any], expected: str
) -> None:
    for value in values:
        pattern = (
            f"^{name} must be {re.escape(expected)}, got {re.escape(repr(value))}$"
        )
        with pytest.raises(ValueError, match=pattern):
            Sample(**{name: value})


def test_an_unknown_bound_is_an_error_of_the_program() -> None:
    with pytest.raises(TypeError, match="'least'"):
        option(3, "how many", least=1)


@pytest.mark.parametrize("settings", [ExperimentConfig, DQNConfig])
def test_settings_cannot_be_changed_and_explain_themselves(
    settings: type[Settings],
) -> None:
    made = settings()
    fields = dataclasses.fields(made)
    assert made.as_dict() == {field.name: field.default for field in fields}
    assert all(field.metadata["help"] for field in fields)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.seed = 3  # type: ignore[attr-defined]
