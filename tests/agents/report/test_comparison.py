"""Several runs and sweeps are compared in tables that can be read in a terminal."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from agents.cli import main
from agents.q_learning.experiment import DQNExperiment
from agents.report.comparison import compare
from agents.runs.folder import RunFolder
from agents.sweeps.results import read_rows
from tests.agents.q_learning.helpers import small as small_dqn
from tests.agents.report.conftest import EVIL, make_row, write_rows
from tests.agents.report.test_bad_input import contents
from tests.agents.report.test_tables import PAPER_RS, scores
from tests.agents.supervised.helpers import finish, small
from tests.agents.test_cli import told


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished runs by name: two seeds of rs, one of infors, one of Q-learning."""
    path = tmp_path_factory.mktemp("runs")
    chosen: dict[str, dict[str, Any]] = {
        "rs-0": {"policy": "rs", "seed": 0},
        "rs-1": {"policy": "rs", "seed": 1},
        "infors-0": {"policy": "infors", "seed": 0},
        "diabetes": {"policy": "rs", "env": "SplitDiabetes", "batch_size": 16},
    }
    for name, settings in chosen.items():
        finish(small(**settings), path / name)
    config = small_dqn(env="CartPole-v1", frames=64, evaluations=1)
    DQNExperiment(config, RunFolder(path / "dqn")).run()
    return {name: path / name for name in (*chosen, "dqn")}


def cells(text: str) -> dict[str, list[str]]:
    """The rows of the tables in a text, by the first cell."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    words = [[word.strip() for word in row.strip("|").split(" | ")] for row in rows]
    return {first: others for first, *others in words if set(first) != {"-"}}


def percent(path: Path, measure: str = "average") -> float:
    return 100 * float(RunFolder(path).read("result.json")[measure])


# -- tables ---------------------------------------------------------------------------


def test_cells_have_mean_and_standard_error_and_the_best_is_in_bold(
    tmp_path: Path,
) -> None:
    rows = [
        *scores("rs", 0.50, 0.52, 0.54),
        *scores("infors", 0.60, 0.60, 0.63),
        *scores("rs", 0.30, 0.32, 0.34, imbalance=10),
        *scores("infors", 0.10, 0.11, imbalance=10),
    ]
    found = compare([write_rows(tmp_path / "sweep", rows)])
    assert found.startswith(
        "SplitMNIST, accuracy in per cent, mean ± standard error of 3 seeds:\n\n|"
    )
    # Standard errors by hand: sqrt(sum of squares / (n - 1) / n).
    error = math.sqrt((1 + 1 + 4) / 2 / 3)
    assert cells(found)["method"] == ["r = 1", "r = 10"]
    assert cells(found)["rs"][0].startswith("52.0 ± 1.2")
    assert cells(found)["infors"][0].startswith(f"**61.0 ± {error:.1f}**")
    assert cells(found)["rs"][1].startswith("**32.0 ± 1.2**")
    assert cells(found)["infors"][1].startswith("10.5 ± 0.5 (n=2)")


def test_the_papers_number_is_behind_a_stroke(tmp_path: Path) -> None:
    rows = [
        *scores("rs", 0.80, 0.82, 0.84, **PAPER_RS),  # the paper has 81.49 +- 0.72
        *scores("gss", 0.80, 0.82, 0.84, **PAPER_RS),  # and 45.36 +- 0.95
        *scores("own", 0.10, 0.12, 0.14, **PAPER_RS),
    ]
    found = compare([write_rows(tmp_path / "sweep", rows)])
    assert cells(found)["rs"] == ["**82.0 ± 1.2** / 81.5 ± 0.7"]
    assert cells(found)["gss"] == ["**82.0 ± 1.2** / 45.4 ± 0.9 (+24.5 se)"]
    assert cells(found)["own"] == ["12.0 ± 1.2"]
    *_, legend, summary = found.splitlines()
    assert legend.startswith("After the stroke: the paper's number, and the difference")
    assert summary.startswith("1 of 2 cells agree with the paper within two joint")


def test_where_the_paper_has_other_settings_its_number_is_left_out(
    tmp_path: Path,
) -> None:
    rows = scores("rs", 0.80, 0.82, **{**PAPER_RS, "capacity": 10})
    found = compare([write_rows(tmp_path / "sweep", rows)])
    assert cells(found)["rs"] == ["81.0 ± 1.0"]
    assert found.endswith(
        "The paper's numbers are left out where settings differ from the paper's "
        "(capacity = 100)."
    )
    rows = scores("rs", 0.80, 0.82, **{**PAPER_RS, "steps": 9})
    found = compare([write_rows(tmp_path / "short", rows)])
    assert found.endswith("differ from the paper's (steps not set).")


def test_scores_on_held_out_data_are_told_and_do_not_compete(tmp_path: Path) -> None:
    rows = [*scores("rs", 0.50, 0.52), *scores("infors", 0.60, 0.62)]
    rows += scores("rs", 0.90, 0.92, validation=True)
    rows += scores("cbrs", 0.80, 0.82, validation=True)
    found = compare([write_rows(tmp_path / "both", rows)])
    test, held_out = found.split("SplitMNIST, ")[1:]
    assert test.startswith("accuracy in per cent, mean")
    assert held_out.startswith("accuracy on held-out data in per cent, mean")
    assert cells(test)["infors"][0].startswith("**61.0 ± 1.0**")
    assert {*cells(test)} == {"method", "rs", "infors"}
    # The paper's numbers are on test data.
    assert cells(held_out)["rs"] == ["**91.0 ± 1.0**"]
    assert cells(held_out)["cbrs"] == ["81.0 ± 1.0"]
    # The folder of a tuning's grid has nothing else.
    grid = compare([write_rows(tmp_path / "grid", rows[4:])])
    assert grid.startswith("SplitMNIST, accuracy on held-out data in per cent, mean")


def test_one_seed_has_no_standard_error(tmp_path: Path) -> None:
    rows = [*scores("rs", 0.5, stream="x"), *scores("infors", 0.6, stream="x")]
    found = compare([write_rows(tmp_path / "sweep", rows)])
    assert found.startswith("x, accuracy in per cent, one seed:\n")
    assert "±" not in found


def test_columns_are_aligned(sweep: Path) -> None:
    found = compare([sweep], ["average", "backward_transfer"])
    tables = found.split("\n\n")[1::2]
    assert len(tables) == 2
    for table in tables:
        lines = table.splitlines()
        assert len({len(line) for line in lines}) == 1
        places = [[n for n, c in enumerate(line) if c == "|"] for line in lines]
        assert places.count(places[0]) == len(lines)
        assert set(lines[1]) == {"|", "-", " "}
    # Numbers are below each other, with and without the strokes of a bold one.
    (bold,) = [line.index("**") for line in lines if line.startswith("| rs ")][:1]
    assert {line[bold + 2].isspace() for line in lines[2:]} == {False}


def test_names_cannot_break_a_table_or_a_terminal(tmp_path: Path) -> None:
    rows = [make_row("a | b\n\x1b[31mred", key="1", policy="rs"), make_row(EVIL)]
    found = compare([write_rows(tmp_path / "sweep", rows)])
    assert "| a \\| b [31mred " in found
    assert "\x1b" not in found
    assert len(found.split("\n\n")[1].splitlines()) == 4


def test_runs_that_diverged_are_told_of(tmp_path: Path) -> None:
    lost: dict[str, Any] = {"diverged_at_step": 7}
    rows = [
        *scores("rs", 0.50, 0.52),
        make_row("rs", 2, None, **lost),
        make_row("gss", 0, None, **lost),
    ]
    for row in rows[2:]:
        del row["result"]["metric"]  # it was never measured
    found = compare([write_rows(tmp_path / "sweep", rows)])
    assert cells(found)["rs"][0].startswith("51.0 ± 1.0 (1 diverged)")
    assert cells(found)["gss"] == ["diverged"]
    alone = compare([write_rows(tmp_path / "alone", rows[-1:])])
    assert cells(alone)["gss"] == ["diverged"]
    assert "error" not in alone  # there is no seed to have one of


def test_each_stream_has_a_table_in_its_own_unit(runs: dict[str, Path]) -> None:
    digits, diabetes = (
        compare([runs["diabetes"], runs["rs-0"]]).split("Split")[number]
        for number in (2, 1)
    )
    assert digits.startswith("Digits, accuracy in per cent, one seed:")
    assert diabetes.startswith("Diabetes, negative squared error, one seed:")
    result = RunFolder(runs["diabetes"]).read("result.json")
    assert cells(diabetes)["rs"] == [f"{result['average']:.4f}"]


# -- runs and sweeps ------------------------------------------------------------------


def test_single_runs_are_compared_and_seeds_of_one_method_are_averaged(
    runs: dict[str, Path],
) -> None:
    found = cells(compare([runs["rs-0"], runs["rs-1"], runs["infors-0"]]))
    one, two, other = (percent(runs[name]) for name in ("rs-0", "rs-1", "infors-0"))
    mean, error = (one + two) / 2, abs(one - two) / 2
    assert found["rs"][0].strip("*").startswith(f"{mean:.1f} ± {error:.1f}")
    assert found["infors"][0].strip("*").startswith(f"{other:.1f}")
    assert sum("**" in row for (row,) in found.values()) == 1


def test_settings_that_differ_tell_runs_apart(tmp_path: Path) -> None:
    for name, capacity in (("small", 10), ("large", 40)):
        finish(small(policy="rs", steps=4, capacity=capacity), tmp_path / name)
    found = cells(compare([tmp_path / "small", tmp_path / "large"]))
    assert {*found} == {"method", "rs capacity=10", "rs capacity=40"}


def test_a_sweep_is_given_as_its_folder_or_as_its_file(sweep: Path) -> None:
    by_folder = compare([sweep])
    assert by_folder == compare([str(sweep / "results.jsonl")])
    for method in ("rs", "cbrs", "infors"):
        rows = [
            100 * row["result"]["average"]
            for row in read_rows(sweep)
            if (row["method"], row["result"]["imbalance"]) == (method, 3)
        ]
        assert (
            f"{sum(rows) / 2:.1f} ± {abs(rows[0] - rows[1]) / 2:.1f}"
            in (cells(by_folder)[method][1])
        )


def test_runs_and_sweeps_can_be_mixed(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = RunFolder(runs["rs-1"]).read("result.json")
    row = {"key": "k", "method": "rs", "result": result, "commit": "0123abcd"}
    write_rows(tmp_path / "sweep", [row, *scores("gss", 0.5, 0.7)])
    monkeypatch.chdir(tmp_path)
    found = compare(["sweep", runs["rs-0"], runs["infors-0"]])
    assert found.count("accuracy in per cent") == 2  # of two streams
    digits = cells(found[found.index("SplitDigits") : found.index("SplitMNIST")])
    mean = (percent(runs["rs-0"]) + percent(runs["rs-1"])) / 2
    assert digits["rs"][0].strip("*").startswith(f"{mean:.1f} ±")
    assert "infors" in digits
    assert cells(found)["gss"][0].startswith("60.0 ± 10.0")
    assert "versions" not in found  # the commit of a run alone is not known


def test_a_run_that_is_in_two_places_counts_once(tmp_path: Path, sweep: Path) -> None:
    assert compare([sweep, sweep / "results.jsonl", sweep]) == compare([sweep])
    # Also as the folder that the sweep has kept.
    row = next(row for row in read_rows(sweep) if row["method"] == "rs")
    assert compare([sweep, sweep / "runs" / row["key"]]) == compare([sweep])


# -- versions -------------------------------------------------------------------------


def test_two_versions_may_be_compared_and_the_last_line_says_so(
    tmp_path: Path,
) -> None:
    old = write_rows(tmp_path / "old", scores("rs", 0.5, 0.6))
    rows = [make_row("infors", commit="89abcdef")]
    new = write_rows(tmp_path / "new", rows)
    assert "versions" not in compare([old])
    assert compare([old, new]).splitlines()[-1] == (
        "Results of 2 versions of the code: 0123abcd (2 runs), 89abcdef (1 run)."
    )
    # Also where one sweep has both, and of packages.
    rows += [make_row("rs", 5), make_row("gss", 6)]
    rows[-1]["versions"] = {"torch": "2.13.0"}
    mixed = compare([write_rows(tmp_path / "mixed", rows)])
    assert mixed.splitlines()[-1] == (
        "Results of 2 versions of the code: 0123abcd (2 runs), 89abcdef (1 run); of 2 "
        "versions of torch: 2.14.1 (2 runs), 2.13.0 (1 run)."
    )


def test_one_run_with_two_results_is_shown_with_both_and_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [make_row("rs", n, 0.5, key=f"k{n}") for n in range(2)]
    after = [make_row("rs", n, 0.7, key=f"k{n}", commit="89abcdef") for n in range(2)]
    both = [make_row("infors", n, 0.6, key=f"i{n}") for n in range(2)]
    write_rows(tmp_path / "old", [*before, *both])
    write_rows(tmp_path / "new", [*after, *both])
    monkeypatch.chdir(tmp_path)
    found = compare(["old", "new"])
    ours = {name: row[0].split(" / ")[0] for name, row in cells(found).items()}
    assert ours == {
        "method": "r = 1",
        "rs (new)": "**70.0 ± 0.0**",
        "rs (old)": "50.0 ± 0.0",
        "infors": "60.0 ± 0.0",
    }
    assert "of 2 versions of the code" in found.splitlines()[-1]


def test_versions_of_packages_of_single_runs_are_compared_too(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    assert "versions" not in compare([runs["rs-0"], runs["infors-0"]])
    folder = RunFolder(tmp_path)
    for name in ("result.json", "versions.json"):
        folder.write(name, RunFolder(runs["rs-1"]).read(name))
    folder.write("versions.json", {**folder.read("versions.json"), "torch": "1.0"})
    line = compare([runs["rs-0"], tmp_path]).splitlines()[-1]
    assert line.startswith("Results of 2 versions of torch: ")
    os.unlink(tmp_path / "versions.json")
    assert "versions" not in compare([runs["rs-0"], tmp_path])


# -- the command ----------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["show", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_the_command_compares_and_draws_nothing(
    runs: dict[str, Path], sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {**contents(sweep), **contents(runs["infors-0"])}
    assert printed(capsys, sweep) == compare([sweep]) + "\n"
    both = printed(capsys, runs["infors-0"], sweep)
    assert both == compare([runs["infors-0"], sweep]) + "\n"
    assert {**contents(sweep), **contents(runs["infors-0"])} == before


def test_transfers_are_two_more_tables_also_of_one_run(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = runs["infors-0"]
    first, *others = printed(capsys, path, "--transfers").split("SplitDigits, ")[1:]
    assert first.startswith("accuracy")
    for name, part in zip(("backward", "forward"), others, strict=True):
        assert part.startswith(f"{name} transfer in per cent, one seed")
        assert cells(part)["infors"] == [f"{percent(path, f'{name}_transfer'):.1f}"]


def test_a_transfer_that_no_run_has_is_a_dash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finish(small(policy="rs", steps=4), tmp_path / "run")  # the stream goes on
    found = printed(capsys, tmp_path / "run", "--transfers")
    assert "SplitDigits, backward transfer in per cent:" in found
    assert cells(found)["rs"] == ["-"]


@pytest.mark.parametrize("name", ["rs-0", "dqn"])
def test_a_run_alone_is_still_printed_and_drawn(
    name: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed(capsys, runs[name])
    assert "|--" not in found
    pictures = [Path(line) for line in found.splitlines() if line.endswith(".png")]
    assert pictures
    assert all(each.is_file() and each.parent == runs[name] for each in pictures)
    word = "return at the end" if name == "dqn" else "average accuracy"
    assert word in found


def test_a_run_of_q_learning_cannot_be_compared(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(runs["dqn"])
    for more in ([str(runs["rs-0"])], ["--transfers"]):
        line = told(["show", str(runs["dqn"]), *more], capsys)
        assert line.endswith(
            "dqn cannot be compared: it is not a run of 'info-replay train'"
        )
    assert contents(runs["dqn"]) == before
