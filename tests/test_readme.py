"""The README's example runs as it stands, and its numbers are those that are stored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.report.command import given_settings
from agents.report.paper_numbers import METHODS, paper_number
from agents.supervised.config import ExperimentConfig
from agents.sweeps import load_results
from agents.sweeps.results import read_rows

README = Path(__file__).parent.parent / "README.md"
CODE = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_example_learns_from_a_stream() -> None:
    (code,) = CODE
    names: dict[str, Any] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exec(compile(code, str(README), "exec"), names)
    assert names["terminated"]
    assert len(names["memory"]) == 50
    assert names["memory"][:]["target"].unique().numel() >= 8


def test_the_example_is_short_enough_to_read() -> None:
    (code,) = CODE
    assert len(code.splitlines()) < 30


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)h][^)]*)\)", README.read_text()))
def test_every_file_that_the_readme_links_to_is_there(link: str) -> None:
    assert (README.parent / link.partition("#")[0]).exists()


RESULTS = README.parent / "docs" / "results" / "split_mnist.jsonl.gz"
#: Of another commit: the default policy, which the paper has not.
RESULTS_OF_AUTO = RESULTS.with_name("split_mnist_auto.jsonl.gz")
ROW = re.compile(r"^\| ([\w-]+) \| `([\w-]+)` \| (.*) \|$", re.MULTILINE)
ROWS = ROW.findall(README.read_text())


def test_every_policy_of_the_paper_has_a_row() -> None:
    assert {policy for _, policy, _ in ROWS} == {"auto", *METHODS}


def _results_of(policy: str) -> Path:
    return RESULTS_OF_AUTO if policy == "auto" else RESULTS


@pytest.mark.parametrize(("method", "policy", "cells"), ROWS)
def test_the_table_has_the_stored_results(method: str, policy: str, cells: str) -> None:
    frame = load_results(_results_of(policy))
    mine = frame[frame["method"] == method]
    for imbalance, cell in zip((1, 3, 10, 30), cells.split(" | "), strict=True):
        averages = 100 * mine[mine["imbalance"] == imbalance]["average"]
        told = f"{averages.mean():.1f} ± {averages.sem():.1f}"
        paper = paper_number("average", "SplitMNIST", policy, imbalance)
        assert cell == (told if paper is None else f"{told} / {paper.mean:.1f}")


@pytest.mark.parametrize(("method", "policy", "cells"), ROWS)
def test_the_default_settings_of_a_policy_are_those_of_its_row(
    method: str, policy: str, cells: str
) -> None:
    default = ExperimentConfig.preset("SplitMNIST", policy=policy)
    rows = [row for row in read_rows(_results_of(policy)) if row["method"] == method]
    assert len(rows) == 40
    for result in (row["result"] for row in rows):
        # As `train` runs it, but for where and how often it looks at itself.
        told = given_settings(result) | {"evaluations": default.evaluations}
        told |= {"threads": default.threads}
        for name in ("imbalance", "seed"):
            del told[name]
        assert told.items() <= default.what_matters().items()
