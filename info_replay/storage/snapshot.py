"""A folder that holds a saved state, whole: :func:`save_snapshot`.

The folder has a file ``CURRENT`` that names a subfolder and the check sum of what is in
it. A new subfolder is written completely before ``CURRENT`` is replaced, by a rename,
which is atomic; so a save is the old one or the new one, never a mix. A subfolder has

* ``tensors.bin``, the tensors' bytes one after the other;
* ``manifest.json``, everything else, and size and check sum of ``tensors.bin``.

Neither can run code. Files are written, not memory-mapped: a full disk is an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from info_replay.storage.tree import decode, encode

if sys.platform != "win32":
    import fcntl

__all__ = ["has_snapshot", "load_snapshot", "save_snapshot"]

_POINTER = "CURRENT"
_PREFIX = "snapshot-"
_SNAPSHOT = re.compile(rf"{_PREFIX}[0-9a-f]{{32}}")
_NEW_POINTER = re.compile(rf"\.{_POINTER}-[0-9a-f]{{32}}")
_POINTED = re.compile(rf"({_SNAPSHOT.pattern}) ([0-9a-f]{{64}})\n")
_FORMAT = "info-replay state 1"
# What reading files of any content may raise.
_DAMAGE = (
    OSError,
    LookupError,
    ValueError,
    TypeError,
    MemoryError,
    RuntimeError,
    OverflowError,
)
# Not there on Windows.
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


def save_snapshot(path: str | Path, state: Any) -> None:
    """Save a state to a folder; what was saved there stays until it is done.

    Savers of one folder wait for each other, and for those who load from it.

    Args:
        path: the folder; it is made if it is not there.
        state: plain values and tensors.

    Raises:
        OSError: if it cannot be written, on a full disk for one.
        TypeError: if the state holds anything else.

    Example:
        >>> import tempfile, torch
        >>> folder = tempfile.mkdtemp()
        >>> save_snapshot(folder, {"x": torch.tensor([1.0]), "count": 3})
        >>> load_snapshot(folder)
        {'x': tensor([1.]), 'count': 3}
    """
    folder = Path(path).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder, exclusive=True):
            _clear(folder)  # what killed saves left
            snapshot = folder / f"{_PREFIX}{uuid.uuid4().hex}"
            snapshot.mkdir()
            try:
                digest = _write_state(snapshot, state)
                _write_pointer(folder, f"{snapshot.name} {digest}\n")
            finally:
                _clear(folder)  # of the two, what CURRENT does not name
    except OSError as error:
        kept = "; what was saved there before is kept" * has_snapshot(folder)
        raise OSError(
            error.errno, f"cannot save to {folder} ({error.strerror or error}){kept}"
        ) from error


def load_snapshot(path: str | Path) -> Any:
    """Read a state that :func:`save_snapshot` wrote; all of it, and checked.

    Args:
        path: the folder.

    Returns:
        The state, with tensors on the host.

    Raises:
        FileNotFoundError: if nothing was saved there.
        ValueError: if it is damaged, or not such a folder.
    """
    folder = Path(path).absolute()
    if not has_snapshot(folder):
        if (folder / "buffer_metadata.json").exists():
            raise ValueError(
                f"{folder} was saved by TorchRL, not by info-replay; load it into "
                "TorchRL's own buffer and extend this one with its items"
            )
        raise FileNotFoundError(f"no replay buffer was saved in {folder}")
    try:
        with _lock(folder, exclusive=False):
            return _read_state(folder)
    except _DAMAGE as error:
        text = " ".join(str(error).split())
        raise ValueError(f"what was saved in {folder} is damaged: {text}") from error


def has_snapshot(path: str | Path) -> bool:
    """Whether something was saved in a folder."""
    return os.path.lexists(Path(path) / _POINTER)


# -- writing --------------------------------------------------------------------------


def _write_state(snapshot: Path, state: Any) -> str:
    """Write both files; the check sum of the manifest, which has that of the other."""
    found = hashlib.sha256()
    with _new_file(snapshot / "tensors.bin") as file:

        def write(content: memoryview) -> None:
            file.write(content)
            found.update(content)

        text = encode(state, write)
        size = file.tell()
    manifest = {
        "format": _FORMAT,
        "tensors": {"bytes": size, "sha256": found.hexdigest()},
        "state": text,
    }
    content = json.dumps(manifest).encode()
    with _new_file(snapshot / "manifest.json") as file:
        file.write(content)
    _to_disk(snapshot)
    return hashlib.sha256(content).hexdigest()


def _write_pointer(folder: Path, text: str) -> None:
    pointer = folder / f".{_POINTER}-{uuid.uuid4().hex}"
    try:
        with _new_file(pointer) as file:
            file.write(text.encode())
        os.replace(pointer, folder / _POINTER)
    except BaseException:
        pointer.unlink(missing_ok=True)
        raise
    _to_disk(folder)


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that was not there, nor a link, and is on disk at the end."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _to_disk(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _clear(folder: Path) -> None:
    """Remove all snapshots of ours but the current one; nobody else is at it."""
    try:
        current = _read_pointer(folder)[0]
    except FileNotFoundError:
        current = None
    except (OSError, ValueError):
        return  # a damaged pointer must not cost what it pointed to
    for old in folder.iterdir():
        if _SNAPSHOT.fullmatch(old.name) and old.name != current:
            shutil.rmtree(old, ignore_errors=True)
        elif _NEW_POINTER.fullmatch(old.name):
            old.unlink(missing_ok=True)


# -- reading --------------------------------------------------------------------------


def _read_state(folder: Path) -> Any:
    name, digest = _read_pointer(folder)
    snapshot = folder / name
    if snapshot.is_symlink():
        raise ValueError(f"{name} is a link")
    content = _read_file(snapshot / "manifest.json")
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError("the check sum of manifest.json is wrong")
    manifest = json.loads(content)
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise ValueError(f"expected the format {_FORMAT!r}, got another one")
    expected = manifest["tensors"]
    tensors = _read_file(snapshot / "tensors.bin", expected["bytes"])
    if hashlib.sha256(tensors).hexdigest() != expected["sha256"]:
        raise ValueError("the check sum of tensors.bin is wrong")
    return decode(manifest["state"], tensors)


def _read_pointer(folder: Path) -> tuple[str, str]:
    text = _read_file(folder / _POINTER).decode(errors="replace")
    found = _POINTED.fullmatch(text)
    if found is None:
        old = _SNAPSHOT.fullmatch(text.strip())
        raise ValueError(
            "it was written by an earlier version of info-replay, without check sums; "
            "load it with that version"
            if old
            else f"{_POINTER} must name a snapshot and its check sum, got {text!r:.80}"
        )
    return found[1], found[2]


def _read_file(path: Path, size: int | None = None) -> bytearray:
    """The bytes of an ordinary file, not of a link, of the expected size."""
    descriptor = os.open(path, os.O_RDONLY | _NO_LINKS | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"{path.name} is not a file")
        if size is not None and about.st_size != size:
            raise ValueError(
                f"{path.name} must have {size} bytes, it has {about.st_size}"
            )
        content = bytearray(about.st_size)
        if file.readinto(content) != len(content):
            raise ValueError(f"{path.name} is cut short")
    return content


@contextlib.contextmanager
def _lock(folder: Path, *, exclusive: bool) -> Iterator[None]:
    """Keep savers out, or everybody, until the end; others wait.

    The kernel releases the lock when the process dies. Windows has no such locks:
    there, one folder must not be used by two processes at the same time.
    """
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)
