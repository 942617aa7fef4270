"""One file that holds a run's state, written whole or not at all."""

from __future__ import annotations

import os
import pickle
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch

__all__ = ["CheckpointError", "load_checkpoint", "save_checkpoint"]


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read; the message says what to do."""


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a state; the file that was there stays until the new one is complete.

    Args:
        path: the file.
        state: plain values and tensors.

    Raises:
        CheckpointError: if it cannot be written; the old file is still there.
    """
    partial: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        partial = Path(name)
        with os.fdopen(handle, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        if not isinstance(error, OSError | RuntimeError):
            raise
        kept = f"; the last one, {path}, is kept" if path.exists() else ""
        raise CheckpointError(f"cannot write a checkpoint ({error}){kept}") from error


def load_checkpoint(
    path: Path, advice: str = "Delete it to start the run anew"
) -> dict[str, Any]:
    """Read a state; runs no code from the file.

    Args:
        path: the file.
        advice: what to do if it is damaged.

    Returns:
        The state, on the host.

    Raises:
        CheckpointError: if there is none or it is damaged.
    """
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint {path}")
    try:
        # torch does not compare the check sums that it writes.
        with zipfile.ZipFile(path) as archive:
            wrong = archive.testzip()
        if wrong is not None:
            raise ValueError(f"the check sum of {wrong} is wrong")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # What torch has to say is how to run code from the file all the same.
        refused = isinstance(error, pickle.UnpicklingError)
        text = "it holds more than plain values and tensors" if refused else str(error)
        text = text.splitlines()[0] if text else type(error).__name__
        raise CheckpointError(f"{path} is damaged ({text}). {advice}") from error
    return state
