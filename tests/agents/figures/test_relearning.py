"""Relearning from the memory: every case done once, the same for a seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from agents.figures import relearning
from agents.figures.feature_files import Features, read_features
from agents.figures.memories import select_memory
from agents.figures.relearning import make, relearn
from agents.figures.settings import RelearningSettings
from agents.runs.folder import RunError

REPOSITORY = Path(__file__).parents[3]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def results(path: Path) -> dict[str, Any]:
    """Results without times."""
    return {row["key"]: row["result"] for row in rows_of(path)}


@pytest.fixture
def settings(digits_file: Path) -> RelearningSettings:
    return RelearningSettings(features=str(digits_file), sizes="12,25", seeds="0-1")


def test_a_row_says_all_that_its_result_depends_on(
    settings: RelearningSettings, tmp_path: Path
) -> None:
    lines = make(settings, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert len(lines) == 1 + 6
    rows = rows_of(tmp_path / "figure.jsonl")
    cases = {
        (r["result"]["method"], r["result"]["size"], r["result"]["seed"]) for r in rows
    }
    assert len(cases) == len(rows) == 12
    without = next(row for row in rows if row["result"]["method"] == "infogs-eta0")
    assert without["result"]["eta"] == 0
    assert without["result"]["gamma_learnability"] is None
    assert sum(without["result"]["class_counts"]) == without["result"]["size"]
    assert {"versions", "commit", "seconds", "method", "key"} <= without.keys()
    assert "torch" in without["versions"]


def test_accuracy_is_that_of_a_classifier_that_saw_only_the_memory(
    settings: RelearningSettings, digits_file: Path, tmp_path: Path
) -> None:
    make(settings, tmp_path / "figure.png")
    given = np.load(digits_file)
    features = read_features(str(digits_file))
    for row in rows_of(tmp_path / "figure.jsonl"):
        its = row["result"]
        memory = select_memory(
            features, its["method"], its["size"], its["seed"], settings
        )
        known, labels = given["X"][memory].astype(float), given["y"][memory]
        classifier = LogisticRegression(max_iter=10_000).fit(known, labels)
        predicted = classifier.predict(given["X_test"].astype(float))
        assert its["accuracy"] == (predicted == given["y_test"]).mean()
        assert its["class_counts"] == np.bincount(labels, minlength=10).tolist()


def test_a_memory_of_one_class_predicts_this_class(digits_file: Path) -> None:
    features = read_features(str(digits_file))
    memory = np.flatnonzero(features.train_labels == 3)[:5]
    assert relearn(features, memory) == (features.test_labels == 3).mean()


def test_rows_are_the_same_for_a_seed(
    settings: RelearningSettings, tmp_path: Path
) -> None:
    make(settings, tmp_path / "one.png")
    make(settings, tmp_path / "two.png")
    assert results(tmp_path / "one.jsonl") == results(tmp_path / "two.jsonl")


def test_what_has_a_row_is_not_done_again(
    settings: RelearningSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(settings, tmp_path / "figure.png")
    before = (tmp_path / "figure.jsonl").read_bytes()

    def refuse(*_: object, **__: object) -> float:
        raise AssertionError("a finished case was repeated")

    monkeypatch.setattr(relearning, "relearn", refuse)
    make(settings, tmp_path / "figure.pdf")
    assert (tmp_path / "figure.jsonl").read_bytes() == before


def test_other_settings_are_other_cases(
    settings: RelearningSettings, tmp_path: Path
) -> None:
    make(settings, tmp_path / "figure.png")
    other = {**settings.as_dict(), "gamma": 0.5}
    make(RelearningSettings(**other), tmp_path / "figure.png")
    # RS has no such setting: its cases are the same.
    assert len(rows_of(tmp_path / "figure.jsonl")) == 12 + 8


_DIES = """
import os, sys
from agents.figures import relearning
from agents.cli import main

done = []
whole = relearning.relearn

def dies(*arguments, **options):
    done.append(1)
    if len(done) == 6:
        os.kill(os.getpid(), 9)
    return whole(*arguments, **options)

relearning.relearn = dies
main(sys.argv[1:])
"""


def test_a_killed_one_goes_on_and_ends_the_same(
    settings: RelearningSettings, digits_file: Path, tmp_path: Path
) -> None:
    make(settings, tmp_path / "whole.png")
    out = tmp_path / "killed.png"
    words = f"figure relearning --features {digits_file} --sizes 12,25 --seeds 0-1"
    done = subprocess.run(
        [sys.executable, "-c", _DIES, *words.split(), "--out", str(out)],
        cwd=REPOSITORY,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == -9, done.stderr
    file = out.with_suffix(".jsonl")
    finished = file.read_bytes()
    assert finished.count(b"\n") == 5
    assert not out.exists()
    # It might also have been killed within a line.
    file.write_bytes(finished + b'{"key": "1')
    make(settings, out)
    assert file.read_bytes().startswith(finished)
    assert len(rows_of(file)) == 12
    assert results(file) == results(tmp_path / "whole.jsonl")


def test_results_of_two_versions_are_not_mixed_by_accident(
    settings: RelearningSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(settings, tmp_path / "figure.png")
    old = {"versions": {}, "commit": "0123456789ab"}
    monkeypatch.setattr(relearning, "code_version", lambda: old)
    make(settings, tmp_path / "figure.png")  # nothing to add
    before = (tmp_path / "figure.jsonl").read_bytes()
    more = {**settings.as_dict(), "seeds": "0-2"}
    with pytest.raises(RunError, match="another version of the code .*--mixed"):
        make(RelearningSettings(**more), tmp_path / "figure.png")
    assert (tmp_path / "figure.jsonl").read_bytes() == before
    make(RelearningSettings(**{**more, "mixed": True}), tmp_path / "figure.png")
    assert len(rows_of(tmp_path / "figure.jsonl")) == 18


def test_a_damaged_line_is_named_and_nothing_is_lost(
    settings: RelearningSettings, tmp_path: Path
) -> None:
    file = tmp_path / "figure.jsonl"
    file.write_text("nonsense\n")
    with pytest.raises(RunError, match="figure.jsonl is damaged: line 1"):
        make(settings, tmp_path / "figure.png")
    assert file.read_text() == "nonsense\n"


def test_a_memory_larger_than_the_stream_is_refused(
    digits_file: Path, tmp_path: Path
) -> None:
    large = RelearningSettings(features=str(digits_file), sizes="10,601")
    with pytest.raises(RunError, match="sizes must be at most 600, .* got 601"):
        make(large, tmp_path / "figure.png")


def test_features_differ_by_their_content(digits_file: Path) -> None:
    features = read_features(str(digits_file))
    assert isinstance(features, Features)
    assert features.digest == read_features(str(digits_file)).digest
