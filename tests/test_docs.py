"""The examples of the quickstart and of Q-learning run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.cli import main

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "q_learning.md"
CODE, LOADING = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_loop_learns_and_fills_both_parts_of_the_memory() -> None:
    names: dict[str, Any] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exec(compile(CODE, str(PAGE), "exec"), names)
    buffer = names["buffer"]
    assert len(buffer) == buffer.capacity
    assert buffer.write_count == 2_000
    assert 500 < buffer.reservoir_count < 2_000 - 125  # some did not pass
    # The tasks are told apart by the context: the first is not forgotten.
    contexts = buffer[:]["observation"][:, -2:].sum(0)
    assert contexts.min() > 50


def test_a_finished_run_of_q_learning_is_loaded_in_three_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["--frames", "640", "--evaluations", "1", "--episodes", "1"]
    assert (
        main(["dqn", *short, "--out", "runs/ContinualCartPole-dqn-infors-seed0"]) == 0
    )
    names: dict[str, Any] = {}
    exec(compile(LOADING, str(PAGE), "exec"), names)
    assert names["actions"].shape == (5,)
    assert len(names["run"].memory) == names["run"].memory.write_count == 640
    assert len([line for line in LOADING.splitlines() if line]) == 3


def test_the_loop_is_short_enough_to_read() -> None:
    assert len(CODE.splitlines()) < 60


def test_the_quickstart_runs_from_top_to_bottom() -> None:
    page = DOCS / "quickstart.md"
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(code, str(page), "exec"), names)
    assert len(names["memory"]) == 100
    assert names["steps"].shape == (4, 20, 8)  # sequences as items
