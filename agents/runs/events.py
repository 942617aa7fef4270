"""What is noted along a run: :class:`EventLog`."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from typing import Any

from agents.runs.files import append_lines, cut_file
from agents.runs.folder import RunError, RunFolder
from agents.runs.loggers import LogFeed

__all__ = ["EventLog"]


class EventLog:
    """Notes events: one JSON object per line in a run's folder, and in a logger.

    Args:
        folder: of the run; ``None`` to keep nothing.
        logger: which of :data:`~agents.runs.loggers.LOGGERS` is told, too.

    Raises:
        ValueError: if the logger's package is not installed.

    Attributes:
        size: bytes that were written so far.

    Example:
        >>> import tempfile
        >>> folder = RunFolder(tempfile.mkdtemp())
        >>> log = EventLog(folder)
        >>> log.note("evaluation", {"scores": [0.5, 0.7]}, step=3)
        >>> log.write()
        >>> list(folder.events("evaluation"))
        [{'kind': 'evaluation', 'step': 3, 'scores': [0.5, 0.7]}]
    """

    def __init__(self, folder: RunFolder | None, *, logger: str | None = None) -> None:
        self.size = 0
        self._folder = folder
        self._lines: list[str] = []
        self._feed = None
        if logger is not None and folder is not None:
            self._feed = LogFeed(logger, folder.path / "logs", folder.path.name)

    def note(self, kind: str, values: dict[str, Any], **moment: int) -> None:
        """Note an event; :meth:`write` brings it to disk.

        Args:
            kind: of the event.
            values: numbers, lists of numbers or ``None``.
            **moment: when it happened, one number by its name, such as ``step=3``.
        """
        self._lines.append(json.dumps({"kind": kind, **moment, **values}))

    def write(self) -> None:
        """Append to the file what was noted since the last time.

        Raises:
            RunError: if it cannot be written.
        """
        if self._folder is None:
            return
        try:
            self.size = append_lines(self._folder.metrics, self._lines)
        except OSError as error:
            kept = self._folder.checkpoint.exists()
            raise RunError(
                f"cannot write {self._folder.metrics} ({error})"
                + "; the last checkpoint is kept" * kept
            ) from error
        self._lines = []

    def send(self) -> None:
        """Tell the logger what was written; it cannot be taken back after that.

        Raises:
            RunError: if the logger cannot be told.
        """
        if self._feed is None or self._folder is None:
            return
        with _told_in_one_line():
            self._feed.send(self._folder.metrics)

    def close(self) -> None:
        """Tell the logger that the run is over, or goes on in another process.

        A logger that fails then is warned of: nothing of the run depends on it.
        """
        if self._feed is None:
            return
        try:
            with _told_in_one_line():
                self._feed.close()
        except RunError as error:
            warnings.warn(str(error), stacklevel=2)

    def rewind(self, size: int) -> None:
        """Forget what was written after an earlier moment.

        Args:
            size: bytes that were written at that moment.

        Raises:
            RunError: if the file is shorter than that, or cannot be cut; it is as it
                was then.
        """
        if self._folder is None:
            return
        metrics = self._folder.metrics
        there = metrics.stat().st_size if metrics.exists() else 0
        if there < size:
            raise RunError(
                f"{metrics} is shorter than when the checkpoint was written: the run "
                "cannot be resumed"
            )
        try:
            if size == 0:
                metrics.unlink(missing_ok=True)
            elif there > size:
                cut_file(metrics, size)
        except OSError as error:
            raise RunError(f"cannot write {metrics} ({error})") from error
        self.size = size


@contextlib.contextmanager
def _told_in_one_line() -> Iterator[None]:
    """Errors of a logger, which may be any of four packages, as one of ours."""
    try:
        yield
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise RunError(f"the logger failed: {text}") from error
