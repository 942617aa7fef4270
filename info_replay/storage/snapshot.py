"""Folders that are replaced whole: a save is the old one or the new one, never a mix.

A folder holds snapshots, each in a subfolder of its own, and a small file that names
the one that counts. The file is replaced by a rename, which the file system does at
once or not at all, after everything that it names is on disk.
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
    """Fill a new snapshot; it counts once the block ends without an error.

    Args:
        path: the folder of the snapshots; it is made if it is not there.

    Yields:
        An empty folder to write to.
    """
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
        # While somebody loads, old snapshots stay; the next save clears them away.
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
    """The folder to load from; it stays as it is until the block ends.

    Args:
        path: the folder of the snapshots, or one that TorchRL's ``dumps`` wrote.

    Yields:
        The snapshot that counts.

    Raises:
        FileNotFoundError: if nothing was saved there.
    """
    folder = Path(path).absolute()
    pointer = folder / _POINTER
    if not pointer.exists() and not (folder / "buffer_metadata.json").exists():
        raise FileNotFoundError(f"no replay buffer was saved in {folder}")
    with _lock(folder, wait=True):
        yield folder / pointer.read_text().strip() if pointer.exists() else folder


@contextlib.contextmanager
def _lock(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a folder: for reading, waiting, or for clearing up, if nobody reads.

    The kernel gives the lock back when the process dies. Where there are no such locks
    (Windows), readers and savers of one folder must not meet.

    Args:
        folder: what to lock.
        wait: whether to wait, to read together with others.

    Yields:
        Whether the lock was had.
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
