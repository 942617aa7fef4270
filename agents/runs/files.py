"""The one way in which a run writes its files: whole or not at all.

No name of a temporary file can be guessed, and none of these functions writes through a
symbolic link that somebody has put into the folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

__all__ = ["append_lines", "cut_file", "remove_partial_files", "replace_file"]

_PARTIAL = re.compile(r"\..+-[0-9a-f]{32}\.partial")
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)  # Windows has no such flag


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a new file; the old one stays until the new one is complete and on disk.

    If the old one is a symbolic link, the link is replaced, not what it points to.

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
    partial = path.with_name(f".{path.name}-{secrets.token_hex(16)}.partial")
    # "x": a file or a link that is there already is refused, and stays.
    file = partial.open("xb")
    try:
        with file:
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
        OSError: if they cannot be written, or the file is a symbolic link.
    """
    content = memoryview("".join(f"{line}\n" for line in lines).encode())
    # Without a buffer: one that could not be written would be written again on closing.
    with open(path, "ab", buffering=0, opener=_open_itself) as file:
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


def cut_file(path: Path, size: int) -> None:
    """Forget the end of a file.

    Args:
        path: the file.
        size: bytes to keep, at most as many as there are.

    Raises:
        OSError: if it cannot be cut, or is a symbolic link.
    """
    with open(path, "r+b", opener=_open_itself) as file:
        file.truncate(size)


def remove_partial_files(folder: Path) -> None:
    """Remove what a process left that was killed while it wrote a file.

    Only files with the names that :func:`replace_file` gives are removed.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            ours = _PARTIAL.fullmatch(entry.name) is not None
            if ours and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)


def _open_itself(path: str, flags: int) -> int:
    """Open a file, but not what a link of its name points to."""
    return os.open(path, flags | _NO_LINKS, 0o666)
