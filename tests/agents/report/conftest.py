"""A small sweep of real runs, and rows of runs that never were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.sweeps.grid import make_jobs
from agents.sweeps.results import ResultsFile
from agents.sweeps.worker import Failure, run_job
from tests.agents.report.chromium import Browser, find_chromium

#: A name that a page must not take for its own.
EVIL = "</script><img src=x onerror=alert(1)>&\"'\u2028"


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that was run with ``--keep``."""
    folder = tmp_path_factory.mktemp("sweeps") / "digits"
    folder.mkdir()
    settings = {"env": "SplitDigits", "imbalance": "1,3", "seed": "0-1", "epochs": 1}
    named = {name: {"policy": name} for name in ("rs", "cbrs", "infors")}
    named[EVIL] = {"policy": "rs", "alpha": 0.0}
    results = ResultsFile(folder)
    for each in make_jobs({**settings, "evaluations": 4, "methods": named}):
        job = each.with_snapshots()
        row = run_job(job, folder / "runs" / job.key)
        assert not isinstance(row, Failure), row
        results.append({**row, "commit": "0123abcd", "versions": {"torch": "2.14.1"}})
    return folder


def make_row(
    method: str = "rs",
    seed: int = 0,
    average: float | None = 0.5,
    *,
    commit: str = "0123abcd",
    key: str = "",
    **result: Any,
) -> dict[str, Any]:
    """A row of a sweep on Split MNIST."""
    found = {
        "env": "SplitMNIST",
        "stream": "SplitMNIST",
        "policy": method.partition(" ")[0],
        "imbalance": 1,
        "seed": seed,
        "metric": "accuracy",
        "average": average,
        "backward_transfer": None,
        "forward_transfer": None,
        "prequential": 0.9,
        **result,
    }
    told = key or f"{method} {found['stream']} {found['imbalance']} {seed} {result}"
    return {
        "key": told,
        "method": method,
        "result": found,
        "evaluations": [],
        "seconds": {"learning": 1.0, "memory": 0.5},
        "versions": {"torch": "2.14.1"},
        "commit": commit,
    }


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """A sweep that has these rows."""
    folder.mkdir(exist_ok=True)
    results = ResultsFile(folder)
    for row in rows:
        results.append(row)
    return folder


def data_of(page: str) -> dict[str, Any]:
    """The data in a page, as a browser reads it."""
    _, _, rest = page.partition('<script type="application/json" id="data">')
    found: dict[str, Any] = json.loads(rest.partition("</script>")[0])
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser; tests that need one are skipped where there is none."""
    program = find_chromium()
    if program is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    with Browser(program) as made:
        yield made
