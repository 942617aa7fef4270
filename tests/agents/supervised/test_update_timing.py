"""Update timing as a setting: an oracle in memory is told where tasks begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from agents.runs.folder import RunFolder
from agents.supervised.config import ExperimentConfig
from agents.supervised.experiment import Experiment
from agents.supervised.samplers import SubsetSampler
from info_replay import SelectiveReplayBuffer
from info_replay.writers import TaskTimingWriter

SETTINGS: dict[str, Any] = {
    "epochs": 1,
    "capacity": 20,
    "evaluations": 0,
    "threads": 1,
}
ORACLE = {"policy": "info_replay.writers:TaskTimingWriter", "update_delay": 2}


def test_the_setting_is_the_writer_told_by_hand() -> None:
    writer = TaskTimingWriter(delay=2)
    config = ExperimentConfig.preset("SplitDigits", policy="rs", **SETTINGS)

    def make_memory(*_: Any) -> SelectiveReplayBuffer:
        return SelectiveReplayBuffer(
            20,
            writer=writer,
            sampler=SubsetSampler(),
            generator=torch.Generator().manual_seed(0),
        )

    by_hand = Experiment(config, make_memory=make_memory)

    def tell(step: int, *_: float | None) -> None:
        if step in by_hand.env.boundaries:
            writer.start_task()

    writer.start_task()
    expected = by_hand.run(tell)
    config = ExperimentConfig.preset("SplitDigits", **ORACLE, **SETTINGS)
    result = Experiment(config).run()
    for name in ("matrix", "memory", "prequential"):
        assert result[name] == expected[name]
    assert max(result["memory"]["class_counts"]) < 20


def test_a_run_that_goes_on_knows_its_task(tmp_path: Path) -> None:
    config = ExperimentConfig.preset("SplitDigits", **ORACLE, **SETTINGS)
    expected = Experiment(config).run()
    first = Experiment(config, RunFolder(tmp_path / "run"))
    first.evaluate()
    while first.step < first.env.boundaries[1] + 1:
        first.advance()
        if first.step in first.evaluation_steps:
            first.evaluate()
    first.save()
    assert first.folder is not None
    first.folder.release()
    again = Experiment(config, RunFolder(tmp_path / "run"), resume=True)
    assert again.run()["matrix"] == expected["matrix"]


def test_other_policies_refuse_a_delay() -> None:
    config = ExperimentConfig.preset("SplitDigits", policy="rs", update_delay=3)
    with pytest.raises(ValueError, match="has an option 'delay'"):
        Experiment(config)
