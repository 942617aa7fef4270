"""What is in a folder that was given: :func:`is_sweep`, :func:`check_place`."""

from __future__ import annotations

from pathlib import Path

from agents.runs.folder import RunError, RunFolder

__all__ = ["check_place", "is_sweep"]


def is_sweep(path: str | Path) -> bool:
    """Whether a path is the folder of a sweep, or its file of results.

    Args:
        path: of a run or of a sweep.

    Raises:
        RunError: if it cannot be looked at.
    """
    found = RunFolder(path).path
    try:
        is_file = found.name.endswith((".jsonl", ".jsonl.gz")) and found.is_file()
        return is_file or (found / "results.jsonl").is_file()
    except OSError as error:
        raise RunError(f"cannot read {path} ({error.strerror})") from error


def check_place(path: str | Path) -> None:
    """Refuse what is neither a run nor a sweep, where it is known what it is.

    Args:
        path: of anything but a sweep with results.

    Raises:
        RunError: that says what is there.
    """
    found = RunFolder(path).path
    try:
        reason = _why_not(found)
    except OSError as error:
        raise RunError(f"cannot read {path} ({error.strerror})") from error
    if reason:
        raise RunError(f"{path} {reason}")


def _why_not(path: Path) -> str:
    """Why a path cannot be shown, as the end of a sentence; empty if it may."""
    if not path.exists():
        return "does not exist"
    if not path.is_dir():
        return "is a file: give the folder of a run or a sweep, or a sweep's .jsonl"
    if (path / "result.json").exists():
        return ""
    if (path / "tuning.json").exists():
        return "is a tuning: show its grid or test folder"
    if (path / "failed").is_dir():
        return f"has no results: no run of this sweep has finished, see {path}/failed"
    return ""
