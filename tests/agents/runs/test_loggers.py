"""Loggers are told every event once, also where a run was killed in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.runs.folder import RunError, RunFolder
from agents.runs.loggers import LOGGERS, LogFeed
from agents.supervised.experiment import Experiment
from tests.agents.supervised.helpers import outcome, small


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TorchRL's CSV logger wrote: steps and values by name."""
    root = next(folder.rglob("scalars"))
    return {
        path.relative_to(root).with_suffix("").as_posix(): [
            (int(step), float(value))
            for step, value in (line.split(",") for line in path.open())
        ]
        for path in root.rglob("*.csv")
    }


def write(path: Path, *events: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def test_numbers_and_lists_are_logged_by_kind_and_name(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    write(
        events,
        {"kind": "evaluation", "step": 0, "scores": [0.5, 0.25], "reward": None},
        {"kind": "memory", "step": 3, "size": 7},
    )
    LogFeed("csv", tmp_path / "logs", "run").send(events)
    assert scalars(tmp_path) == {
        "evaluation/scores/0": [(0, 0.5)],
        "evaluation/scores/1": [(0, 0.25)],
        "memory/size": [(3, 7.0)],
    }


def test_what_was_sent_is_not_sent_again_also_by_another_process(
    tmp_path: Path,
) -> None:
    events = tmp_path / "events.jsonl"
    LogFeed("csv", tmp_path / "logs", "run").send(events)  # there is nothing yet
    for step in range(3):
        write(events, {"kind": "memory", "step": step, "size": step})
        feed = LogFeed("csv", tmp_path / "logs", "run")
        feed.send(events)
        feed.send(events)
    assert scalars(tmp_path)["memory/size"] == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_every_logger_is_told_everything(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    events = tmp_path / "events.jsonl"
    write(events, {"kind": "memory", "step": 0, "size": 1})
    LogFeed("tensorboard", tmp_path / "logs", "run").send(events)
    LogFeed("csv", tmp_path / "logs", "run").send(events)
    assert scalars(tmp_path)["memory/size"] == [(0, 1.0)]


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_a_service_goes_on_with_the_same_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(kind)
    monkeypatch.setenv("WANDB_MODE", "offline")
    events, notes = tmp_path / "events.jsonl", []
    for step in range(2):
        write(events, {"kind": "memory", "step": step, "size": step})
        feed = LogFeed(kind, tmp_path / "logs", "run")
        feed.send(events)
        feed.close()
        notes.append(json.loads((tmp_path / "logs" / f"sent-{kind}.json").read_text()))
    assert {note["id"] for note in notes} == {notes[0]["id"]}
    if kind == "mlflow":
        import mlflow

        run = mlflow.get_run(notes[0]["run"])
        assert run.info.status == "FINISHED"
        client, number = mlflow.MlflowClient(), notes[1]["run"]
        history = client.get_metric_history(number, "memory/size")
        assert [entry.step for entry in history] == [0, 1]


def test_a_logger_that_fails_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise Exception("run is\nalready active")

    monkeypatch.setattr(LogFeed, "send", fail)
    config = small(policy="rs", steps=2, logger="csv")
    with pytest.raises(RunError, match="the logger failed: run is already active"):
        Experiment(config, RunFolder(tmp_path / "run")).run()


def test_a_logger_that_fails_at_the_end_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("network down")

    monkeypatch.setattr(LogFeed, "close", fail)
    config, folder = small(policy="rs", steps=2, logger="csv"), RunFolder(tmp_path)
    with pytest.warns(UserWarning, match="the logger failed: network down"):
        result = Experiment(config, folder).run()
    with pytest.warns(UserWarning, match="the logger failed"):
        assert Experiment(config, RunFolder(tmp_path), resume=True).run() == result


@pytest.mark.parametrize("name", [name for name in LOGGERS if name != "csv"])
def test_a_package_that_is_missing_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=f"logger '{name}' needs .*pip install {name}"):
        LogFeed(name, tmp_path, "run")


# -- in a run -------------------------------------------------------------------------


@pytest.mark.parametrize("saved", [True, False])
def test_no_step_is_logged_twice_after_a_kill(tmp_path: Path, saved: bool) -> None:
    config = small(policy="rs", steps=12, logger="csv", evaluations=6)
    Experiment(config, RunFolder(tmp_path / "whole")).run()
    folder = RunFolder(tmp_path / "parts")
    killed = Experiment(config, folder)
    killed.evaluate()
    for step in range(8):
        killed.advance()
        if killed.step in killed.evaluation_steps:
            killed.evaluate()
        if saved and step == 4:
            killed.save()
    folder.release()
    del killed  # without a word, as if it had been killed
    Experiment(config, folder, resume=True).run()
    assert outcome(folder.path) == outcome(tmp_path / "whole")
    found = scalars(folder.path)
    assert found == scalars(tmp_path / "whole")
    assert [step for step, _ in found["evaluation/scores/0"]] == [0, 2, 4, 6, 8, 10, 12]


def test_what_a_kill_kept_from_the_logger_is_sent_when_a_finished_run_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(policy="rs", steps=4, logger="csv", evaluations=1)
    folder = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(LogFeed, "send", lambda *_: None)
        Experiment(config, folder).run()
    assert not (folder.path / "logs").exists()
    Experiment(config, folder, resume=True).run()
    assert [step for step, _ in scalars(folder.path)["evaluation/scores/0"]] == [0, 4]


def test_tensorboard_reads_what_was_logged(tmp_path: Path) -> None:
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    config = small(policy="rs", steps=4, logger="tensorboard", evaluations=2)
    Experiment(config, RunFolder(tmp_path / "run")).run()
    (file,) = (tmp_path / "run").rglob("events.out.tfevents*")
    reader = accumulators.EventAccumulator(str(file.parent))
    reader.Reload()
    steps = [event.step for event in reader.Scalars("evaluation/scores/0")]
    assert steps == [0, 2, 4]
