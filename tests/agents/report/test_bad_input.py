"""What cannot be compared gets one line that says what it is, and stays as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.report.comparison import compare
from agents.runs.folder import RunError, RunFolder
from tests.agents.report.conftest import make_row, write_rows
from tests.agents.supervised.helpers import small
from tests.agents.test_cli import told


def contents(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}


def not_a_run(path: Path) -> str:
    path.mkdir()
    (path / "thesis.tex").write_text("words")
    return r"bad/result\.json is missing: this is not a finished run"


def not_finished(path: Path) -> str:
    folder = RunFolder(path)
    folder.create(small(policy="rs"))
    folder.release()
    return r"bad/result\.json is missing: this is not a finished run"


def not_there(path: Path) -> str:
    return "bad does not exist$"


def a_tuning(path: Path) -> str:
    path.mkdir()
    write_rows(path / "grid", [make_row(validation=True)])
    (path / "tuning.json").write_text("{}")
    return "bad is a tuning: show its grid or test folder$"


def all_failed(path: Path) -> str:
    (path / "failed").mkdir(parents=True)
    (path / "failed" / "k.log").write_text("no")
    return "no run of this sweep has finished, see .*bad/failed$"


def without_runs(path: Path) -> str:
    write_rows(path, [])
    (path / "results.jsonl").touch()
    return "bad has no finished runs: run its sweep first"


def cut(path: Path) -> str:
    write_rows(path, [make_row(), make_row("infors")])
    content = (path / "results.jsonl").read_bytes()
    (path / "results.jsonl").write_bytes(content[:-40])
    return "results.jsonl is cut short in line 2: run its sweep again"


def damaged(path: Path) -> str:
    write_rows(path, [make_row(), {"key": "k"}])
    return "results.jsonl is damaged: line 2 is not a result of a run"


def damaged_run(path: Path) -> str:
    path.mkdir()
    (path / "result.json").write_text('{"policy": "rs"')
    return r"result\.json is damaged"


def a_file_of_words(path: Path) -> str:
    path.write_text("words\n")
    return "bad is a file: give the folder of a run or a sweep"


BAD = (
    not_a_run,
    not_finished,
    not_there,
    a_tuning,
    all_failed,
    without_runs,
    cut,
    damaged,
    damaged_run,
    a_file_of_words,
)


@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__)
def test_a_path_that_cannot_be_compared_gets_one_line_and_nothing_changes(
    make: Any, order: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write_rows(tmp_path / "good", [make_row()])
    expected = make(tmp_path / "bad")
    before = contents(tmp_path)
    paths = [good, tmp_path / "bad"][:: 1 if order == "last" else -1]
    with pytest.raises(RunError, match=expected) as error:
        compare(paths)
    assert told(["show", *map(str, paths)], capsys).endswith(str(error.value))
    # Alone, it gets the same line.
    assert told(["show", str(tmp_path / "bad")], capsys).endswith(str(error.value))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("path", ["~nobody123/x", "x" * 300])
def test_a_path_that_cannot_be_looked_at_gets_one_line(
    path: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for paths in ([path], [path, str(sweep)], [str(sweep), path]):
        assert path in told(["show", *paths], capsys)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "zero"},
        {"imbalance": None},
        {"imbalance": 1e400},
        {"imbalance": 10, "imbalanced_task": 1, "first": 3},
        {"evaluations": None},
        {"average": "high"},
        {"average": "high", "seed": None},
    ],
    ids=str,
)
def test_values_of_wrong_types_get_one_line_that_names_the_place(
    change: dict[str, Any], tmp_path: Path
) -> None:
    good = write_rows(tmp_path / "good", [make_row()])
    rows = [make_row("rs", n, key=f"k{n}") for n in range(2)]
    rows.append(make_row("rs", 1, key="k2"))
    for row in rows[1:]:
        row["result"].update(change)
    bad = write_rows(tmp_path / "bad", rows)
    with pytest.raises(RunError) as error:
        compare([good, bad])
    text = f"the results in {bad} are not those of runs: see line 2"
    assert str(error.value) == text


@pytest.mark.parametrize(
    "change", [{"versions": ["torch"]}, {"commit": {}}, {"method": None}], ids=str
)
def test_rows_without_sense_get_one_line(change: Any, tmp_path: Path) -> None:
    row = {**make_row(), **change}
    if change.get("method", 1) is None:
        del row["method"]
    bad = write_rows(tmp_path / "bad", [row, make_row("infors")])
    with pytest.raises(RunError, match="bad are not those of runs"):
        compare([bad])
    assert json.loads((bad / "results.jsonl").read_text().splitlines()[0]) == row
