"""Rows become the tables that one would make by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.report.fragments import (
    agreement_text,
    settings_html,
    table_html,
    times_html,
)
from agents.report.payload import make_payload, quantities
from agents.report.runs import Run, read_runs
from agents.report.tables import agreement, make_table
from tests.agents.report.conftest import make_row, write_rows

PAPER_RS = {"network": "fc", "epochs": 1, "batch_size": 128, "capacity": 100}


def runs_of(folder: Path, rows: list[dict[str, Any]]) -> list[Run]:
    return read_runs(write_rows(folder / "sweep", rows))


def scores(method: str, *values: float, **result: Any) -> list[dict[str, Any]]:
    return [make_row(method, n, value, **result) for n, value in enumerate(values)]


def test_the_best_is_marked_and_those_within_one_joint_error(tmp_path: Path) -> None:
    rows = [
        *scores("rs", 0.50, 0.52, 0.54),
        *scores("cbrs", 0.50, 0.51, 0.54),  # a little less than rs
        *scores("infors", 0.10, 0.11, 0.12),
    ]
    table = make_table(runs_of(tmp_path, rows), "SplitMNIST", "average")
    marks = {m: (c.best, c.close) for (m, _), c in table.cells.items()}
    assert marks == {
        "rs": (True, False),
        "cbrs": (False, True),
        "infors": (False, False),
    }
    page = table_html(table)
    assert "<strong>52.00 \N{PLUS-MINUS SIGN} 1.15</strong>" in page
    assert page.count("\N{ALMOST EQUAL TO}</span>") == 1


def test_equal_means_are_equally_good_whatever_their_rounding(tmp_path: Path) -> None:
    rows = [*scores("rs", 0.1, 0.2, 0.3), *scores("cbrs", 0.3, 0.2, 0.1)]
    table = make_table(runs_of(tmp_path, rows), "SplitMNIST", "average")
    assert not any(cell.best for cell in table.cells.values())  # nothing is better
    rows += scores("infors", 0.0, 0.1, 0.2)
    table = make_table(runs_of(tmp_path, rows), "SplitMNIST", "average")
    marks = {m: cell.best for (m, _), cell in table.cells.items()}
    assert marks == {"rs": True, "cbrs": True, "infors": False}


def test_methods_are_in_the_order_of_the_paper(tmp_path: Path) -> None:
    names = ["own", "infors", "gss", "rs"]
    runs = runs_of(tmp_path, [make_row(name) for name in names])
    table = make_table(runs, "SplitMNIST", "average")
    assert table.methods == ["rs", "gss", "infors", "own"]


def test_the_papers_number_is_beside_ours_with_the_difference(tmp_path: Path) -> None:
    rows = [
        *scores("rs", 0.80, 0.82, 0.84),  # 82.00 +- 1.15, paper 81.49 +- 0.72
        *scores("gss", 0.80, 0.82, 0.84),  # paper 45.36 +- 0.95
    ]
    table = make_table(runs_of(tmp_path, rows), "SplitMNIST", "average")
    cell = table.cells["rs", 1]
    assert cell.paper == (81.49, 0.72)
    expected = 0.51 / (4 / 3 + 0.72**2) ** 0.5
    assert cell.difference == pytest.approx(expected, rel=1e-3)
    assert (agreement([table]).close, agreement([table]).compared) == (1, 2)
    assert agreement_text([table]).startswith("1 of 2 cells agree with the paper")
    page = table_html(table)
    assert "paper 81.49 \N{PLUS-MINUS SIGN} 0.72" in page
    assert '<span class="agrees">+0.4 se</span>' in page
    assert '<span class="differs">+24.5 se!</span>' in page


@pytest.mark.parametrize("other", [{"epochs": 3}, {"steps": 5}, {"capacity": 50}])
def test_other_experiments_are_shown_but_not_compared(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    rows = scores("rs", 0.80, 0.82, **{**PAPER_RS, **other})
    table = make_table(runs_of(tmp_path, rows), "SplitMNIST", "average")
    assert table.cells["rs", 1].paper is not None
    assert table.cells["rs", 1].difference is None
    assert agreement([table]).compared == 0
    assert "another setting than the paper" in table_html(table)


def test_single_seeds_are_not_compared_and_have_no_error(tmp_path: Path) -> None:
    table = make_table(runs_of(tmp_path, scores("rs", 0.8)), "SplitMNIST", "average")
    assert agreement([table]).compared == 0
    assert '<span class="ours">80.00</span>' in table_html(table)


def test_cells_with_other_numbers_of_seeds_say_so(tmp_path: Path) -> None:
    rows = [
        *scores("rs", 0.5, 0.6, 0.7),
        *scores("cbrs", 0.5, 0.6, 0.7),
        *scores("infors", 0.5, 0.6),
    ]
    page = table_html(make_table(runs_of(tmp_path, rows), "SplitMNIST", "average"))
    assert page.count("n = ") == 1
    assert "n = 2" in page


def test_runs_that_diverged_are_counted_and_not_averaged(tmp_path: Path) -> None:
    lost = make_row("rs", 2, None, diverged_at_step=7)
    table = make_table(
        runs_of(tmp_path, [*scores("rs", 0.5, 0.7), lost]), "SplitMNIST", "average"
    )
    cell = table.cells["rs", 1]
    assert cell.ours is not None
    assert (cell.ours.mean, cell.diverged) == (pytest.approx(60.0), 1)
    assert "1 diverged" in table_html(table)


def test_one_name_with_two_settings_becomes_two_methods(tmp_path: Path) -> None:
    rows = [*scores("rs", 0.5, 0.6, alpha=0.3), *scores("rs", 0.7, 0.8, alpha=1.0)]
    table = make_table(runs_of(tmp_path, rows), "SplitMNIST", "average")
    assert table.methods == ["rs alpha=0.3", "rs alpha=1.0"]


def test_variants_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    values = [100, 20, 1e-05, None, 500, -3]
    runs = runs_of(tmp_path, [make_row("rs", 0, gamma=value) for value in values])
    table = make_table(runs, "SplitMNIST", "average")
    told = [None, -3, 1e-05, 20, 100, 500]
    assert table.methods == [f"rs gamma={value}" for value in told]


def test_settings_that_were_tuned_at_each_imbalance_are_one_method(
    tmp_path: Path,
) -> None:
    rows = [
        *scores("infors", 0.5, 0.6, eta=1.0, imbalance=1),
        *scores("infors", 0.5, 0.6, eta=3.0, imbalance=10),
    ]
    runs = runs_of(tmp_path, rows)
    assert {run.method for run in runs} == {"infors"}
    assert "r = 1: 1.0; r = 10: 3.0" in settings_html(runs, "SplitMNIST")


def test_more_evaluations_of_the_same_run_do_not_count_twice(tmp_path: Path) -> None:
    rows = [make_row("rs", 0, evaluations=0), make_row("rs", 0, evaluations=10)]
    (run,) = runs_of(tmp_path, rows)
    assert run.settings["evaluations"] == 10


def test_numbers_of_regression_are_in_their_own_unit(tmp_path: Path) -> None:
    other = {"env": "SplitDiabetes", "stream": "SplitDiabetes"}
    rows = scores("rs", -0.25, -0.35, **other, metric="negative squared error")
    table = make_table(runs_of(tmp_path, rows), "SplitDiabetes", "average")
    assert table.title == "Negative squared error"
    assert "\N{MINUS SIGN}0.3000 \N{PLUS-MINUS SIGN} 0.0500" in table_html(table)


def test_a_run_that_diverged_does_not_change_the_title(tmp_path: Path) -> None:
    rows = [
        make_row("rs", 0, None, diverged_at_step=7),
        make_row("rs", 1, -0.25, metric="negative squared error"),
    ]
    del rows[0]["result"]["metric"]  # it was never measured
    table = make_table(runs_of(tmp_path, rows), "SplitMNIST", "average")
    assert table.title == "Negative squared error"


def test_times_are_means_of_each_part(tmp_path: Path) -> None:
    page = times_html(runs_of(tmp_path, scores("rs", 0.5, 0.6)), "SplitMNIST")
    assert "<td>1.00 s</td><td>0.50 s</td><td>0.00 s</td><td>1.50 s</td>" in page


def test_curves_have_what_the_evaluations_have(sweep: Path) -> None:
    run = next(run for run in read_runs(sweep) if run.imbalance == 3 and run.seed == 1)
    found = quantities(run)
    events = run.row["evaluations"]
    ends = run.result["task_ends"]
    for place, event in enumerate(events):
        begun = max(1, sum(start < event["step"] for start in [-1, *ends[:-1]]))
        assert found["steps"][place] == event["step"]
        mean = 100 * sum(event["scores"]) / 5
        assert found["all"][place] == pytest.approx(mean)
        seen = 100 * sum(event["scores"][:begun]) / begun
        assert found["seen"][place] == pytest.approx(seen)
        assert found["task 3"][place] == pytest.approx(100 * event["scores"][2])
        assert found["reservoir"][place] == event["reservoir_count"]
        assert found["variance"][place] == event["class_variance"]


def test_runs_that_diverged_are_not_in_the_curves(tmp_path: Path) -> None:
    events = [{"step": n, "scores": [0.5, 0.7], "reservoir_count": n} for n in (4, 8)]
    good = make_row("rs", 0, task_ends=[4, 8])
    lost = make_row("rs", 1, None, diverged_at_step=7)
    del lost["result"]["metric"]  # it was never measured
    rows = [{**good, "evaluations": events}, {**lost, "evaluations": events[:1]}]
    runs = runs_of(tmp_path, rows)
    table = make_table(runs, "SplitMNIST", "average")
    curves = make_payload(runs, [table], {})["streams"]["SplitMNIST"]["curves"]["1"]
    assert curves["all"]["rs"][:2] == [[4, 8], [60, 60]]
    assert curves["reservoir"]["rs"][:2] == [[4, 8], [4, 8]]
    assert {*quantities(runs[1])} == {"steps", "reservoir"}


def test_settings_that_do_not_differ_are_told_in_a_sentence(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, [make_row("rs"), make_row("infors")])
    text = settings_html(runs, "SplitMNIST")
    assert "Apart from the policy, all methods have the same settings." in text
    assert ">All methods have the same settings." in settings_html(
        runs[:1], "SplitMNIST"
    )


def test_no_two_methods_look_alike(tmp_path: Path) -> None:
    names = ["rs", "infors", "own:A", *(f"infors {n}" for n in range(14))]
    runs = runs_of(tmp_path, [make_row(name) for name in names])
    table = make_table(runs, "SplitMNIST", "average")
    looks = make_payload(runs, [table], {})["methods"]
    assert looks["rs"]["color"] == "blue"
    assert looks["infors"]["color"] == "vermillion"
    told = [
        (look["color"], look["dash"], look["marker"] % 5) for look in looks.values()
    ]
    assert len({*told}) == len(names)
