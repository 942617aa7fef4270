"""The examples of docs/extending.md run as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agents.cli import main

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
#: The examples to be saved, by the names of their files on the page, and their uses.
NAMES = re.findall(r"Save this as `(\w+\.py)`", PAGE.read_text())
FILES = [code for code in BLOCKS if code.startswith('"""')]
USES = [code for code in BLOCKS if code not in FILES]
COMMANDS = re.findall(r"```sh\ninfo-replay (.*?)\n```", PAGE.read_text())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user's own, with the files of the page."""
    for name, code in zip(NAMES, FILES, strict=True):
        (tmp_path / name).write_text(code)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("code", USES)
def test_the_examples_run(code: str) -> None:
    exec(compile(code, str(PAGE), "exec"), {})


def kept(folder: Path) -> str:
    """What was of the user's own in a run."""
    config = json.loads((folder / "run" / "config.json").read_text())
    kinds = ("policy", "criterion", "learner", "network", "data")
    return "".join(config[kind] for kind in kinds if ":" in (config[kind] or ""))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(command: str, folder: Path) -> None:
    assert main([*command.split(), "--steps", "4", "--out", "run"]) == 0
    assert kept(folder) in command


def test_a_command_finds_what_is_in_the_current_folder(folder: Path) -> None:
    program = [sys.executable, "-c", "from agents.entry import main; exit(main())"]
    words = [*program, *COMMANDS[0].split(), "--steps", "4", "--out", "run"]
    environment = {**os.environ, "PYTHONPATH": str(PAGE.parent.parent)}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert kept(folder) in COMMANDS[0]


@pytest.mark.parametrize("code", FILES)
def test_the_examples_are_short_enough_to_read(code: str) -> None:
    assert len(code.splitlines()) < 30
