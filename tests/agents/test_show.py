"""A finished run is shown as a table and as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from agents.cli import main
from agents.pictures import Pictures
from agents.run_folder import RunError, RunFolder
from agents.show import draw_pictures, format_result
from tests.agents.helpers import finish, small


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    path = tmp_path_factory.mktemp("runs") / "digits"
    finish(small(policy="infors", capacity=120), path)
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
    assert f"reservoir sampling: {result['memory']['reservoir_count']}" in text


def test_the_table_tells_the_share_of_the_memory(digits: RunFolder) -> None:
    digits_time = {"learning": 6.0, "memory": 1.0, "evaluation": 3.0}
    before = digits.read("timing.json")
    digits.write("timing.json", digits_time)
    text = format_result(digits)
    digits.write("timing.json", before)
    assert "learning 6.0 s (60 %), memory 1.0 s (10 %), evaluation 3.0 s (30 %)" in text


def check_picture(path: Path) -> None:
    """A picture can be read and shows something."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert min(pixels.shape[:2]) > 5
    assert pixels.std() > 1


def test_pictures_are_drawn_into_the_folder(
    digits: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(digits.path)]) == 0
    printed = capsys.readouterr().out
    assert "average accuracy" in printed
    for name in ("tasks.png", "memory_classes.png", "memory_images.png"):
        assert str(digits.path / name) in printed
        check_picture(digits.path / name)


def test_pictures_name_the_run_its_tasks_and_its_classes(
    digits: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(
        Pictures, "save", lambda _, figure, name: drawn.update({name: figure.axes[0]})
    )
    draw_pictures(digits)
    ends = digits.read("result.json")["task_ends"]
    assert len(ends) == 5
    for name, kind, count in (("tasks", "task", 5), ("memory_classes", "class", 10)):
        axes = drawn[name]
        assert axes.get_title() == "SplitDigits, infors, imbalance 1, seed 0"
        names = [text.get_text() for text in axes.get_legend().get_texts()]
        first = 1 if kind == "task" else 0
        expected = [f"{kind} {number}" for number in range(first, first + count)]
        assert sorted(names) == sorted(expected)
        dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
        assert [line.get_xdata()[0] for line in dashed] == ends[:-1]


def test_a_run_from_before_task_ends_were_noted_is_drawn(digits: RunFolder) -> None:
    result = digits.read("result.json")
    old = {name: value for name, value in result.items() if name != "task_ends"}
    digits.write("result.json", old)
    assert len(draw_pictures(digits)) == 3
    digits.write("result.json", result)


def test_pictures_can_be_drawn_again(digits: RunFolder) -> None:
    first = {path: path.read_bytes() for path in draw_pictures(digits)}
    assert len(first) == 3
    assert {path: path.read_bytes() for path in draw_pictures(digits)} == first


def test_a_run_without_a_memory_has_no_pictures_of_it(tmp_path: Path) -> None:
    finish(small(policy="none", steps=5), tmp_path)
    paths = draw_pictures(RunFolder(tmp_path))
    assert [path.name for path in paths] == ["tasks.png"]
    assert "memory:" not in format_result(RunFolder(tmp_path))


def test_regression_is_shown_in_its_own_unit(tmp_path: Path) -> None:
    finish(small(env="SplitDiabetes", policy="rs", batch_size=16), tmp_path)
    folder = RunFolder(tmp_path)
    text = format_result(folder)
    assert "average negative squared error" in text
    assert f"{folder.read('result.json')['average']:.4f}" in text
    paths = draw_pictures(folder)
    assert [path.name for path in paths] == ["tasks.png"]
    check_picture(paths[0])


def test_a_score_of_regression_is_not_rounded_away(tmp_path: Path) -> None:
    finish(small(env="SplitDiabetes", policy="rs", batch_size=16), tmp_path)
    folder = RunFolder(tmp_path)
    text = format_result(folder)
    for score in folder.read("result.json")["matrix"][-1]:
        assert f"{score:.2f}" in text


def test_a_run_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.create(small(policy="rs"))
    for show in (format_result, draw_pictures):
        with pytest.raises(RunError, match="no finished run"):
            show(folder)
