"""A finished run is shown as a table and as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from agents.runs.folder import RunError, RunFolder
from agents.runs.pictures import Pictures
from agents.supervised.show import draw_pictures, format_result
from tests.agents.supervised.helpers import finish, small


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    path = tmp_path_factory.mktemp("runs") / "digits"
    finish(small(policy="infors", capacity=120), path)
    return RunFolder(path)


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    path = tmp_path_factory.mktemp("runs") / "diabetes"
    finish(small(env="SplitDiabetes", policy="rs", batch_size=16), path)
    return RunFolder(path)


def test_the_table_has_the_numbers_of_the_result(digits: RunFolder) -> None:
    result, text = digits.read("result.json"), format_result(digits)
    lines = {line.strip().rsplit("  ", 1)[0].strip(): line for line in text.split("\n")}
    for name, key in (
        ("average accuracy", "average"),
        ("prequential", "prequential"),
        ("backward transfer", "backward_transfer"),
        ("forward transfer", "forward_transfer"),
    ):
        (line,) = [line for start, line in lines.items() if start.startswith(name)]
        assert line.endswith(f" {100 * result[key]:.2f} %")
    for row in result["matrix"]:
        assert "  ".join(f"{100 * score:6.1f}" for score in row) in text
    assert f"memory: {result['memory']['size']} items" in text
    assert str(result["memory"]["class_counts"]) in text
    assert f"where there is none: {result['memory']['reservoir_count']}\n" in text


def test_scores_on_held_out_data_are_called_so(digits: RunFolder) -> None:
    result = digits.read("result.json")
    assert "held-out" not in format_result(digits)
    digits.write("result.json", {**result, "validation": True})
    title = format_result(digits).splitlines()[0]
    digits.write("result.json", result)
    assert title.startswith("SplitDigits (held-out), infors")


def test_the_table_tells_the_share_of_the_memory(digits: RunFolder) -> None:
    before = digits.read("timing.json")
    digits.write("timing.json", {"learning": 6.0, "memory": 1.0, "evaluation": 3.0})
    text = format_result(digits)
    digits.write("timing.json", before)
    assert "learning 6.0 s (60 %), memory 1.0 s (10 %), evaluation 3.0 s (30 %)" in text


def test_regression_is_shown_in_its_own_unit(diabetes: RunFolder) -> None:
    result, text = diabetes.read("result.json"), format_result(diabetes)
    assert "average negative squared error" in text
    for score in (result["average"], *result["matrix"][-1]):
        assert f"{score:.4f}" in text


def check_picture(path: Path) -> None:
    """A picture can be read and shows something."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert min(pixels.shape[:2]) > 5
    assert pixels.std() > 1


def test_pictures_are_drawn_into_the_folder_and_can_be_drawn_again(
    digits: RunFolder,
) -> None:
    first = {path: path.read_bytes() for path in draw_pictures(digits)}
    names = ["tasks.png", "memory_classes.png", "memory_images.png"]
    assert list(first) == [digits.path / name for name in names]
    for path in first:
        check_picture(path)
    assert {path: path.read_bytes() for path in draw_pictures(digits)} == first


def test_pictures_are_not_drawn_through_a_planted_link(
    digits: RunFolder, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("tasks.png", "memory_images.png"):
        (digits.path / name).unlink(missing_ok=True)
        (digits.path / name).symlink_to(victim)
    draw_pictures(digits)
    assert victim.read_text() == "precious"
    check_picture(digits.path / "tasks.png")


@pytest.mark.parametrize("version", ["now", "before task ends were noted"])
def test_pictures_name_the_run_its_tasks_and_its_classes(
    version: str, digits: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(
        Pictures, "save", lambda _, figure, name: drawn.update({name: figure.axes[0]})
    )
    result = digits.read("result.json")
    ends = result["task_ends"]
    if version != "now":
        ends = []
        old = {name: value for name, value in result.items() if name != "task_ends"}
        monkeypatch.setattr(digits, "read", lambda _: old)
    draw_pictures(digits)
    for name, kind, count in (("tasks", "task", 5), ("memory_classes", "class", 10)):
        axes = drawn[name]
        assert axes.get_title() == "SplitDigits, infors, imbalance 1, seed 0"
        names = [text.get_text() for text in axes.get_legend().get_texts()]
        first = 1 if kind == "task" else 0
        expected = [f"{kind} {number}" for number in range(first, first + count)]
        assert sorted(names) == sorted(expected)
        dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
        assert [line.get_xdata()[0] for line in dashed] == ends[:-1]


def test_what_a_run_has_not_is_not_drawn(diabetes: RunFolder, tmp_path: Path) -> None:
    (path,) = draw_pictures(diabetes)  # of vectors
    check_picture(path)
    finish(small(policy="none", steps=5), tmp_path)
    folder = RunFolder(tmp_path)
    assert [path.name for path in draw_pictures(folder)] == ["tasks.png"]
    assert "memory:" not in format_result(folder)


def test_a_run_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.create(small(policy="rs"))
    for show in (format_result, draw_pictures):
        with pytest.raises(RunError, match="not a finished run"):
            show(folder)
