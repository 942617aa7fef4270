"""In a real browser the page works: choices change the plots, and nothing complains."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.report.page import write_report
from tests.agents.report.chromium import Browser
from tests.agents.report.conftest import EVIL, data_of, make_row, write_rows

LINES = "[...document.querySelectorAll('#{} [data-method]')].map(e => e.dataset.method)"
PLOT = "document.getElementById('{}').innerHTML"
TEXT = "document.getElementById('{}').textContent"
SLIDER = "document.getElementById('snapshot')"
TILES = "[...document.querySelectorAll('.tile')].map(e => e.dataset.item)"


@pytest.fixture(scope="module")
def page(sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(sweep, tmp_path_factory.mktemp("pages") / "page.html")


@pytest.fixture(autouse=True)
def _no_complaints(browser: Browser) -> Iterator[None]:
    browser.complaints.clear()
    browser.resize(1400, 1000)
    yield
    browser.evaluate("0")  # what was said until now has arrived
    assert browser.complaints == []


def choose(browser: Browser, select: str, value: str) -> None:
    browser.evaluate(
        f"(() => {{ const e = document.getElementById('{select}'); e.value = '{value}';"
        "e.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def test_the_page_is_drawn(browser: Browser, page: Path) -> None:
    browser.open(page)
    methods = ["rs", EVIL, "cbrs", "infors"]
    assert sorted(browser.evaluate(LINES.format("against"))) == sorted(methods)
    assert sorted(browser.evaluate(LINES.format("along"))) == sorted(methods)
    assert browser.evaluate("document.querySelectorAll('#counts rect').length") > 50
    assert browser.evaluate("document.querySelectorAll('.tile').length") == 50
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert not browser.evaluate("document.body.innerHTML.includes('NaN')")


def test_checkboxes_choose_methods(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.click("#methods input[value=cbrs]")
    for plot in ("against", "along"):
        assert "cbrs" not in browser.evaluate(LINES.format(plot))
        assert "infors" in browser.evaluate(LINES.format(plot))
    browser.click("#methods input[value=cbrs]")
    assert "cbrs" in browser.evaluate(LINES.format("against"))


def test_without_methods_the_plots_say_so(browser: Browser, page: Path) -> None:
    browser.open(page, "#methods=")
    assert browser.evaluate(LINES.format("against")) == []
    assert "Choose at least one" in browser.evaluate(PLOT.format("along"))


@pytest.mark.parametrize(
    ("select", "value"), [("imbalance", "3"), ("quantity", "variance"), ("seed", "1")]
)
def test_selects_change_the_plot_along_the_stream(
    browser: Browser, page: Path, select: str, value: str
) -> None:
    browser.open(page)
    before = browser.evaluate(PLOT.format("along"))
    choose(browser, select, value)
    assert browser.evaluate(PLOT.format("along")) != before
    assert f"{select}={value}" in browser.evaluate("location.hash")


def test_the_imbalance_changes_the_runs_to_choose_from(
    browser: Browser, page: Path
) -> None:
    browser.open(page)
    counts, images = (browser.evaluate(PLOT.format(x)) for x in ("counts", "images"))
    choose(browser, "imbalance", "3")
    assert browser.evaluate(PLOT.format("counts")) != counts
    assert browser.evaluate(PLOT.format("images")) != images
    runs = browser.evaluate("[...document.getElementById('run').options].length")
    assert runs == 8


def test_tabs_choose_the_table_and_the_plot(browser: Browser, page: Path) -> None:
    browser.open(page)
    shown = "[...document.querySelectorAll('.measure')].filter(e => !e.hidden)"
    shown += ".map(e => e.dataset.measure)"
    before = browser.evaluate(PLOT.format("against"))
    assert browser.evaluate(shown) == ["average"]
    browser.evaluate("document.querySelector('#measures input').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate(shown) == ["backward_transfer"]
    assert browser.evaluate(PLOT.format("against")) != before


def test_a_link_holds_a_view(browser: Browser, page: Path) -> None:
    browser.open(page)
    choose(browser, "imbalance", "3")
    choose(browser, "quantity", "reservoir")
    browser.click("#methods input[value=rs]")
    plots = [browser.evaluate(PLOT.format(x)) for x in ("against", "along", "counts")]
    browser.open(page, browser.evaluate("location.hash"))
    again = [browser.evaluate(PLOT.format(x)) for x in ("against", "along", "counts")]
    assert again == plots


def test_a_link_with_unknown_choices_shows_the_first(
    browser: Browser, page: Path
) -> None:
    browser.open(page, "#stream=gone&imbalance=x&seed=99&run=y&quantity=z&measure=w")
    assert browser.evaluate("document.getElementById('imbalance').value") == "1"
    assert browser.evaluate(LINES.format("along"))


def test_hovering_and_arrow_keys_show_values(browser: Browser, page: Path) -> None:
    browser.open(page)
    tip = "document.querySelector('#along .tip')"
    assert browser.evaluate(f"{tip}.hidden")
    browser.hover("#along svg", 0.99)
    last = browser.evaluate(f"{tip}.innerText")
    assert "infors" in last
    browser.evaluate("document.querySelector('#against svg').focus()")
    browser.press("ArrowRight")
    told = browser.evaluate("document.querySelector('#against .tip').innerText")
    assert told.startswith("r = 1\n")
    browser.press("ArrowRight")
    told = browser.evaluate("document.querySelector('#against .tip').innerText")
    assert told.startswith("r = 3\n")


def test_the_copy_button_gives_feedback(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.click(".command button")
    browser.wait_for("document.querySelector('.command button').innerText != 'Copy'")


@pytest.mark.parametrize("width", [320, 390, 768])
def test_narrow_screens_need_no_sideways_scrolling(
    browser: Browser, page: Path, width: int
) -> None:
    browser.resize(width, 844, phone=True)
    browser.open(page)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_colors_follow_the_preference(browser: Browser, page: Path) -> None:
    color = "getComputedStyle(document.body).backgroundColor"
    seen = []
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        browser.open(page)
        seen.append(browser.evaluate(color))
    browser.prefer("light")
    assert seen[0] != seen[1]


def test_a_sweep_without_evaluations_or_memories_says_how_to_get_them(
    browser: Browser, tmp_path: Path
) -> None:
    rows = [make_row("rs", seed, 0.8 + 0.01 * seed) for seed in range(2)]
    folder = write_rows(tmp_path / "sweep", rows)
    browser.open(write_report(folder), "#paper=yes")
    assert browser.evaluate(LINES.format("against")) == ["rs", "rs"]
    assert "No evaluations" in browser.evaluate(PLOT.format("along"))
    assert "--keep" in browser.evaluate(PLOT.format("images-note"))
    assert browser.evaluate(SLIDER + ".offsetParent === null")


def test_ends_of_tasks_are_drawn_though_a_run_diverged(
    browser: Browser, tmp_path: Path
) -> None:
    events = [{"step": n, "scores": [0.5, 0.7]} for n in (4, 8)]
    rows = [make_row("rs", seed, task_ends=[4, 8]) for seed in range(2)]
    rows.append(make_row("rs", 2, None, diverged_at_step=7))
    del rows[-1]["result"]["metric"]
    rows = [{**row, "evaluations": events} for row in rows]
    browser.open(write_report(write_rows(tmp_path / "sweep", rows)))
    assert browser.evaluate("document.querySelectorAll('#along .end').length") == 1
    assert browser.evaluate(TEXT.format("along-note")).endswith(
        "Dotted lines are ends of tasks."
    )


def test_the_slider_moves_along_the_stream(browser: Browser, page: Path) -> None:
    browser.open(page)
    told = browser.evaluate(TEXT.format("snapshot-place"))
    assert told.endswith("the end of the run")
    shown = {told: browser.evaluate(TILES)}
    browser.evaluate(SLIDER + ".focus()")
    for _ in range(int(browser.evaluate(SLIDER + ".max")) - 1):
        browser.press("ArrowLeft")
        told = browser.evaluate(TEXT.format("snapshot-place"))
        assert browser.evaluate(SLIDER + ".ariaValueText") == told
        shown[told] = browser.evaluate(TILES)
    run = data_of(page.read_text())["runs"][0]
    (first, second, *_), last = run["ends"], run["steps"][-1]
    assert f"step {first} of {last}, after task 1" in shown
    assert f"step {second} of {last}, after task 2" in shown
    assert any("during task 3" in told for told in shown)
    assert len({str(tiles) for tiles in shown.values()}) == len(run["steps"]) - 1
    assert browser.evaluate("document.activeElement.id") == "snapshot"
    assert "snapshot=1" in browser.evaluate("location.hash")


def test_new_items_are_outlined(browser: Browser, page: Path) -> None:
    browser.open(page, "#snapshot=1")
    before = browser.evaluate(TILES)
    new = "[...document.querySelectorAll('.tile.new')].map(e => e.dataset.item)"
    assert browser.evaluate(new) == []
    assert "Outlined" not in browser.evaluate(TEXT.format("images-note"))
    browser.evaluate(SLIDER + ".focus()")
    browser.press("ArrowRight")
    expected = [tile for tile in browser.evaluate(TILES) if tile not in before]
    assert browser.evaluate(new) == expected != []
    assert "Outlined: new since" in browser.evaluate(TEXT.format("images-note"))


def test_a_click_on_the_class_counts_moves_the_slider(
    browser: Browser, page: Path
) -> None:
    browser.open(page)
    before = browser.evaluate(TILES)
    frame = "document.querySelector('#counts .frame').getAttribute('x')"
    place = float(browser.evaluate(frame))
    browser.click("#counts svg")
    assert 1 < int(browser.evaluate(SLIDER + ".value")) < 8
    assert float(browser.evaluate(frame)) < place
    assert browser.evaluate(TILES) != before


def test_the_place_along_the_stream_stays(browser: Browser, page: Path) -> None:
    browser.open(page, "#snapshot=2")
    tiles = browser.evaluate(TILES)
    run = browser.evaluate("document.getElementById('run').options[1].value")
    choose(browser, "run", run)
    assert browser.evaluate(SLIDER + ".value") == "2"
    assert browser.evaluate(TILES) != tiles
    tiles = browser.evaluate(TILES)
    browser.open(page, browser.evaluate("location.hash"))
    assert browser.evaluate(TILES) == tiles
    browser.open(page, "#snapshot=99")
    assert browser.evaluate(SLIDER + ".value") == browser.evaluate(SLIDER + ".max")


def test_a_run_without_snapshots_has_no_slider(
    browser: Browser, sweep: Path, page: Path, tmp_path: Path
) -> None:
    browser.open(page)
    items = "document.querySelectorAll('.tile').length"
    expected = browser.evaluate(items)
    folder = shutil.copytree(sweep, tmp_path / "sweep")
    for each in folder.glob("runs/*/memories"):
        shutil.rmtree(each)
    browser.open(write_report(folder))
    assert browser.evaluate(SLIDER + ".offsetParent === null")
    assert browser.evaluate(TEXT.format("images-title")).endswith("end of the run")
    assert browser.evaluate(items) == expected
