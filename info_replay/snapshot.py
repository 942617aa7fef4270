"""Folders that are replaced whole: a save is the old one or the new one, never a mix.

A folder holds snapshots, each in a subfolder of its own, and a small file that names
the one that counts. The file is replaced by a rename, which the file system does at
once or not at all, after everything that it names is on disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

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
        for file in snapshot.rglob("*"):
            _to_disk(file)
        pointer = folder / f".{_POINTER}-{uuid.uuid4().hex}"
        pointer.write_text(snapshot.name)
        _to_disk(pointer)
        os.replace(pointer, folder / _POINTER)
        _to_disk(folder)
    except BaseException:
        shutil.rmtree(snapshot, ignore_errors=True)
        raise
    for old in folder.iterdir():
        if old.name.startswith(_PREFIX) and old != snapshot:
            shutil.rmtree(old, ignore_errors=True)
        elif old.name.startswith(f".{_POINTER}-"):
            old.unlink(missing_ok=True)


def current_snapshot(path: str | Path) -> Path:
    """The folder to load from.

    Args:
        path: the folder of the snapshots, or one that TorchRL's ``dumps`` wrote.

    Returns:
        The snapshot that counts.

    Raises:
        FileNotFoundError: if nothing was saved there.
    """
    folder = Path(path).absolute()
    pointer = folder / _POINTER
    if pointer.exists():
        return folder / pointer.read_text().strip()
    if (folder / "buffer_metadata.json").exists():
        return folder
    raise FileNotFoundError(f"no replay buffer was saved in {folder}")


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
