"""A state in which anything is edited is refused in one line, and changes nothing.

Every value of a real checkpoint is deleted and replaced in turn. The memory's own state
is edited in the tests of the memory.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from agents.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from agents.runs.folder import RunError, RunFolder
from agents.supervised.experiment import Experiment
from agents.supervised.saved_run import load_run
from tests.agents.edits import Place, edited_states, refused
from tests.agents.supervised.helpers import small

CONFIG = small(policy="infors", steps=8)


class Dropping(nn.Module):
    """A network with random layers, whose random numbers are part of the state."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.5))
        self.head = nn.Linear(8, outputs)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(inputs)
        return features, self.head(features)


def constant(targets: Any, predictions: Any) -> float:
    return 0.5


def make_run(folder: RunFolder | None = None, *, resume: bool = False) -> Experiment:
    own: dict[str, Any] = {"network": Dropping, "metrics": {"mine": constant}}
    return Experiment(CONFIG, folder, resume=resume, **own)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The checkpoint of a run after its third step."""
    folder = RunFolder(tmp_path_factory.mktemp("saved") / "run")
    make_checkpoint(folder)
    return load_checkpoint(folder.checkpoint)


def make_checkpoint(folder: RunFolder) -> None:
    run = make_run(folder)
    run.evaluate()
    for _ in range(3):
        run.advance()
    run.evaluate()
    run.save()
    folder.release()


def still_fits(place: Place, name: str, value: Any) -> bool:
    """Whether what is edited still is the state of such a run."""
    if value is None:
        return name in ("None", "deleted")
    if name in ("zero", "less", "more") and place[0] not in ("step", "written"):
        return True  # of a stream at another sample, say
    if place[-1] == "has_uint32":
        return True  # NumPy takes any number for this flag
    if place == ("randomness",) and name == "deleted":
        return True  # older versions had none
    if place[0] == "seconds" and name == "deleted":
        return len(place) == 2
    # A reward, a metric or a time is any number, and so are an optimizer's options.
    number = isinstance(value, int | float) and not isinstance(value, bool)
    free = place[0] in ("rewards", "metrics", "seconds", "optimizer")
    return free and number and name in ("nan", "negative")[place[0] == "optimizer" :]


def edited(state: Any) -> Iterator[tuple[tuple[Place, str], Any]]:
    """All states with one edit after which they are not those of such a run."""
    return edited_states(state, without="memory", still_fits=still_fits)


def content(part: Any) -> bytes:
    """All of a part's state."""
    file = io.BytesIO()
    torch.save(part.state_dict(), file)
    return file.getvalue()


@pytest.mark.parametrize("name", ["agent", "env"])
def test_a_part_refuses_every_edit_of_its_state_and_stays_as_it_is(
    state: dict[str, Any], name: str
) -> None:
    run = make_run()
    run.advance()
    part = getattr(run, name)
    before = content(part)
    wrong = []
    for edit, changed in edited(state[name]):
        error = refused(lambda new=changed: part.load_state_dict(new), ValueError)
        if error is None or "\n" in error or content(part) != before:
            wrong.append((edit, error))
            part.load_state_dict(torch.load(io.BytesIO(before), weights_only=True))
    assert not wrong
    part.load_state_dict(state[name])
    assert content(part) != before


def test_a_run_refuses_every_edit_of_its_checkpoint_and_keeps_its_files(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path / "run")
    make_checkpoint(folder)
    with folder.metrics.open("a") as file:
        file.write('{"kind": "evaluation", "step": 5}\n')  # will be noted again
    events = folder.metrics.read_bytes()
    state = load_checkpoint(folder.checkpoint)
    parts = {"agent": state.pop("agent"), "env": state.pop("env")}
    for edit, changed in edited(state):
        save_checkpoint(folder.checkpoint, {**changed, **parts})
        error = refused(
            lambda: make_run(folder, resume=True), CheckpointError, RunError
        )
        assert error is not None, edit
        assert "\n" not in error, edit
        assert folder.checkpoint.exists(), edit
        assert folder.metrics.read_bytes() == events, edit
    save_checkpoint(folder.checkpoint, {**state, **parts})
    assert make_run(folder, resume=True).step == 3
    assert len(folder.metrics.read_bytes()) == state["written"]


@pytest.mark.parametrize("share", [0, 0.1, 0.6, 0.999])
def test_events_that_are_not_those_of_the_checkpoint_are_kept(
    tmp_path: Path, share: float
) -> None:
    folder = RunFolder(tmp_path / "run")
    make_checkpoint(folder)
    events, state = folder.metrics.read_bytes(), load_checkpoint(folder.checkpoint)
    written = int(share * len(events))
    save_checkpoint(folder.checkpoint, {**state, "written": written})
    with pytest.raises(RunError, match=r"metrics.jsonl (has other|is damaged)"):
        make_run(folder, resume=True)
    assert folder.metrics.read_bytes() == events


def test_events_of_the_last_evaluation_are_not_cut_off(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    make_checkpoint(folder)
    events, state = folder.metrics.read_bytes(), load_checkpoint(folder.checkpoint)
    last = events.splitlines(keepends=True)[-1]
    assert b'"kind": "memory"' in last  # without it the evaluations are the same
    written = len(events) - len(last)
    save_checkpoint(folder.checkpoint, {**state, "written": written})
    with pytest.raises(RunError, match="has other evaluations"):
        make_run(folder, resume=True)
    assert folder.metrics.read_bytes() == events


@pytest.mark.parametrize("part", ["memory", "env"])
def test_what_one_part_refuses_no_other_takes(
    tmp_path: Path, state: dict[str, Any], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    from agents.supervised.resuming import restore_parts

    run = make_run()
    before = content(run.agent), content(run.env)
    owner, method = run.agent.memory, "load_state_dict"
    if part == "env":
        owner, method = run.env, "prepare_load"

    def refuse(state: Any) -> None:
        raise ValueError(f"not my {part}")

    monkeypatch.setattr(owner, method, refuse)
    with pytest.raises(CheckpointError, match=f"does not fit this run: not my {part}"):
        restore_parts(RunFolder(tmp_path), state, run.agent, run.env)
    assert (content(run.agent), content(run.env)) == before


def test_a_state_with_and_one_without_a_memory_are_told_apart(
    state: dict[str, Any],
) -> None:
    run = Experiment(small(policy="none", steps=8), network=Dropping)
    before = content(run.agent)
    with pytest.raises(ValueError, match="only one of .* has a memory"):
        run.agent.load_state_dict(state["agent"])
    assert content(run.agent) == before


@pytest.mark.parametrize("file", ["network.pt", "memory.pt"])
def test_an_edited_file_of_a_finished_run_is_named_in_one_line(
    tmp_path: Path, file: str
) -> None:
    folder = RunFolder(tmp_path / "run")
    run = Experiment(CONFIG, folder)
    run.run()
    path = folder.path / file
    state = load_checkpoint(path)
    memory = state.pop("state", None)
    others = {} if memory is None else {"state": memory}
    network = content(run.agent.network)
    for edit, changed in edited(state):
        save_checkpoint(path, {**changed, **others})
        try:
            load_run(folder.path)
        except (CheckpointError, RunError) as error:
            told = str(error)
        except ValueError as error:
            told = str(error)
            assert "is not the network of" in told, edit
        else:
            continue
        assert str(folder.path) in told, edit
        assert "\n" not in told, edit
    assert content(run.agent.network) == network
    save_checkpoint(path, {**state, **others})
    assert load_run(folder.path).predict is not None
