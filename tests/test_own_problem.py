"""Every block of docs/own_problem.md runs, from top to bottom, and is short."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from agents.cli import main

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "own_problem.md"
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", PAGE.read_text(), re.DOTALL)
#: What each example shows, by a word of it.
SHOWN = (
    "(X, y)",
    "torchvision.datasets",
    "import datasets",
    "photos/{name}",
    "prices",
    "while True",
    "make_features",
    "feature=",
    "er-ace",
    "macro_f1",
    "load_run",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONTINUAL_ENVS_DATA", str(tmp_path / "data"))
    return tmp_path


def test_the_page_runs_from_top_to_bottom(folder: Path) -> None:
    pytest.importorskip("datasets")
    names: dict[str, Any] = {}
    for kind, code in BLOCKS:
        if kind == "python":
            exec(compile(code, str(PAGE), "exec"), names)
        else:
            words = shlex.split(code)
            assert words[0] == "info-replay"
            assert main(words[1:]) == 0
    assert names["saved"].result["policy"] == "infors"
    assert (folder / "runs" / "mine" / "network.pt").exists()


@pytest.mark.parametrize("word", SHOWN)
def test_each_example_is_there_and_short(word: str) -> None:
    (code, *_) = [code for kind, code in BLOCKS if kind == "python" and word in code]
    calls = [line for line in code.splitlines() if line.strip()]
    assert len(calls) <= 16


def test_the_first_screen_of_the_readme_says_that_ones_own_data_is_one_line() -> None:
    start = (DOCS.parent / "README.md").read_text().splitlines()[:30]
    assert any("info-replay train --data" in line for line in start)
    assert any("own_problem.md" in line for line in start)
