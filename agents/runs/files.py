"""The one way in which a run writes its files: whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

__all__ = ["append_lines", "remove_partial_files", "replace_file"]


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a new file; the old one stays until the new one is complete and on disk.

    Args:
        path: the file.

    Yields:
        A temporary file in the same folder, which takes the place of ``path`` at the
        end. After an error it is removed, and ``path`` is as it was.

    Raises:
        OSError: if the file cannot be written.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "numbers.txt"
        >>> with replace_file(path) as file:
        ...     _ = file.write(b"1 2 3")
        >>> path.read_text()
        '1 2 3'
    """
    partial = path.with_name(f".{path.name}-{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def append_lines(path: Path, lines: Iterable[str]) -> int:
    """Append lines to a file, all of them or none.

    Args:
        path: the file; it is made if there is none.
        lines: without line ends.

    Returns:
        The size of the file afterwards, in bytes.

    Raises:
        OSError: if they cannot be written.
    """
    content = memoryview("".join(f"{line}\n" for line in lines).encode())
    # Without a buffer: one that could not be written would be written again on closing.
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        try:
            while content:
                content = content[file.write(content) :]
            os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                file.truncate(size)
            raise
        return file.tell()


def remove_partial_files(folder: Path) -> None:
    """Remove what a process left that was killed while it wrote a file."""
    for partial in folder.glob(".*.partial"):
        partial.unlink(missing_ok=True)
