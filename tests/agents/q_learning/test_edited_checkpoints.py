"""A checkpoint in which anything is edited is refused, or the run ends as it would.

Every value of a real checkpoint is deleted and replaced in turn. The state of this
package's memories is edited in their own tests, that of TorchRL's here.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from agents.q_learning.agent import DQNAgent
from agents.q_learning.config import DQNConfig
from agents.q_learning.engine import make_engine
from agents.q_learning.memory_state import memory_state, restore_memory
from agents.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from agents.runs.folder import RunError, RunFolder
from tests.agents.edits import edited_states, refused
from tests.agents.supervised.helpers import assert_same_state

from .helpers import small
from .test_resume import go_on, interrupt, outcome


def config_with(policy: str) -> DQNConfig:
    return small(lengths="60,60", frames=160, evaluations=3, policy=policy)


def saved(policy: str, path: Path) -> tuple[RunFolder, dict[str, Any]]:
    """A run that was interrupted after learning and evaluating, and its checkpoint."""
    folder = RunFolder(path)
    interrupt(config_with(policy), folder, 104)
    return folder, load_checkpoint(folder.checkpoint)


def files(folder: RunFolder) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.path.iterdir()}


def put_back(folder: RunFolder, content: dict[str, bytes]) -> None:
    for name in files(folder):
        (folder.path / name).unlink()
    for name, each in content.items():
        (folder.path / name).write_bytes(each)


def test_every_edit_of_a_checkpoint_is_refused_or_makes_no_difference(
    tmp_path: Path,
) -> None:
    config = config_with("fifo")
    folder, state = saved("fifo", tmp_path / "run")
    with folder.metrics.open("a") as file:
        file.write('{"kind": "evaluation", "frame": 112}\n')  # will be noted again
    (folder.path / f".checkpoint.pt-{32 * 'a'}.partial").write_bytes(b"half of it")
    before = files(folder)
    go_on(folder, config)
    expected = outcome(folder.path)
    put_back(folder, before)
    accepted = []
    # The weights are edited below.
    for edit, changed in edited_states(state, without="loss"):
        save_checkpoint(folder.checkpoint, changed)
        before = files(folder)
        error = refused(lambda: go_on(folder, config), CheckpointError, RunError)
        if error is not None:
            assert "\n" not in error, edit
            assert files(folder) == before, edit
            continue
        accepted.append(edit)
        assert outcome(folder.path) == expected, edit
        put_back(folder, before)
    # Times make no difference, nor does what a memory can do without.
    for (part, *place), _ in accepted:
        assert part == "seconds" or place[0] == "memory"
    assert len(accepted) < 20


def test_a_learner_refuses_every_edit_of_its_state_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    _, checkpoint = saved("rs", tmp_path / "run")
    state, agent = checkpoint["engine"]["agent"], DQNAgent(config_with("rs"))
    before = copy.deepcopy(agent.state_dict())
    # Frames are compared with those of the rollout, by the engine.
    for edit, changed in edited_states(
        state,
        still_fits=lambda place, name, _: (
            place == ("frames",) and name in ("zero", "less", "more")
        ),
    ):
        error = refused(lambda new=changed: agent.load_state_dict(new), ValueError)
        assert error is not None, edit
        assert "\n" not in error, edit
        assert_same_state(agent.state_dict(), before)
    agent.load_state_dict(state)
    assert agent.frames == 104


@pytest.mark.parametrize("policy", ["fifo", "prioritized"])
def test_a_memory_of_torchrls_refuses_every_edit_or_is_the_same(
    tmp_path: Path, policy: str
) -> None:
    _, checkpoint = saved(policy, tmp_path / "run")
    state = checkpoint["engine"]["memory"]
    fresh = make_engine(config_with(policy)).agent.memory
    before = memory_state(fresh)
    # What items look like is compared with frames, by the engine.
    for edit, changed in edited_states(
        {name: part for name, part in state.items() if name != "_storage"},
        still_fits=lambda place, *_: place[0] == "_prefetch_state",  # TorchRL's
    ):
        new = {"_storage": state["_storage"], **changed}
        error = refused(lambda new=new: restore_memory(fresh, new), Exception)
        assert error is not None, edit
        assert_same_state(memory_state(fresh), before)
    restore_memory(fresh, state)
    assert len(fresh) == 24


def test_the_state_of_an_engine_on_ray_is_checked_as_a_whole() -> None:
    pytest.importorskip("ray")
    config = small(engine="ray", lengths="60,60", collectors=2, policy="fifo")
    buffer = make_engine(small(lengths="60,60", policy="fifo")).agent.memory
    engine = make_engine(config)
    places = [{"frames": 8 * each, "lives": 1, "tasks": [0, 0]} for each in (1, 2)]
    state = {
        "agent": engine.agent.state_dict(),
        "memory": memory_state(buffer),
        "collected": 24,
        "places": places,
    }
    before = copy.deepcopy(engine.agent.state_dict())
    for edit, changed in edited_states(
        state,
        without="memory",
        still_fits=lambda place, name, _: (
            name in ("zero", "more") and ("lives" in place or "tasks" in place)
        ),
    ):
        error = refused(lambda new=changed: engine.load_state_dict(new), ValueError)
        assert error is not None, edit
        assert "\n" not in error, edit
        assert_same_state(engine.agent.state_dict(), before)
        assert engine.frames == 0
    engine.load_state_dict(state)
    assert engine.frames == 24
    assert engine.current_tasks() == [0, 0, 0, 0]
