"""The command begins with Ctrl-C in mind, and finds what is in the current folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from agents.entry import main

OWN = """
from info_replay import EntropyReduction, ReservoirWriter

class MyWriter(ReservoirWriter):
    def __init__(self, num_classes):
        super().__init__()
        self.num_classes = num_classes

class MyCriterion(EntropyReduction):
    pass
"""


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize("moment", ["while it is loaded", "while it runs"])
def test_an_interrupt_gets_one_line(
    moment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    module = types.ModuleType("agents.cli")
    setattr(
        module, "__getattr__" if moment == "while it is loaded" else "main", interrupt
    )
    monkeypatch.setitem(sys.modules, "agents.cli", module)
    assert main() == 130
    assert capsys.readouterr().err == "info-replay: interrupted\n"


def test_nothing_heavy_is_loaded_before_it_begins() -> None:
    code = "import sys, agents.entry; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("name", "criterion"),
    [("MyWriter", "mic"), ("InfoReservoirWriter", "own:MyCriterion")],
)
def test_a_policy_and_a_criterion_of_ones_own_are_found_in_the_current_folder(
    name: str, criterion: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(
        OWN + "from info_replay import InfoReservoirWriter"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    options = f"train --env SplitDigits --steps 4 --policy own:{name}".split()
    monkeypatch.setattr(sys, "argv", ["", *options, "--criterion", criterion])
    assert main() == 0
    # Last, so that nothing that is installed is hidden by what lies about there.
    assert sys.path[-1] == str(tmp_path)
    (folder,) = (tmp_path / "runs").glob(f"SplitDigits-own-{name}-r1-seed0*")
    result = json.loads((folder / "result.json").read_text())
    assert (result["policy"], result["criterion"]) == (f"own:{name}", criterion)
    assert result["memory"]["size"] == 50


def test_a_current_folder_that_is_gone_is_not_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone() -> str:
        raise FileNotFoundError

    module = types.ModuleType("agents.cli")
    module.main = lambda: 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "agents.cli", module)
    monkeypatch.setattr(os, "getcwd", gone)
    before = [*sys.path]
    assert main() == 0
    assert sys.path == before
