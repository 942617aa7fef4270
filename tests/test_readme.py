"""The README's example runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

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
