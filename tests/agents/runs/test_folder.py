"""A run folder refuses what would spoil a run, and says why."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agents.q_learning.config import DQNConfig
from agents.runs.events import EventLog
from agents.runs.folder import RunError, RunFolder, default_folder
from agents.supervised.config import ExperimentConfig
from tests.agents.runs.test_files import full

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
        folder.create(dataclasses.replace(CONFIG, policy="cbrs"))
    assert (folder.path / "config.json").read_bytes() == before


def test_a_folder_with_other_files_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder(tmp_path).create(CONFIG)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "value", "matters"),
    [
        ("seed", 0, False),  # the same
        ("checkpoint_every", 5.0, False),
        ("data_dir", "/elsewhere", False),
        ("tensorboard", True, False),
        ("logger", "csv", False),
        ("policy", "cbrs", True),
        ("criterion", "er", True),
        ("seed", 1, True),
        ("learning_rate", 0.2, True),
        ("steps", 10, True),
        ("augmented", True, True),
    ],
)
def test_a_run_goes_on_only_with_settings_that_give_the_same_result(
    folder: RunFolder, name: str, value: Any, matters: bool
) -> None:
    config = dataclasses.replace(CONFIG, **{name: value})
    if not matters:
        folder.check(config)
        return
    was = getattr(CONFIG, name)
    with pytest.raises(RunError, match=rf"{name}={was!r} .* {name}={value!r}"):
        folder.check(config)


def test_a_setting_that_a_run_does_not_know_yet_has_its_default(
    folder: RunFolder,
) -> None:
    settings = folder.read("config.json")
    del settings["criterion"], settings["validation"]
    folder.write("config.json", settings)
    folder.check(CONFIG)
    for name, was, now in (("criterion", "mic", "er"), ("validation", False, True)):
        other = dataclasses.replace(CONFIG, **{name: now})
        with pytest.raises(
            RunError, match=f"{name}={was!r} as one with {name}={now!r}"
        ):
            folder.check(other)


@pytest.mark.parametrize("content", [b"", b'{"env": "Spl', b"\xff\xfe", b"3", b"[]"])
def test_damaged_settings_are_named_and_kept(folder: RunFolder, content: bytes) -> None:
    path = folder.path / "config.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=f"{path} is damaged"):
        folder.check(CONFIG)
    assert path.read_bytes() == content


NO_OBJECTS = ["null", "3", "[]", '"text"', "true", "[" * 100_000]


@pytest.mark.parametrize("content", NO_OBJECTS, ids=lambda content: content[:6])
def test_any_other_json_value_is_named(folder: RunFolder, content: str) -> None:
    for name in ("versions.json", "result.json", "timing.json", "metrics.jsonl"):
        (folder.path / name).write_text(content)
    reads = (
        lambda: folder.check_data("0"),
        folder.changed_versions,
        lambda: folder.read("result.json"),
        lambda: list(folder.events("evaluation")),
    )
    for read in reads:
        with pytest.raises(RunError, match="is damaged") as told:
            read()
        assert "\n" not in str(told.value)


@pytest.mark.parametrize("value", [None, [], {}, "text", 10**400, -1])
def test_a_setting_of_a_wrong_type_is_named(folder: RunFolder, value: Any) -> None:
    settings = folder.read("config.json")
    folder.write("config.json", {**settings, "learning_rate": value})
    with pytest.raises(RunError, match="learning_rate must be"):
        folder.check(CONFIG)


@pytest.mark.parametrize(
    "name", "versions.json metrics.jsonl checkpoint.pt result.json memory logs".split()
)
def test_a_new_run_does_not_go_on_with_files_of_another(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("of another run")
    with pytest.raises(RunError, match=f"{name} is of another run"):
        RunFolder(tmp_path).create(CONFIG)
    assert (tmp_path / name).read_text() == "of another run"
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_run_of_another_command_is_named(folder: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "other")
    other.create(DQNConfig())
    with pytest.raises(RunError, match=f"{other.path} holds a run of info-replay dqn"):
        other.check(CONFIG)
    with pytest.raises(RunError, match="holds a run of info-replay train"):
        folder.check(DQNConfig())


def test_only_a_damaged_file_comes_with_the_advice_to_delete_it(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.path / "result.json").write_text("{")
    with pytest.raises(RunError, match=r"is damaged: .*\. Delete it$"):
        folder.read("result.json", "Delete it")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("Input/output error")

    monkeypatch.setattr(Path, "read_text", fail)
    with pytest.raises(RunError, match=r"cannot read .*error\)$"):
        folder.read("result.json", "Delete it")


def test_a_home_folder_is_found_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunFolder("~/run").path == tmp_path / "run"
    with pytest.raises(RunError, match="~nobody123/x is in the home folder of a user"):
        RunFolder("~nobody123/x")


def test_what_is_missing_is_named(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="result.json is missing.*not a finished run"):
        folder.read("result.json")
    with pytest.raises(RunError, match=f"there is no run to resume in {tmp_path}"):
        RunFolder(tmp_path).check(CONFIG)


def test_a_file_that_cannot_be_written_is_named(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("result.json", {"average": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(RunError, match="cannot write .*result.json .*No space"):
            folder.write("result.json", {"average": 2})
    assert folder.read("result.json") == {"average": 1}
    assert folder.is_finished


# -- one process at a time ------------------------------------------------------------


def test_a_folder_belongs_to_one_run_at_a_time(folder: RunFolder) -> None:
    other = RunFolder(folder.path)
    with pytest.raises(RunError, match=f"another process runs in {folder.path}"):
        other.acquire()
    folder.acquire()  # it has it already
    folder.release()
    other.acquire()
    with pytest.raises(RunError, match="another process runs in"):
        folder.acquire()


# -- names ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        ({}, "x"),
        ({"logger": "csv", "data_dir": "/data"}, "x"),  # these change nothing
        ({"gamma": -0.5, "augmented": True}, "x-augmented-gamma-0.5"),
        ({"criterion": "info_replay:MIC"}, "x-criterion-info_replay-MIC"),
    ],
)
def test_a_folder_is_named_after_what_is_not_usual(
    chosen: dict[str, Any], name: str
) -> None:
    config = dataclasses.replace(CONFIG, **chosen)
    assert default_folder(config, CONFIG, {"env": "x"}) == Path("runs") / name


def test_a_name_that_would_be_too_long_has_a_hash_instead() -> None:
    many: dict[str, Any] = {
        field.name: 3.7123456789
        for field in dataclasses.fields(CONFIG)
        if field.type == "float" and field.metadata["matters"]
    }
    one, two = (
        default_folder(
            dataclasses.replace(CONFIG, **many, seed=seed), CONFIG, {"env": "x"}
        ).name
        for seed in (1, 2)
    )
    assert one != two
    assert len(one) == len(two) == len("x-01234567")


# -- events ---------------------------------------------------------------------------


def test_events_come_by_kind_and_in_order(folder: RunFolder) -> None:
    assert list(folder.events("memory")) == []
    log = EventLog(folder)
    log.note("evaluation", {"scores": [0.5], "reward": None}, step=0)
    log.note("memory", {"size": 3}, step=0)
    log.write()
    log.note("evaluation", {"scores": [0.7], "reward": 0.6}, step=3)
    assert len(list(folder.events("evaluation"))) == 1  # not written yet
    log.write()
    assert [event["step"] for event in folder.events("evaluation")] == [0, 3]
    assert list(folder.events("memory")) == [{"kind": "memory", "step": 0, "size": 3}]
    assert log.size == folder.metrics.stat().st_size


def test_without_a_folder_nothing_is_kept() -> None:
    log = EventLog(None, logger="csv")
    log.note("evaluation", {"scores": [0.5]}, step=0)
    log.write()
    log.send()
    log.rewind(0)
    assert log.size == 0


def test_events_after_a_moment_can_be_forgotten(folder: RunFolder) -> None:
    log = EventLog(folder)
    for step in range(2):
        log.note("evaluation", {}, step=step)
        log.write()
    size = log.size // 2
    log.rewind(size)
    assert [event["step"] for event in folder.events("evaluation")] == [0]
    with pytest.raises(RunError, match="shorter than when the checkpoint was written"):
        log.rewind(size + 1)
    log.rewind(0)
    assert not folder.metrics.exists()
    with pytest.raises(RunError, match="shorter than when the checkpoint was written"):
        log.rewind(size)


def test_events_that_cannot_be_written_are_named(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", full)
    log = EventLog(folder)
    with pytest.raises(RunError, match=r"cannot write .*metrics.jsonl .*device\)$"):
        log.write()
    folder.checkpoint.touch()
    with pytest.raises(RunError, match="No space left.*the last checkpoint is kept"):
        log.write()


def test_events_are_neither_written_nor_cut_through_a_planted_link(
    folder: RunFolder, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    folder.metrics.symlink_to(victim)
    log = EventLog(folder)
    log.note("evaluation", {}, step=0)
    for write in (log.write, lambda: log.rewind(3)):
        with pytest.raises(RunError, match="cannot write .*symbolic link"):
            write()
    assert victim.read_text() == "precious\n"


def test_a_damaged_line_of_events_is_named(folder: RunFolder) -> None:
    folder.metrics.write_text(json.dumps({"kind": "evaluation"}) + '\n{"kind": "eva')
    with pytest.raises(RunError, match=f"{folder.metrics} is damaged"):
        list(folder.events("evaluation"))
