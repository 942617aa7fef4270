"""``info-replay figure``: what there is, and one line for what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agents.cli import main
from agents.figures.registry import FIGURES


def fails(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command ends with."""
    try:
        status = main(["figure", *words])
    except SystemExit as over:
        status = int(over.code or 0)
    assert status == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("info-replay: error: ")
    return line


def test_without_a_name_it_lists_all_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["figure"]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "figures:"
    assert [line.split()[0] for line in lines] == [*FIGURES]
    assert all(
        entry.summary in line
        for entry, line in zip(FIGURES.values(), lines, strict=True)
    )


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as over:
        main(["figure", name, "--help"])
    assert over.value.code == 0
    assert "--out FILE" in capsys.readouterr().out


def test_the_toy_figure_is_written_to_a_new_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "toy.png"
    assert main(["figure", "toy", "--out", str(out)]) == 0
    assert out.is_file()
    assert capsys.readouterr().out.splitlines()[-1] == str(out)


def test_relearning_is_drawn_from_the_command_line(
    digits_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "relearning.pdf"
    words = f"figure relearning --features {digits_file} --sizes 12 --seeds 3"
    assert main([*words.split(), "--methods", "rs", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"%PDF")
    assert "RS" in capsys.readouterr().out


def test_an_unknown_name_is_told_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = fails(["toi"], capsys)
    assert "'toi'" in line
    assert all(name in line for name in FIGURES)


@pytest.mark.parametrize("name", ["relearning", "tsne"])
def test_features_that_are_missing_are_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "new" / "figure.png")]
    assert "--features must be given" in fails([name, *out], capsys)
    missing = str(tmp_path / "none.npz")
    line = fails([name, "--features", missing, *out], capsys)
    assert f"there is no file {missing}" in line
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, images=np.zeros(3))
    line = fails([name, "--features", str(wrong), *out], capsys)
    assert "has no arrays X and y, only images" in line
    np.savez(wrong, X=np.zeros((3, 2)), y=np.zeros(4, int))
    line = fails([name, "--features", str(wrong), *out], capsys)
    assert "got (3, 2) and (4,)" in line
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.npz"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("relearning --sizes 1", "sizes must be whole numbers of at least 2"),
        ("relearning --seeds x", "seeds must be whole numbers"),
        ("relearning --methods rs,best", "methods must be some of rs, infogs"),
        ("relearning --penalty 0", "penalty must be above 0"),
        ("tsne --points 5001", "points must be at least 10 and at most 5000"),
        ("tsne --eta -1", "eta must be at least 0"),
        ("toy --seed -1", "seed must be at least 0"),
        ("toy --sizes 3", "unrecognized arguments"),
    ],
)
def test_a_wrong_value_is_named(
    words: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reason in fails(words.split(), capsys)


def test_an_out_that_cannot_be_written_is_told_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.png").mkdir()
    for out, reason in (
        (tmp_path / "file" / "toy.png", "cannot write"),
        (tmp_path / "folder.png", "it is a folder"),
        (tmp_path / "toy.gif", "must end in .png or .pdf"),
        (tmp_path / "toy", "must end in .png or .pdf"),
    ):
        line = fails(["toy", "--out", str(out)], capsys)
        assert reason in line
        assert str(out) in line
