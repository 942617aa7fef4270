"""Which runs make one point of a figure: seeds that nothing else tells apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.cli import main
from agents.figures import own_runs
from agents.figures.own_runs import describe_runs, find_rows
from agents.figures.registry import FIGURES
from agents.figures.settings import SweepFigureSettings
from agents.runs.folder import RunError
from agents.sweeps.grid import Job, make_jobs
from agents.sweeps.results import ResultsFile, code_version
from agents.sweeps.sweep import SweepReport

Row = dict[str, Any]


def row_of(job: Job) -> Row:
    """What a run would have written, if it had learned anything."""
    config = job.config
    result = {
        **config.what_matters(),
        "stream": config.stream,
        "metric": "accuracy",
        "average": 0.5 + config.seed / 100,
        "task_ends": [1, 2],
        "memory": {"class_variance": 3.0 + config.seed},
    }
    scores = [
        {"step": step, "scores": [0.5, 0.7], "reservoir_count": 10 * step}
        for step in (1, 2)
    ]
    return {
        "key": job.key,
        "method": job.method,
        "result": result,
        "evaluations": scores,
        "seconds": {"learning": 2.0, "memory": 1.0},
    }


def rows_of(name: str, **settings: Any) -> list[Row]:
    """Rows of all runs of a figure on small digits."""
    chosen = SweepFigureSettings(**{"env": "SplitDigits", "seeds": "0-1", **settings})
    described = describe_runs(name.replace("-", "_"), chosen)
    return [row_of(job) for job in make_jobs(described)]


def write(folder: Path, rows: list[Row]) -> str:
    """The folder of a sweep with these rows."""
    folder.mkdir(exist_ok=True)
    file, version = ResultsFile(folder), code_version()
    for row in rows:
        file.append({**row, **version})
    return str(folder)


def refused(name: str, results: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which a figure is refused."""
    out = Path(results.partition(",")[0]) / "figure.png"
    words = ["figure", name, "--results", results, "--out", str(out)]
    assert main(words) == 2
    assert not out.exists()
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


# -- own runs -------------------------------------------------------------------------


def test_of_its_own_folder_exactly_the_runs_that_were_asked_for_are_drawn(
    tmp_path: Path,
) -> None:
    short: dict[str, Any] = {"seeds": "0", "epochs": 2, "samples_per_class": 9}
    asked = rows_of("budget", **short)
    write(tmp_path / "budget", rows_of("budget", epochs=1) + asked)
    settings = SweepFigureSettings(env="SplitDigits", mixed=True, **short)
    found = find_rows("budget", settings, tmp_path / "budget.png")
    assert {row["key"] for row in found} == {row["key"] for row in asked}
    results = [row["result"] for row in found]
    assert {(its["epochs"], its["samples_per_class"]) for its in results} == {(2, 9)}


def test_its_own_runs_are_done_by_as_many_workers_as_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def run(jobs: list[Job], folder: Path, **options: Any) -> SweepReport:
        asked.append(options["workers"])
        write(folder, [row_of(job) for job in jobs])
        return SweepReport(len(jobs), len(jobs))

    monkeypatch.setattr(own_runs, "run_with_progress", run)
    words = f"figure budget --env SplitDigits --seeds 0 --out {tmp_path}"
    assert main(f"{words}/a.png --workers 3".split()) == 0
    assert main(f"{words}/b.png".split()) == 0
    assert asked == [3, None]


# -- settings that differ -------------------------------------------------------------


def test_sizes_of_the_memory_are_not_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = write(tmp_path / "budget", rows_of("budget"))
    line = refused("imbalance", budget, capsys)
    assert "SplitDigits, RS, imbalance 1 must differ in the seed only" in line
    assert "capacity 20, 50, 100, 200, 500" in line


@pytest.mark.parametrize(
    "name", ["imbalance", "budget", "eta-gamma", "reservoir", "running-time", "timing"]
)
def test_runs_of_other_lengths_are_not_seeds(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(name, epochs=1) + rows_of(name, seeds="2", epochs=2)
    assert "have epochs 1, 2: give" in refused(name, write(tmp_path, rows), capsys)


def test_the_one_run_that_is_drawn_of_each_method_is_not_a_guess(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of("evolution", epochs=1) + rows_of("evolution", epochs=2)
    line = refused("evolution", write(tmp_path, rows), capsys)
    assert "runs of RS must differ in the seed only, but have epochs 1, 2" in line


@pytest.mark.parametrize("name", ["reservoir", "evolution"])
def test_streams_are_not_seeds(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(name) + rows_of(name, env="SplitMNIST")
    assert "env SplitDigits, SplitMNIST" in refused(name, write(tmp_path, rows), capsys)


def test_a_seed_with_two_long_tasks_is_not_two_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of("greedy", seeds="0")
    for row in rows_of("greedy", seeds="0"):
        row["result"]["imbalanced_task"] = 3
        rows.append(row)
    line = refused("greedy", write(tmp_path, rows), capsys)
    assert "have imbalanced_task 3, None: give" in line


def test_evaluations_threads_and_the_long_task_of_seeds_may_differ(
    tmp_path: Path,
) -> None:
    rows = rows_of("greedy", seeds="0-2")
    for row in rows:
        seed = row["result"]["seed"]
        changed = {"evaluations": seed, "threads": seed + 1, "imbalanced_task": seed}
        row["result"].update(changed)
    results = write(tmp_path, rows)
    words = ["figure", "greedy", "--results", results]
    assert main([*words, "--out", f"{tmp_path}/figure.png"]) == 0


def test_seconds_with_more_threads_are_not_another_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of("running-time")
    for row in rows:
        row["result"]["threads"] = row["result"]["seed"] + 1
    line = refused("running-time", write(tmp_path, rows), capsys)
    assert "have threads 1, 2: give" in line


def test_settings_that_older_results_lack_are_the_usual_ones(tmp_path: Path) -> None:
    rows = rows_of("greedy")
    for row in rows:
        if row["result"]["seed"] == 0:
            del row["result"]["longtail"]
    results = write(tmp_path, rows)
    words = ["figure", "greedy", "--results", results]
    assert main([*words, "--out", f"{tmp_path}/figure.png"]) == 0


# -- several folders ------------------------------------------------------------------


def test_the_same_results_in_two_folders_count_once(tmp_path: Path) -> None:
    rows = rows_of("greedy")
    first, second = write(tmp_path / "a", rows), write(tmp_path / "b", rows)
    settings = SweepFigureSettings(results=f"{first},{second}")
    assert len(find_rows("greedy", settings, tmp_path / "x.png")) == len(rows)


def test_of_the_same_run_that_with_more_evaluations_is_drawn(tmp_path: Path) -> None:
    rows, more = rows_of("evolution"), rows_of("evolution")
    for row in more:
        row["result"]["evaluations"] = 900
        row["key"] += "-more"
    first, second = write(tmp_path / "a", more), write(tmp_path / "b", rows)
    for results in (f"{first},{second}", f"{second},{first}"):
        settings = SweepFigureSettings(results=results)
        found = find_rows("evolution", settings, tmp_path / "x.png")
        assert len(found) == len(rows)
        assert {row["result"]["evaluations"] for row in found} == {900}


def test_other_numbers_of_the_same_run_are_refused_with_both_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of("greedy")
    first = write(tmp_path / "a", rows)
    rows[0]["result"]["average"] += 0.1
    second = write(tmp_path / "b", rows)
    line = refused("greedy", f"{first},{second}", capsys)
    assert f"{first} and {second} have different results of the same run" in line
    assert "InfoGS, imbalance 30, seed 0" in line


# -- sweeps from the command line -----------------------------------------------------


def test_a_sweep_from_the_command_line_has_the_methods_by_their_policies(
    tmp_path: Path,
) -> None:
    grid = {"env": "SplitDigits", "policy": "infogs,infors", "seed": "0-1"}
    results = write(tmp_path, [row_of(job) for job in make_jobs(grid)])
    settings = SweepFigureSettings(results=results)
    found = find_rows("greedy", settings, tmp_path / "x.png")
    assert [row["method"] for row in found] == ["InfoGS"] * 2 + ["InfoRS"] * 2


def test_the_same_run_under_both_names_counts_once(tmp_path: Path) -> None:
    grid = {"env": "SplitDigits", "policy": "infors", "seed": "0", "imbalance": 3}
    short = write(tmp_path / "a", [row_of(job) for job in make_jobs(grid)])
    both = f"{short},{write(tmp_path / 'b', rows_of('greedy', seeds='0'))}"
    settings = SweepFigureSettings(results=both)
    found = find_rows("greedy", settings, tmp_path / "x.png")
    assert len(found) == len(rows_of("greedy", seeds="0"))


def test_a_folder_without_the_methods_is_told_with_those_it_has(
    tmp_path: Path,
) -> None:
    grid = {"env": "SplitDigits", "policy": "infors", "eta": "1,3"}
    results = write(tmp_path, [row_of(job) for job in make_jobs(grid)])
    with pytest.raises(RunError) as error:
        find_rows("greedy", SweepFigureSettings(results=results), tmp_path / "x.png")
    assert "(InfoGS, InfoGS-RS, InfoRS); found infors eta=1" in str(error.value)


# -- options --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word", ["--env SplitDigits", "--seeds 0-1", "--epochs 2", "--samples-per-class 9"]
)
def test_settings_of_own_runs_are_refused_with_results(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", "budget", "--results", str(tmp_path), *word.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    name = word.split()[0].strip("-").replace("-", "_")
    assert f"results and {name} cannot both be given, got {name}=" in line


def test_defaults_of_own_runs_are_in_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seeds: dict[Any, set[str]] = {}
    for entry in FIGURES.values():
        if entry.runs is not None:
            described = describe_runs(entry.runs, SweepFigureSettings())
            assert described["env"] == "SplitMNIST"
            seeds.setdefault(described["seed"], set()).add(entry.runs)
    with pytest.raises(SystemExit):
        main(["figure", "budget", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "stream of its own runs (SplitMNIST)" in shown
    assert "(0-4; 0-9 of imbalance, greedy and timing; 0 of evolution)" in shown
    assert seeds.keys() == {"0-4", "0-9", 0}
    assert seeds["0-9"] == {"imbalance", "greedy", "timing"}
    assert seeds[0] == {"evolution"}
    assert "runs at a time (one for each core)" in shown


@pytest.mark.parametrize(("seeds", "told"), [("3", "  1 seed"), ("3-4", "  2 seeds")])
def test_one_seed_is_not_seeds(
    seeds: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = write(tmp_path, rows_of("greedy", seeds=seeds))
    words = ["figure", "greedy", "--results", results]
    assert main([*words, "--out", f"{tmp_path}/figure.png"]) == 0
    _, *lines, _ = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.endswith(told) for line in lines)


# -- the figure "reservoir" -----------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved."""
    from matplotlib.figure import Figure

    figures: list[Any] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: Any, **options: Any) -> None:
        save(figure, *args, **options)
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def test_the_legend_of_class_variances_is_outside_of_the_panel(
    tmp_path: Path, drawn: list[Any]
) -> None:
    results = write(tmp_path, rows_of("reservoir"))
    words = ["figure", "reservoir", "--results", results]
    assert main([*words, "--out", f"{tmp_path}/figure.png"]) == 0
    (figure,) = drawn
    panel = figure.axes[1]
    assert panel.get_legend() is None
    (legend,) = figure.legends
    assert not legend.get_window_extent().overlaps(panel.get_window_extent())
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["RS", "WRS", "InfoGS", "InfoRS", "InfoRS, all history"]


@pytest.mark.parametrize(
    ("methods", "label"),
    [
        ("RS; InfoRS", "class variance of the memory"),
        ("count", "reservoir count (thousands)"),
    ],
)
def test_a_panel_without_runs_is_left_out(
    methods: str, label: str, tmp_path: Path, drawn: list[Any]
) -> None:
    results = write(tmp_path, rows_of("reservoir"))
    words = ["figure", "reservoir", "--results", results, "--methods", methods]
    assert main([*words, "--out", f"{tmp_path}/figure.png"]) == 0
    assert [axis.get_ylabel() for axis in drawn[0].axes] == [label]


def test_methods_without_a_memory_have_no_class_variance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], drawn: list[Any]
) -> None:
    rows = rows_of("reservoir")
    for row in rows:
        if row["method"] == "RS":
            row["result"]["memory"] = None
    words = ["figure", "reservoir", "--results", write(tmp_path, rows), "--methods"]
    assert main([*words, "RS", "--out", f"{tmp_path}/figure.png"]) == 2
    assert "no run of these methods has a memory" in capsys.readouterr().err
    assert main([*words, "RS; WRS", "--out", f"{tmp_path}/figure.png"]) == 0
    (legend,) = drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["WRS"]


def test_class_variances_need_not_be_there_for_every_imbalance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        row
        for row in rows_of("reservoir")
        if (row["method"], row["result"]["imbalance"]) != ("WRS", 3)
    ]
    words = ["figure", "reservoir", "--results", write(tmp_path, rows)]
    assert main([*words, "--out", f"{tmp_path}/figure.png"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("  WRS ") for line in lines) == 3
