"""What a run goes on from, read and checked before anything is changed or deleted.

All files of a run are read, and found to fit together, before one of them is removed
or cut: nothing good is lost because something else is bad.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from agents.runs.checkpoint import expecting_a_fit, load_checkpoint
from agents.runs.folder import RunError, RunFolder
from agents.runs.saved_states import check_parts, check_seconds, check_whole

__all__ = ["check_events", "read_progress", "read_result"]

Events = Iterable[dict[str, Any]]


def read_result(
    folder: RunFolder, check: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """The result of a finished run; its times and events are read, too.

    Args:
        folder: of the run.
        check: raises a ``ValueError`` if the result is not one of such a run.

    Raises:
        RunError: if a file is missing or damaged; it says how to go on.
    """
    advice = "Run it again in another folder"
    if folder.has_checkpoint:
        path = folder.path / "result.json"
        advice = f"Delete {path} to go on from the last checkpoint"
    result = folder.read("result.json", advice)
    _check(folder, "result.json", check, result, advice)
    if folder.has_checkpoint:  # which goes once all else is there
        timing = folder.read("timing.json", advice)
        _check(folder, "timing.json", check_seconds, timing, advice)
        list(folder.events("evaluation"))
    return result


def _check(
    folder: RunFolder, name: str, check: Callable[[Any], None], content: Any, way: str
) -> None:
    """Name the file whose content is refused, and the way to go on."""
    try:
        check(content)
    except ValueError as error:
        path = folder.path / name
        raise RunError(f"{path} is damaged: {error}. {way}") from error


def read_progress(
    folder: RunFolder, check: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """The checkpoint of a run, but for what only its parts can check.

    Args:
        folder: of the run.
        check: raises a ``ValueError`` if it is not one of such a run.

    Raises:
        CheckpointError: if it is damaged, or not of such a run.
    """
    state = load_checkpoint(folder.checkpoint)
    with expecting_a_fit(folder.checkpoint):
        check_parts(state, "written", "seconds", name="the checkpoint")
        check_whole(state["written"], "written")
        check_seconds(state["seconds"])
        check(state)
    return state


def check_events(
    folder: RunFolder,
    written: int,
    moment: str,
    saved: Any,
    evaluations_of: Callable[[Events], Any],
) -> None:
    """Refuse to cut off what was noted after a checkpoint, unless it is just that.

    Args:
        folder: of the run.
        written: bytes of the events when the checkpoint was written.
        moment: by which events say when they were, such as ``"step"``.
        saved: the evaluations in the checkpoint.
        evaluations_of: the same, from the events that were noted of them.

    Raises:
        RunError: if the events are not those of the checkpoint.
    """
    events = folder.metrics.read_bytes() if folder.metrics.exists() else b""
    if len(events) < written:
        raise RunError(
            f"{folder.metrics} is shorter than when the checkpoint was written: the "
            "run cannot be resumed"
        )
    whole_lines = not written or events[:written].endswith(b"\n")
    with folder.expecting_a_run():
        noted = [*folder.events("evaluation", written)]
        moments = [event[moment] for event in noted]
        # As text, because a score that is not a number differs from itself.
        same = _as_text(evaluations_of(noted)) == _as_text(saved)
    if (
        not whole_lines
        or not same
        or _moment_after(events[written:], moment) in moments
    ):
        raise RunError(
            f"{folder.metrics} has other evaluations than {folder.checkpoint}: the run "
            "cannot be resumed"
        )


def _as_text(evaluations: Any) -> str:
    return json.dumps(evaluations, sort_keys=True)


def _moment_after(events: bytes, moment: str) -> Any:
    """When the first event was, ``None`` if a kill has left half of one, or none."""
    try:
        return json.loads(events.partition(b"\n")[0])[moment]
    except (LookupError, TypeError, ValueError, RecursionError):
        return None
