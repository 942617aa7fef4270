"""A lock between processes that survives their deaths: :class:`ProcessLock`."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any

from torchrl.data import Storage

if sys.platform != "win32":
    import fcntl

__all__ = ["ProcessLock", "unlock_counts"]

# Numbers that a storage of TorchRL shares between processes, and their types.
_COUNTS = {
    "_len_value": "i",
    "_mutation_revision_value": "q",
    "_last_cursor_index_value": "q",
}


class ProcessLock:
    """Lets one thread of one process in at a time; reentrant.

    Unlike ``multiprocessing.Lock``, it is released by the system if its holder is
    killed. What a process was writing then may be torn: it marks itself as
    :meth:`writing`, and if it dies over that, others get an error until one of them
    has put everything right (:meth:`repairing`).

    Child processes get the lock by ``fork`` or as an argument.

    Example:
        >>> lock = ProcessLock()
        >>> with lock, lock.writing():
        ...     pass
    """

    def __init__(self) -> None:
        if sys.platform == "win32":
            raise RuntimeError(
                "a memory cannot be shared between processes on Windows; use Ray, or "
                "one process that writes"
            )
        # A file without a name; its byte is written, so that it has room on the disk.
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(b"\0")
            self._open(os.dup(file.fileno()))

    def _open(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_torn = mmap.mmap(descriptor, 1)  # 1 while somebody writes
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._threads = threading.RLock()
        self._depth = 0

    def __enter__(self) -> ProcessLock:
        """Wait for the lock.

        Raises:
            RuntimeError: if a process died while it was writing.
        """
        self._acquire()
        if self._depth == 1 and self._is_torn[0]:
            self._release()
            raise RuntimeError(
                "a process that shares this memory was killed while it wrote: an item "
                "may be torn; empty() the memory, or restore it with load_state_dict() "
                "or loads()"
            )
        return self

    def __exit__(self, *error: object) -> None:
        """Give the lock back."""
        self._release()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Mark what is done under the lock as a change; if we die, others will know."""
        before = self._is_torn[0]
        self._is_torn[0] = 1
        try:
            yield
        finally:
            self._is_torn[0] = before

    @contextlib.contextmanager
    def repairing(self) -> Iterator[None]:
        """Hold the lock, whatever happened, to replace everything that it guards."""
        self._acquire()
        try:
            before = self._is_torn[0]
            self._is_torn[0] = 1
            try:
                yield
            except BaseException:
                self._is_torn[0] = before  # nothing was replaced
                raise
            self._is_torn[0] = 0
        finally:
            self._release()

    def _acquire(self) -> None:
        if self._process != os.getpid():
            self._start()  # after a fork: a thread of the parent may have held it
        self._threads.acquire()
        self._depth += 1
        if self._depth == 1:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            except BaseException:
                self._depth = 0
                self._threads.release()
                raise

    def _release(self) -> None:
        if self._depth == 1:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
        self._depth -= 1
        self._threads.release()

    def __reduce__(self) -> Any:
        """The same lock for a child process, a new one for anybody else."""
        child = get_spawning_popen() is not None
        return _received, (DupFd(self._descriptor) if child else None,)

    def __del__(self) -> None:
        """Close the file."""
        with contextlib.suppress(AttributeError, OSError, BufferError):
            self._is_torn.close()
            os.close(self._descriptor)


def unlock_counts(storage: Storage) -> None:
    """Take their locks from a storage's counts: a process killed over one keeps it.

    Args:
        storage: which is written to under a :class:`ProcessLock` only.
    """
    for name, kind in _COUNTS.items():
        number: Any = getattr(storage, name, None)
        lock = getattr(number, "get_lock", None)
        if lock is not None and not isinstance(lock(), _NoLock):
            held: Any = _NoLock()
            setattr(storage, name, multiprocessing.Value(kind, number.value, lock=held))


class _NoLock:
    """In the place of a lock, where another one keeps others out already."""

    def acquire(self, *_: object) -> bool:
        """Do nothing."""
        return True

    def release(self) -> None:
        """Do nothing."""

    def __enter__(self) -> bool:
        """Do nothing."""
        return True

    def __exit__(self, *error: object) -> None:
        """Do nothing."""


def _received(file: Any) -> ProcessLock:
    """The lock of the parent process, or a new one."""
    if file is None:
        return ProcessLock()
    lock = ProcessLock.__new__(ProcessLock)
    lock._open(file.detach())
    return lock
