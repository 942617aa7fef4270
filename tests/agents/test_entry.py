"""The command begins with Ctrl-C in mind."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from agents.entry import main


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
