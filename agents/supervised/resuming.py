"""What a run goes on from, read and checked before anything is changed or deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from agents.runs.checkpoint import CheckpointError, load_checkpoint
from agents.runs.folder import RunError, RunFolder
from agents.supervised.learner import Learner
from agents.supervised.saved_states import (
    check_numbers,
    check_parts,
    check_whole,
    describe,
)
from continual_envs import StreamEnv

__all__ = ["read_progress", "read_result", "restore_parts"]


def read_result(folder: RunFolder) -> dict[str, Any]:
    """The result of a finished run.

    Args:
        folder: of the run.

    Raises:
        RunError: if it is damaged; it says how to go on.
    """
    way = "Run it again in another folder"
    if folder.checkpoint.exists():
        way = "Delete it to go on from the last checkpoint"
    try:
        result = folder.read("result.json")
    except RunError as error:
        raise RunError(f"{error}. {way}") from error
    try:
        check_parts(result, "steps_done", "prequential", name="the result")
        check_whole(result["steps_done"], "steps_done")
        check_numbers([result["prequential"]], 1, "prequential")
    except ValueError as error:
        path = folder.path / "result.json"
        raise RunError(f"{path} is damaged: {error}. {way}") from error
    return result


def read_progress(
    folder: RunFolder, env: StreamEnv, num_steps: int | None, metrics: Iterable[str]
) -> dict[str, Any]:
    """The checkpoint of a run, but for what only learner and stream can check.

    Args:
        folder: of the run.
        env: its stream.
        num_steps: of the whole run, ``None`` if nobody knows.
        metrics: names of the metrics of the user's.

    Returns:
        The parts by name.

    Raises:
        CheckpointError: if it is damaged, or not of such a run.
        RunError: if the events along the run are not those of the checkpoint.
    """
    state = load_checkpoint(folder.checkpoint)
    try:
        _check_progress(state, len(env.evaluation_sets), num_steps, metrics)
    except ValueError as error:
        raise CheckpointError(
            f"{folder.checkpoint} does not fit this run: {error}"
        ) from error
    written = state["written"]
    events = folder.metrics.read_bytes() if folder.metrics.exists() else b""
    if len(events) < written:
        raise RunError(
            f"{folder.metrics} is shorter than when the checkpoint was written: the "
            "run cannot be resumed"
        )
    # What comes after will be deleted: it must be what comes after, and nothing else.
    whole_lines = not written or events[:written].endswith(b"\n")
    with folder.expecting_a_run():
        noted = {event["step"] for event in folder.events("evaluation", written)}
    if not whole_lines or noted != state["scores"].keys():
        raise RunError(
            f"{folder.metrics} has other evaluations than {folder.checkpoint}: the run "
            "cannot be resumed"
        )
    return state


def restore_parts(
    folder: RunFolder, state: dict[str, Any], agent: Learner, env: StreamEnv
) -> NDArray[Any]:
    """Give a learner and a stream the states that they had, both or none.

    Args:
        folder: of the run.
        state: its checkpoint.
        agent: the learner.
        env: the stream, in batches.

    Returns:
        The batch that will be predicted next.

    Raises:
        CheckpointError: if one of them refuses its state.
    """
    try:
        check_parts(state["env"], "position", name="the state of the stream")
        check_whole(state["env"]["position"], "position of the stream")
        position = state["step"] * (env.options.batch_size or 1)
        if state["env"]["position"] != position:
            raise ValueError(
                f"the stream must be at sample {position} after {state['step']} steps, "
                f"got {state['env']['position']}"
            )
        go_on = env.prepare_load(state["env"])
        agent.load_state_dict(state["agent"])
    except Exception as error:  # of any kind: a learner may be the user's
        text = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(
            f"{folder.checkpoint} does not fit this run: {text}"
        ) from error
    observation, _ = go_on()
    return observation


def _check_progress(
    state: Any, num_tasks: int, num_steps: int | None, metrics: Iterable[str]
) -> None:
    """Refuse a checkpoint with values that no run has.

    Args:
        state: that was read.
        num_tasks: how many scores an evaluation has.
        num_steps: of the whole run, ``None`` if nobody knows.
        metrics: names of the metrics of the user's.

    Raises:
        ValueError: naming the first part that does not fit.
    """
    parts = "step over env agent rewards scores metrics written seconds".split()
    check_parts(state, *parts, name="the checkpoint")
    for name in ("step", "written"):
        check_whole(state[name], name)
    step = state["step"]
    if num_steps is not None and step > num_steps:
        raise ValueError(f"step must be at most {num_steps}, got {step}")
    if not isinstance(state["over"], bool) or (step == num_steps and not state["over"]):
        raise ValueError(
            f"over must be {step == num_steps}, got {describe(state['over'])}"
        )
    check_numbers(state["rewards"], step, "rewards")
    names = set(metrics)
    for name in ("scores", "metrics", "seconds"):
        check_parts(state[name], name=name)
    for moment, scores in state["scores"].items():
        check_whole(moment, "step of an evaluation")
        check_numbers(scores, num_tasks, "scores")
    if state["metrics"].keys() != state["scores"].keys():
        raise ValueError("metrics must be of the same steps as the scores")
    for found in state["metrics"].values():
        check_parts(found, *names, name="metrics")
        for name in found:
            if name not in names:
                raise ValueError(
                    f"metrics must be {sorted(names)}, got {describe(name)}"
                )
            check_numbers(found[name], num_tasks, name)
    for part, spent in state["seconds"].items():
        if not isinstance(part, str):
            raise ValueError(f"seconds must be by name, got {describe(part)}")
        check_numbers([spent], 1, "seconds")
