"""What a run on a stream goes on from: see :mod:`agents.runs.resuming`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from agents.runs import resuming
from agents.runs.checkpoint import expecting_a_fit
from agents.runs.folder import RunFolder
from agents.runs.saved_states import check_numbers, check_parts, check_whole
from agents.supervised.learner import Learner
from continual_envs import StreamEnv
from info_replay.validation import told

__all__ = ["read_progress", "read_result", "restore_parts"]


def read_result(folder: RunFolder) -> dict[str, Any]:
    """The result of a finished run.

    Args:
        folder: of the run.

    Raises:
        RunError: if it is damaged; it says how to go on.
    """
    return resuming.read_result(folder, _check_result)


def _check_result(result: dict[str, Any]) -> None:
    check_parts(result, "steps_done", "prequential", name="the result")
    check_whole(result["steps_done"], "steps_done")
    check_numbers([result["prequential"]], 1, "prequential")


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

    def check(state: dict[str, Any]) -> None:
        _check_progress(state, len(env.evaluation_sets), num_steps, metrics)

    def scores(events: resuming.Events) -> dict[int, list[float]]:
        return {event["step"]: event["scores"] for event in events}

    state = resuming.read_progress(folder, check)
    resuming.check_events(folder, state["written"], "step", state["scores"], scores)
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
    with expecting_a_fit(folder.checkpoint):
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
    parts = "step over env agent rewards scores metrics".split()
    check_parts(state, *parts, name="the checkpoint")
    step = state["step"]
    check_whole(step, "step")
    if num_steps is not None and step > num_steps:
        raise ValueError(f"step must be at most {num_steps}, got {step}")
    if not isinstance(state["over"], bool) or (step == num_steps and not state["over"]):
        raise ValueError(f"over must be {step == num_steps}, got {told(state['over'])}")
    check_numbers(state["rewards"], step, "rewards")
    names = set(metrics)
    for name in ("scores", "metrics"):
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
                raise ValueError(f"metrics must be {sorted(names)}, got {told(name)}")
            check_numbers(found[name], num_tasks, name)
