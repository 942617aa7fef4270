"""The page holds all it needs, harms nobody, and bad input gets one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from agents.cli import main
from agents.report.page import make_page, write_report
from agents.report.payload import to_json
from tests.agents.report.conftest import EVIL, data_of, make_row, write_rows


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a wrong command gets."""
    capsys.readouterr()
    assert main(arguments) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("info-replay: error: ")
    assert captured.out == ""
    return line


def test_the_command_writes_the_page(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(sweep), "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert out.read_text() == make_page(sweep)


def test_without_out_the_page_is_in_the_folder(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "sweep", [make_row()])
    assert write_report(folder) == folder / "report.html"
    assert write_report(folder / "results.jsonl") == folder / "report.html"


def test_the_page_asks_nothing_of_the_network(sweep: Path) -> None:
    page = make_page(sweep)
    assert "default-src 'none'" in page
    addresses = re.findall(r'(?:src|href)\s*=\s*"([^"]*)"', page)
    assert all(each.startswith(("#", "data:")) for each in addresses)
    assert {*re.findall(r"https?://[^\s\"'<)]+", page)} <= {
        "http://www.w3.org/2000/svg"
    }


def test_no_name_can_become_a_part_of_the_page(sweep: Path) -> None:
    page = make_page(sweep)
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    methods = data_of(page)["methods"]
    assert isinstance(methods, dict)
    assert EVIL in methods


def test_a_name_that_looks_like_a_placeholder_stays(tmp_path: Path) -> None:
    rows = [make_row("rs [[script]]", 0, policy="rs")]
    page = make_page(write_rows(tmp_path / "sweep", rows))
    assert "<th scope=row>rs [[script]]</th>" in page


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "&lt;", "\u2028"])
def test_json_in_a_page_reads_back_and_ends_no_script(text: str) -> None:
    found = to_json({text: [text]})
    assert json.loads(found) == {text: [text]}
    assert not {*"<>&\u2028\u2029"} & {*found}


def test_several_versions_of_the_code_are_told_clearly(tmp_path: Path) -> None:
    rows = [make_row("rs", 0), make_row("rs", 1, commit="4567ef-changed")]
    page = make_page(write_rows(tmp_path / "sweep", rows))
    assert "made by 2 versions of the code: 0123abcd (1 run), 4567ef-changed" in page
    assert "changes that were not committed" in page
    one = make_page(write_rows(tmp_path / "one", rows[:1]))
    assert 'class="warning">These' not in one


def test_tabs_do_not_call_errors_accuracies(tmp_path: Path) -> None:
    error = {"stream": "SplitDiabetes", "metric": "negative squared error"}
    rows = [make_row("rs", 0), make_row("rs", 0, -0.25, **error)]
    both = make_page(write_rows(tmp_path / "both", rows))
    assert 'data-measure="average" data-title="Score"' in both
    assert "<h3>SplitDiabetes: negative squared error</h3>" in both
    one = make_page(write_rows(tmp_path / "one", rows[:1]))
    assert 'data-measure="average" data-title="Accuracy"' in one


def test_held_out_and_test_data_have_tables_of_their_own(tmp_path: Path) -> None:
    rows = [
        *(make_row(name, 0, 0.5 + n / 10) for n, name in enumerate(("rs", "cbrs"))),
        make_row("rs", 0, 0.9, validation=True),
    ]
    page = make_page(write_rows(tmp_path / "sweep", rows))
    assert "<h3>SplitMNIST</h3>" in page
    assert "<h3>SplitMNIST: accuracy on held-out data</h3>" in page
    assert "<strong>60.00</strong>" in page
    assert "<strong>90.00</strong>" not in page
    assert [*data_of(page)["streams"]] == ["SplitMNIST", "SplitMNIST (held-out)"]


def test_failed_runs_are_told(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "sweep", [make_row()])
    (folder / "failed").mkdir()
    (folder / "failed" / "x.log").write_text("no")
    assert "1 run failed: see" in make_page(folder)


# -- bad input ------------------------------------------------------------------------


def test_a_folder_that_is_not_a_sweep_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is not the folder of a sweep" in told(["report", str(tmp_path)], capsys)
    assert "gone does not exist" in told(["report", str(tmp_path / "gone")], capsys)
    assert [*tmp_path.iterdir()] == []


def test_a_cut_or_damaged_file_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_rows(tmp_path / "sweep", [make_row("rs", 0), make_row("rs", 1)])
    file = folder / "results.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    assert "is cut short in line 2" in told(["report", str(folder)], capsys)
    file.write_bytes(b"not json\n" + whole)
    assert "is damaged: line 1" in told(["report", str(folder)], capsys)
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"method": None, "result": {}},
        {"result": {"stream": "x"}},
        {"evaluations": [{"scores": [1]}]},
        {"evaluations": [{"step": 1, "scores": "many"}]},
        {"seconds": [1]},
        {"versions": 3},
        {"result": {**make_row()["result"], "average": "high"}},
        {"result": {**make_row()["result"], "average": "high", "seed": None}},
        {"result": {**make_row()["result"], "imbalance": 1e400}},
    ],
    ids=str,
)
def test_rows_of_something_else_get_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object]
) -> None:
    rows = [make_row("infors"), {**make_row(), **change}]
    line = told(["report", str(write_rows(tmp_path / "sweep", rows))], capsys)
    assert line.endswith("sweep are not those of a sweep: see line 2")


def test_a_sweep_without_finished_runs_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.jsonl").touch()
    assert "has no finished runs" in told(["report", str(tmp_path)], capsys)


def test_a_file_that_cannot_be_written_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_rows(tmp_path / "sweep", [make_row()]))
    gone = str(tmp_path / "gone" / "page.html")
    assert "cannot write" in told(["report", folder, "--out", gone], capsys)
    assert "it is a folder" in told(["report", folder, "--out", str(tmp_path)], capsys)


def test_a_damaged_memory_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_rows(tmp_path / "sweep", [make_row(key="one")])
    (folder / "runs" / "one").mkdir(parents=True)
    (folder / "runs" / "one" / "memory.pt").write_bytes(b"no memory")
    assert "memory.pt" in told(["report", str(folder)], capsys)


@pytest.mark.parametrize("content", [b"", b"no snapshot", None])
def test_a_damaged_snapshot_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    folder = write_rows(tmp_path / "sweep", [make_row(key="one")])
    path = folder / "runs" / "one" / "memories" / "7.npz"
    path.parent.mkdir(parents=True)
    if content is None:  # cut
        np.savez(path, observation=np.zeros((9, 1, 8, 8)), target=np.zeros(9))
        content = path.read_bytes()[:-300]
    path.write_bytes(content)
    line = told(["report", str(folder)], capsys)
    assert f"{path} is damaged: delete it" in line
