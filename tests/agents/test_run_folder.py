"""A run folder refuses what would spoil a run, and says why."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agents.config import ExperimentConfig
from agents.run_folder import RunError, RunFolder

CONFIG = ExperimentConfig(env="SplitDigits", policy="rs")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "some" / "run")
    made.create(CONFIG)
    return made


def test_a_new_run_notes_its_settings_and_the_versions(folder: RunFolder) -> None:
    assert ExperimentConfig(**folder.read("config.json")) == CONFIG
    versions = folder.read("versions.json")
    assert {"python", "torch", "torchrl", "gymnasium", "numpy"} <= set(versions)
    assert not folder.is_finished


def test_an_existing_run_is_not_overwritten(folder: RunFolder) -> None:
    before = (folder.path / "config.json").read_bytes()
    with pytest.raises(RunError, match=r"holds a run already.*--resume"):
        folder.create(ExperimentConfig(env="SplitDigits", policy="cbrs"))
    assert (folder.path / "config.json").read_bytes() == before


def test_a_folder_with_other_files_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder(tmp_path).create(CONFIG)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_same_settings_may_go_on(folder: RunFolder) -> None:
    folder.check(CONFIG)


OTHER: dict[str, Any] = {
    "policy": "cbrs",
    "seed": 1,
    "imbalance": 3,
    "learning_rate": 0.2,
    "steps": 10,
    "decay": 0.5,
    "augmented": True,
    "evaluations": 3,
}


@pytest.mark.parametrize("name", OTHER)
def test_other_settings_are_refused_by_name(folder: RunFolder, name: str) -> None:
    config = ExperimentConfig(**{**CONFIG.as_dict(), name: OTHER[name]})
    was, now = getattr(CONFIG, name), OTHER[name]
    with pytest.raises(RunError, match=rf"{name}={was!r} .* {name}={now!r}"):
        folder.check(config)


@pytest.mark.parametrize(
    ("name", "value"),
    [("checkpoint_every", 5.0), ("data_dir", "/elsewhere"), ("tensorboard", True)],
)
def test_what_does_not_touch_the_result_may_change(
    folder: RunFolder, name: str, value: Any
) -> None:
    folder.check(ExperimentConfig(**{**CONFIG.as_dict(), name: value}))


def forget(folder: RunFolder, *names: str) -> None:
    """Let the run have been started before settings existed."""
    settings = folder.read("config.json")
    for name in names:
        del settings[name]
    folder.write("config.json", settings)


def test_a_setting_that_a_run_does_not_know_yet_has_its_default(
    folder: RunFolder,
) -> None:
    forget(folder, "coreset_parts", "validation", "decay")
    before = (folder.path / "config.json").read_bytes()
    folder.check(CONFIG)
    for name, was, now in (("coreset_parts", 10, 5), ("validation", False, True)):
        other = ExperimentConfig(**{**CONFIG.as_dict(), name: now})
        with pytest.raises(RunError, match=rf"{name}={was!r} as one with {name}={now}"):
            folder.check(other)
    assert (folder.path / "config.json").read_bytes() == before


@pytest.mark.parametrize("content", ["3", "[]", "null"])
def test_settings_without_names_are_damaged(folder: RunFolder, content: str) -> None:
    path = folder.path / "config.json"
    path.write_text(content)
    with pytest.raises(RunError, match=f"{path} is damaged: expected settings by name"):
        folder.check(CONFIG)


def test_no_run_cannot_go_on(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"there is no run to resume in {tmp_path}"):
        RunFolder(tmp_path).check(CONFIG)


def test_events_come_by_kind_and_in_order(folder: RunFolder) -> None:
    assert list(folder.events("memory")) == []
    lines = [
        {"kind": "evaluation", "step": 0},
        {"kind": "memory", "step": 0},
        {"kind": "evaluation", "step": 3},
    ]
    folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(folder.events("evaluation")) == [lines[0], lines[2]]
    assert list(folder.events("memory")) == [lines[1]]


def test_a_damaged_line_of_events_is_named(folder: RunFolder) -> None:
    folder.metrics.write_text('{"kind": "evaluation", "step": 0}\n{"kind": "eva')
    with pytest.raises(RunError, match=f"{folder.metrics} is damaged"):
        list(folder.events("evaluation"))


@pytest.mark.parametrize("content", [b"", b'{"env": "Spl', b"\xff\xfe\x00"])
def test_a_damaged_file_is_named(folder: RunFolder, content: bytes) -> None:
    path = folder.path / "config.json"
    path.write_bytes(content)
    for use in (lambda: folder.read("config.json"), lambda: folder.check(CONFIG)):
        with pytest.raises(RunError, match=f"{path} is damaged"):
            use()
    assert path.read_bytes() == content


def test_a_missing_file_is_named(folder: RunFolder) -> None:
    with pytest.raises(RunError, match=r"result.json is missing.*no finished run"):
        folder.read("result.json")


def test_a_file_is_written_whole_or_not_at_all(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("result.json", {"average": 1})
    before = sorted(folder.path.iterdir())

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises((OSError, RunError), match="No space left"):
            folder.write("result.json", {"average": 2})
    assert folder.read("result.json") == {"average": 1}
    assert sorted(folder.path.iterdir()) == before
    assert folder.is_finished
