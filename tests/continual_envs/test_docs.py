"""The page on streams runs as it stands, and says what is the case."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from continual_envs import BENCHMARKS, CUTS, DATASETS, DataOptions, StreamOptions

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "streams.md").read_text()


def test_the_blocks_run_from_top_to_bottom_and_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = io.StringIO()
    has_datasets = importlib.util.find_spec("datasets") is not None
    with contextlib.redirect_stdout(printed):
        for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            if has_datasets or "import datasets" not in code:
                exec(compile(code, "docs/streams.md", "exec"), names)
    (expected,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert expected in printed.getvalue()
    if has_datasets:
        restored = re.findall(r"\[([\d.]+)\]", printed.getvalue())
        assert float(restored[0]) == pytest.approx(20, abs=0.5)
    assert 0.2 < sum(names["rewards"]) / 100 < 0.5


@pytest.mark.parametrize("kind", [StreamOptions, DataOptions])
def test_every_option_is_in_a_table_with_its_default(kind: Any) -> None:
    tables = PAGE[PAGE.index("## Options") :]
    rows = re.findall(r"^\| (`.*?`) \| (.*?) \|", tables, re.MULTILINE)
    told = {
        name: default.replace("`", "")
        for names, defaults in rows
        for name, default in zip(
            re.findall(r"`(\w+)`", names),
            defaults.split(", ") * (1 if ", " in defaults else 2),
            strict=False,
        )
    }
    for field in fields(kind):
        expected = field.default
        if isinstance(expected, float) and expected == int(expected):
            expected = int(expected)
        found = told[field.name].replace('"', "")
        assert found == str(expected), field.name


def test_every_cut_benchmark_data_set_and_picture_is_there() -> None:
    for name in CUTS:
        assert f'`"{name}"`' in PAGE
    for name in (*BENCHMARKS, *DATASETS):
        assert f"`{name}`" in PAGE
    pictures = re.findall(r"\]\((_static/.*?)\)", PAGE)
    assert len(pictures) == 11
    for picture in pictures:
        assert (DOCS / picture).is_file()
