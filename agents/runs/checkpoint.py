"""One file that holds a run's state, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from agents.runs.files import replace_file

__all__ = [
    "CheckpointError",
    "expecting_a_fit",
    "load_checkpoint",
    "save_checkpoint",
]


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
    try:
        with replace_file(path) as file:
            torch.save(state, file)
    except (OSError, RuntimeError) as error:
        kept = f"; the last one, {path}, is kept" if path.exists() else ""
        reason = _reason(error)
        raise CheckpointError(f"cannot write a checkpoint ({reason}){kept}") from error


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
        CheckpointError: if there is none, it cannot be read, it is damaged, or it is
            larger unpacked.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_sizes(archive, path.stat().st_size)
            # torch does not compare the checksums that it writes.
            wrong = archive.testzip()
        if wrong is not None:
            raise ValueError(f"the checksum of {wrong} is wrong")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except Exception as error:
        if _may_be_whole(error):
            raise CheckpointError(f"cannot read {path} ({_reason(error)})") from error
        # torch's own message tells how to run the code in the file nevertheless.
        refused = isinstance(error, pickle.UnpicklingError)
        text = "it holds more than plain values and tensors" if refused else str(error)
        text = text.splitlines()[0] if text else type(error).__name__
        raise CheckpointError(f"{path} is damaged ({text}). {advice}") from error
    return state


@contextlib.contextmanager
def expecting_a_fit(path: Path) -> Iterator[None]:
    """Where the content of a file is used, which may be edited or of another run.

    Args:
        path: the file.

    Raises:
        CheckpointError: in place of any error that a wrong value leads to.
    """
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # of any kind: parts of a run may be the user's
        text = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(f"{path} does not fit this run: {text:.300}") from error


def _may_be_whole(error: Exception) -> bool:
    """Whether the system could not read a file, which says nothing of its content."""
    if isinstance(error, OSError):
        # Damaged offsets lead to places before the file's beginning.
        return error.errno not in (None, errno.EINVAL)
    return isinstance(error, MemoryError)


def _reason(error: BaseException) -> str:
    """Why a file cannot be written or read, in one line.

    On a full disk torch raises an error about its own bookkeeping; that of the system
    comes before it.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return " ".join(str(cause or error).split()) or type(error).__name__


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse an archive that is larger unpacked than it is; torch compresses nothing.

    Args:
        archive: whose content was not read yet.
        size: of its file, in bytes.

    Raises:
        ValueError: if it is.
    """
    entries = archive.infolist()
    for entry in entries:
        stored = entry.compress_type == zipfile.ZIP_STORED
        if not stored or entry.compress_size != entry.file_size:
            raise ValueError(f"{entry.filename} is compressed")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > size:
        raise ValueError(f"its parts have {unpacked} bytes, the file has {size}")
