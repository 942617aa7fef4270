"""The paper's numbers are those of its tables."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from agents.report.paper_numbers import (
    IMBALANCES,
    METHODS,
    PAPER,
    differences_from_paper,
    paper_number,
)
from agents.supervised.config import ExperimentConfig

#: The paper's text, to compare with; CI has it.
TEX = Path(os.environ.get("INFO_REPLAY_PAPER", "nowhere"))


@pytest.mark.parametrize(
    ("measure", "stream", "policy", "imbalance", "expected"),
    [
        ("average", "PermutedMNIST", "infogs", 1, (79.10, 0.36)),
        ("average", "SplitMNIST", "coreset", 30, (42.05, 2.19)),
        ("average", "SplitCIFAR10", "infors", 3, (51.11, 0.35)),
        ("average", "SplitMiniImageNet", "rs", 10, (20.93, 0.51)),
        ("backward_transfer", "SplitMNIST", "infogs", 30, (-34.81, 5.12)),
        ("backward_transfer", "SplitMiniImageNet", "infors", 30, (-57.28, 1.06)),
        ("forward_transfer", "SplitMNIST", "infors", 10, (-9.68, 0.89)),
        ("forward_transfer", "PermutedMNIST", "fss-clust", 1, (1.91, 0.23)),
    ],
)
def test_a_number_is_that_of_the_table(
    measure: str,
    stream: str,
    policy: str,
    imbalance: int,
    expected: tuple[float, float],
) -> None:
    assert paper_number(measure, stream, policy, imbalance) == expected


@pytest.mark.parametrize(
    ("measure", "stream", "policy", "imbalance"),
    [
        ("prequential", "SplitMNIST", "rs", 1),
        ("forward_transfer", "SplitCIFAR10", "rs", 1),
        ("average", "PermutedMNIST", "coreset", 1),
        ("average", "SplitMNIST", "infogs-rs", 1),
        ("average", "SplitMNIST", "rs", 2),
    ],
)
def test_what_the_paper_does_not_have_is_none(
    measure: str, stream: str, policy: str, imbalance: int
) -> None:
    assert paper_number(measure, stream, policy, imbalance) is None


def test_the_tables_have_all_methods_and_columns() -> None:
    methods = {*METHODS} - {"infogs-rs"}
    for of_stream in PAPER.values():
        assert {*of_stream["SplitMNIST"]} == methods
        assert {*of_stream["PermutedMNIST"]} == methods - {"coreset"}
    for stream in ("SplitCIFAR10", "SplitMiniImageNet"):
        for measure in ("average", "backward_transfer"):
            few = {"rs", "wrs", "cbrs", "infogs", "infors"}
            assert {*PAPER[measure][stream]} == few
    for of_stream in PAPER.values():
        for of_policy in of_stream.values():
            assert {len(row) for row in of_policy.values()} == {len(IMBALANCES)}


@pytest.mark.skipif(not TEX.exists(), reason="the paper's source is not here")
@pytest.mark.parametrize(
    ("label", "measure"),
    [
        ("cl-numbers", "average"),
        ("cl-bwd-numbers", "backward_transfer"),
        ("cl-fwd-numbers", "forward_transfer"),
    ],
)
def test_all_numbers_are_in_the_source_in_the_same_order(
    label: str, measure: str
) -> None:
    _, _, text = TEX.read_text().partition(f"\\label{{tab:{label}}}")
    table = text.partition("\\end{table}")[0]
    found = re.findall(r"(-?[\d.]+)\s*\\pm\s*([\d.]+)", table)
    ours = [
        number
        for of_policy in PAPER[measure].values()
        for row in of_policy.values()
        for number in row
    ]
    assert ours == [(float(mean), float(error)) for mean, error in found]


@pytest.mark.parametrize("stream", PAPER["average"])
@pytest.mark.parametrize("policy", ["rs", "infors"])
def test_presets_have_the_configuration_of_the_paper(stream: str, policy: str) -> None:
    settings = ExperimentConfig.preset(stream, policy=policy, seed=3).as_dict()
    assert differences_from_paper(stream, settings) == {}


def test_other_experiments_are_not_the_papers() -> None:
    assert differences_from_paper("SplitMNIST", {"steps": 10}) == {"steps": None}
    assert differences_from_paper("SplitMNIST", {"learner": "er"}) == {
        "learner": "der++"
    }
    assert differences_from_paper("SplitMNIST", {"validation": True}) == {
        "validation": False
    }
