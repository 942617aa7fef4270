"""Figures that are drawn from runs of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.cli import main
from agents.figures.against import PANELS, Panel, group_rows, make
from agents.figures.own_runs import describe_runs, find_rows
from agents.figures.registry import FIGURES
from agents.figures.settings import SweepFigureSettings
from agents.runs.folder import RunError
from agents.sweeps.grid import make_jobs
from agents.sweeps.results import ResultsFile, code_version, read_rows
from agents.sweeps.worker import Failure, run_job

NAMES = [name for name, entry in FIGURES.items() if entry.runs is not None]


def shorten(described: dict[str, Any]) -> dict[str, Any]:
    """The description of few and short runs: two values of each list, one seed."""
    short = {**described, "seed": 0}
    for name, value in described.items():
        if isinstance(value, list):
            short[name] = value[:2]
    short["methods"] = {
        method: {
            name: value[:2] if isinstance(value, list) else value
            for name, value in settings.items()
        }
        for method, settings in described["methods"].items()
    }
    if "update_delay" in short:
        short["update_delay"] = [0, 1]
    return short


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one small sweep on real digits for each figure."""
    folder, version = tmp_path_factory.mktemp("sweeps"), code_version()
    settings = SweepFigureSettings(env="SplitDigits", epochs=1)
    for name in NAMES:
        runs = str(FIGURES[name].runs)
        sweep = folder / name
        sweep.mkdir()
        for job in make_jobs(shorten(describe_runs(runs, settings))):
            row = run_job(job, sweep / "runs" / job.key)
            assert not isinstance(row, Failure), row
            ResultsFile(sweep).append({**row, **version})
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_drawn_from_finished_runs(
    name: str, sweeps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"{name}.png"
    before = (sweeps / name / "results.jsonl").read_bytes()
    results = str(sweeps / name)
    assert main(["figure", name, "--results", results, "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == str(out)
    assert len(lines) > 2
    assert (sweeps / name / "results.jsonl").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize("name", NAMES)
def test_the_runs_of_a_figure_can_be_run_on_any_stream(name: str) -> None:
    runs = str(FIGURES[name].runs)
    for env in ("SplitMNIST", "PermutedMNIST", "SplitCIFAR10", "SplitMiniImageNet"):
        jobs = make_jobs(describe_runs(runs, SweepFigureSettings(env=env)))
        assert {job.config.stream for job in jobs} == {env}
        if runs in PANELS:
            for panel in PANELS[runs]:
                values = {
                    getattr(job.config, panel.x)
                    for job in jobs
                    if panel.method in (None, job.method)
                }
                assert len(values) > 1, panel


def test_runs_of_its_own_are_done_once(tmp_path: Path) -> None:
    out = tmp_path / "evolution.pdf"
    words = f"figure evolution --env SplitDigits --epochs 1 --out {out}".split()
    assert main(words) == 0
    file = tmp_path / "evolution" / "results.jsonl"
    rows = read_rows(file)
    assert sorted(row["method"] for row in rows) == ["InfoRS", "RS"]
    before = file.read_bytes()
    out.unlink()
    assert main(words) == 0
    assert out.is_file()
    assert file.read_bytes() == before


def row(method: str, average: float | None, **settings: Any) -> dict[str, Any]:
    result = {
        "stream": "SplitMNIST",
        "average": average,
        "metric": "accuracy",
        "imbalance": 1,
        **settings,
    }
    return {"method": method, "result": result}


def test_a_point_is_the_mean_over_seeds_of_one_line() -> None:
    rows = [
        row("RS", 0.2, capacity=50),
        row("RS", 0.4, capacity=50),
        row("RS", 0.9, capacity=20),
        row("RS", 0.7, capacity=20, imbalance=10),
        row("InfoRS", 0.6, capacity=20),
        row("RS", 0.1, capacity=20, stream="PermutedMNIST"),
    ]
    (panel,) = PANELS["budget"]
    found = group_rows(rows, "SplitMNIST", panel)
    means = {
        line: {x: round(each.mean, 6) for x, each in places.items()}
        for line, places in found.items()
    }
    assert means == {
        "RS, r = 1": {20: 90.0, 50: 30.0},
        "RS, r = 10": {20: 70.0},
        "InfoRS, r = 1": {20: 60.0},
    }
    assert [*found["RS, r = 1"]] == [20, 50]
    assert found["RS, r = 1"][50].seeds == 2


def test_a_method_of_one_stream_only_is_in_the_legend(
    sweeps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = read_rows(sweeps / "imbalance")
    others = [
        {**row, "key": f"{row['key']}-0", "result": {**row["result"], "stream": "A"}}
        for row in rows
        if row["method"] in ("RS", "InfoRS")
    ]
    monkeypatch.setattr("agents.figures.against.find_rows", lambda *_: others + rows)
    told: list[list[str]] = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.legend",
        lambda self, handles, names, **_: told.append([*names]),
    )
    make("imbalance", SweepFigureSettings(), tmp_path / "a.png")
    assert {*told[0]} == {row["method"] for row in rows}


def test_a_panel_of_one_method_leaves_others_out() -> None:
    rows = [row("eta", 0.5, eta=1), row("gamma", 0.9, eta=1)]
    found = group_rows(rows, "SplitMNIST", Panel("eta", "η", ("imbalance",), "eta"))
    assert {line: places[1].mean for line, places in found.items()} == {"r = 1": 50.0}


def test_runs_that_diverged_and_other_methods_are_left_out(
    sweeps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = read_rows(sweeps / "greedy")
    for number, each in enumerate(rows):
        each["key"] = str(number)
    rows[0]["result"]["average"] = None
    rows[1]["method"] = "another"
    for each in rows:
        ResultsFile(tmp_path).append(each)
    settings = SweepFigureSettings(results=str(tmp_path))
    found = find_rows("greedy", settings, tmp_path / "x.png")
    assert {each["key"] for each in found} == {each["key"] for each in rows[2:]}
    assert "left out (--methods draws others): another\n" in capsys.readouterr().err


def test_other_methods_can_be_drawn_by_name(sweeps: Path, tmp_path: Path) -> None:
    rows = read_rows(sweeps / "greedy")
    for number, each in enumerate(rows):
        each["key"] = str(number)
    rows[1]["method"] = "mine, faster"
    for each in rows:
        ResultsFile(tmp_path).append(each)
    settings = SweepFigureSettings(
        results=str(tmp_path), methods=f"mine, faster; {rows[0]['method']}"
    )
    found = find_rows("greedy", settings, tmp_path / "x.png")
    assert found[0]["method"] == "mine, faster"
    assert {each["method"] for each in found[1:]} == {rows[0]["method"]}


def test_results_that_cannot_be_drawn_are_told(sweeps: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.png"

    def fails(folder: Path) -> str:
        settings = SweepFigureSettings(results=str(folder))
        with pytest.raises(RunError) as error:
            find_rows("criteria", settings, out)
        return str(error.value)

    assert "no finished run of a method of this figure (MIC" in fails(sweeps / "budget")
    assert "is not the folder of a sweep" in fails(tmp_path / "none")
    cut = tmp_path / "results.jsonl"
    cut.write_bytes((sweeps / "criteria" / "results.jsonl").read_bytes()[:-9])
    assert "is cut short in line" in fails(tmp_path)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("budget --env SplitMnist", "env must be one of"),
        ("budget --seeds a", "seeds must be whole numbers"),
        ("budget --epochs 0", "epochs must be at least 1"),
        ("budget --results a --workers 2", "results and workers cannot both be given"),
        ("budget --methods RS", "methods chooses among those of results"),
        ("budget --results a --mixed", "results and mixed cannot both be given"),
    ],
)
def test_a_wrong_value_is_named(
    words: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", *words.split()]) == 2
    assert reason in capsys.readouterr().err
