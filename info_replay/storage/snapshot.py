"""Folders that are replaced whole: a save is the old one or the new one, never a mix.

A folder holds snapshots, one per subfolder, and a small file that names the current
one. Once a snapshot is on disk, the file is replaced by a rename, which is atomic.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["current_snapshot", "new_snapshot"]

_POINTER = "CURRENT"
_PREFIX = "snapshot-"


@contextlib.contextmanager
def new_snapshot(path: str | Path) -> Iterator[Path]:
    """An empty folder to fill; it is current once the block ends without an error."""
    folder = Path(path).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    snapshot = folder / f"{_PREFIX}{uuid.uuid4().hex}"
    snapshot.mkdir()
    try:
        yield snapshot
        for file in (snapshot, *snapshot.rglob("*")):
            _to_disk(file)
        pointer = folder / f".{_POINTER}-{uuid.uuid4().hex}"
        pointer.write_text(snapshot.name)
        _to_disk(pointer)
        os.replace(pointer, folder / _POINTER)
        _to_disk(folder)
    except BaseException:
        shutil.rmtree(snapshot, ignore_errors=True)
        raise
    with _lock(folder, wait=False) as alone:
        # While somebody loads, old snapshots stay; the next save removes them.
        if alone:
            _clear(folder, snapshot)


def _clear(folder: Path, snapshot: Path) -> None:
    """Remove all snapshots but one, and what killed saves left."""
    for old in folder.iterdir():
        if old.name.startswith(_PREFIX) and old != snapshot:
            shutil.rmtree(old, ignore_errors=True)
        elif old.name.startswith(f".{_POINTER}-"):
            old.unlink(missing_ok=True)


@contextlib.contextmanager
def current_snapshot(path: str | Path) -> Iterator[Path]:
    """The folder to load from, which stays as it is until the block ends.

    The path may also be a folder that TorchRL's ``dumps`` wrote.
    """
    folder = Path(path).absolute()
    pointer = folder / _POINTER
    if not pointer.exists() and not (folder / "buffer_metadata.json").exists():
        raise FileNotFoundError(f"no replay buffer was saved in {folder}")
    with _lock(folder, wait=True):
        yield folder / pointer.read_text().strip() if pointer.exists() else folder


@contextlib.contextmanager
def _lock(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a folder for reading (``wait``) or removing; yields whether it is locked.

    The kernel releases the lock when the process dies. Windows has no such locks:
    there, one folder must not be read and saved to at the same time.
    """
    if sys.platform == "win32":
        yield True
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        mode = fcntl.LOCK_SH if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.flock(descriptor, mode)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
