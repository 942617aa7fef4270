"""What a run of Q-learning goes on from: see :mod:`agents.runs.resuming`."""

from __future__ import annotations

from typing import Any

from agents.q_learning.engine import Engine
from agents.q_learning.saved_run import load_dqn_run
from agents.runs import resuming
from agents.runs.checkpoint import CheckpointError, expecting_a_fit
from agents.runs.folder import RunFolder
from agents.runs.saved_states import check_numbers, check_parts, check_whole
from info_replay.validation import told

__all__ = ["read_progress", "read_result", "restore_engine"]

_COUNTS = ("frame", "size", "write_count", "reservoir_count")


def read_result(
    folder: RunFolder, num_tasks: int, *, own_memory: bool
) -> dict[str, Any]:
    """The result of a finished run, once all of its files were read.

    Args:
        folder: of the run.
        num_tasks: how many returns an evaluation has.
        own_memory: whether its memory was not made from the settings.

    Raises:
        RunError: if it is damaged; it says how to go on.
        CheckpointError: if weights or memory are missing, damaged or of another run.
    """

    def check(result: dict[str, Any]) -> None:
        check_parts(result, "frames", "evaluations", name="the result")
        check_whole(result["frames"], "frames")
        _check_evaluations(result["evaluations"], num_tasks)
        frames = [event["frame"] for event in result["evaluations"]]
        if frames[-1:] != [result["frames"]]:
            raise ValueError(
                f"the last evaluation must be at frame {result['frames']}, got "
                f"{told(frames[-1:])}"
            )

    result = resuming.read_result(folder, check)
    # Its own code was imported already, to make the run.
    run = load_dqn_run(folder.path, own_code=True)
    if folder.has_checkpoint and run.memory is None and not own_memory:
        raise CheckpointError(
            f"{folder.path} has no memory.pt. Delete {folder.path / 'result.json'} to "
            "go on from the last checkpoint"
        )
    return result


def read_progress(folder: RunFolder, num_tasks: int) -> dict[str, Any]:
    """The checkpoint of a run, but for what only its engine can check.

    Args:
        folder: of the run.
        num_tasks: how many returns an evaluation has.

    Raises:
        CheckpointError: if it is damaged, or not of such a run.
        RunError: if the events along the run are not those of the checkpoint.
    """

    def check(state: dict[str, Any]) -> None:
        check_parts(state, "engine", "frame", "evaluations", name="the checkpoint")
        check_whole(state["frame"], "frame")
        _check_evaluations(state["evaluations"], num_tasks)

    def evaluations(events: resuming.Events) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in event.items() if name != "kind"}
            for event in events
        ]

    state = resuming.read_progress(folder, check)
    saved = state["evaluations"]
    resuming.check_events(folder, state["written"], "frame", saved, evaluations)
    return state


def restore_engine(folder: RunFolder, state: dict[str, Any], engine: Engine) -> None:
    """Give an engine the state that it had.

    Args:
        folder: of the run.
        state: its checkpoint.
        engine: made from the settings of the run.

    Raises:
        CheckpointError: if it refuses its state.
    """
    with expecting_a_fit(folder.checkpoint):
        engine.load_state_dict(state["engine"])
        if state["frame"] != engine.frames:
            raise ValueError(
                f"frame must be that of the learner, {engine.frames}, got "
                f"{state['frame']}"
            )


def _check_evaluations(evaluations: Any, num_tasks: int) -> None:
    """Refuse what is not a list of evaluations."""
    if not isinstance(evaluations, list):
        raise ValueError(f"evaluations must be a list, got {told(evaluations)}")
    for event in evaluations:
        parts = (*_COUNTS, "returns", "tasks", "terminal_share")
        check_parts(event, *parts, name="an evaluation")
        for name in _COUNTS:
            check_whole(event[name], name)
        check_numbers(event["returns"], num_tasks, "returns")
        check_numbers([event["terminal_share"]], 1, "terminal_share")
        tasks = event["tasks"]
        check_numbers(tasks, len(tasks) if isinstance(tasks, list) else 0, "tasks")
        if num_tasks > 1 and not tasks:
            raise ValueError("tasks must be those of the copies, got none")
        if "task_shares" in event:
            check_numbers(event["task_shares"], num_tasks, "task_shares")
