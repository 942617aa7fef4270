"""The policy and the criterion of docs/extending.md run as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
POLICY, *POLICY_USES, CRITERION, CRITERION_USE = re.findall(
    r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL
)
COMMANDS = re.findall(r"```sh\ninfo-replay (.*?)\n```", PAGE.read_text())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user's own, with the two files of the page."""
    (tmp_path / "newest.py").write_text(POLICY)
    (tmp_path / "doubt.py").write_text(CRITERION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("code", [*POLICY_USES, CRITERION_USE])
def test_the_examples_run(code: str) -> None:
    exec(compile(code, str(PAGE), "exec"), {})


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_find_what_is_in_the_current_folder(
    command: str, folder: Path
) -> None:
    program = [sys.executable, "-c", "from agents.entry import main; exit(main())"]
    words = [*program, *command.split(), "--steps", "4", "--out", "run"]
    environment = {**os.environ, "PYTHONPATH": str(PAGE.parent.parent)}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    config = json.loads((folder / "run" / "config.json").read_text())
    assert ":" in config["policy"] or ":" in config["criterion"]


@pytest.mark.parametrize("code", [POLICY, CRITERION])
def test_the_examples_are_short_enough_to_read(code: str) -> None:
    assert len(code.splitlines()) < 30
