"""No policy decides otherwise than when its decisions were recorded."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.decision_cases import Case, all_cases
from benchmarks.decisions import (
    RECORDING,
    Log,
    check,
    compare,
    differences,
    load,
    record,
    save,
)

CASES = all_cases()


@functools.cache
def recorded() -> dict[str, Log]:
    return load(RECORDING)


@pytest.mark.parametrize("policy", sorted({case.policy for case in CASES}))
def test_every_decision_is_the_recorded_one(policy: str) -> None:
    """All cases take less than a minute; ``benchmarks.decisions`` prints the same."""
    own = [case for case in CASES if case.policy == policy]
    assert list(compare(recorded(), own)) == []


def test_every_recorded_case_is_still_played() -> None:
    assert set(recorded()) == {case.name for case in CASES}


def test_a_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    logs = record(CASES[:2])
    save(tmp_path / "decisions.npz", logs)
    loaded = load(tmp_path / "decisions.npz")
    assert list(loaded) == list(logs)
    for name, log in logs.items():
        assert loaded[name].keys() == log.keys()
        for key, value in log.items():
            assert loaded[name][key].dtype == value.dtype
            np.testing.assert_array_equal(loaded[name][key], value)


@pytest.fixture
def case() -> Case:
    return Case("rs", "7 7 64 7", capacity=5)


def test_a_changed_slot_is_named(case: Case) -> None:
    (log,) = record([case]).values()
    changed = {key: value.copy() for key, value in log.items()}
    changed[2, "slots"][9] = 4
    (line,) = differences(case, log, changed)
    assert "rs on 'arriving' seed 0" in line
    assert "step 2 (64): slots is 4 at place 9, recorded was" in line


@pytest.mark.parametrize(("change", "lines"), [(1e-11, 0), (1e-7, 1)])
def test_floats_may_differ_by_rounding_only(
    case: Case, change: float, lines: int
) -> None:
    (log,) = record([case]).values()
    changed = {**log, (3, "features"): log[3, "features"] + change}
    assert len(differences(case, log, changed)) == lines


def test_another_seed_decides_otherwise(case: Case) -> None:
    (log,) = record([case]).values()
    assert check(case, log) == []
    assert any("slots" in line for line in check(replace(case, seed=1), log))


def test_an_error_is_a_difference(case: Case) -> None:
    (line,) = check(replace(case, capacity=0), {})
    assert "raised ValueError: capacity must be" in line


def test_a_case_that_is_not_recorded_is_a_difference(case: Case) -> None:
    (line,) = compare({}, [case])
    assert line.endswith("not in the recording")
