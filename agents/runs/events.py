"""What is noted along a run: :class:`EventLog`."""

from __future__ import annotations

import json
from typing import Any

from agents.runs.files import append_lines
from agents.runs.folder import RunError, RunFolder

__all__ = ["EventLog"]


class EventLog:
    """Notes events: one JSON object per line in a run's folder, and TensorBoard files.

    Args:
        folder: of the run; ``None`` to keep nothing.
        tensorboard: whether to write TensorBoard files, too.

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

    def __init__(self, folder: RunFolder | None, *, tensorboard: bool = False) -> None:
        self.size = 0
        self._folder = folder
        self._lines: list[str] = []
        self._logger: Any = None
        if tensorboard and folder is not None:
            from torchrl.record.loggers.tensorboard import TensorboardLogger

            self._logger = TensorboardLogger("tensorboard", log_dir=str(folder.path))

    def note(self, kind: str, values: dict[str, Any], **moment: int) -> None:
        """Note an event; :meth:`write` brings it to disk.

        Args:
            kind: of the event.
            values: numbers, lists of numbers or ``None``.
            **moment: when it happened, one number by its name, such as ``step=3``.
        """
        self._lines.append(json.dumps({"kind": kind, **moment, **values}))
        if self._logger is None:
            return
        (step,) = moment.values()
        for name, value in values.items():
            parts = (
                {f"{name}/{place}": part for place, part in enumerate(value)}
                if isinstance(value, list)
                else {name: value}
            )
            for path, number in parts.items():
                if number is not None:
                    self._logger.log_scalar(f"{kind}/{path}", number, step=step)

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

    def rewind(self, size: int) -> None:
        """Forget what was written after an earlier moment.

        Args:
            size: bytes that were written at that moment.

        Raises:
            RunError: if the file is shorter than that.
        """
        if self._folder is None:
            return
        metrics = self._folder.metrics
        if size == 0:
            metrics.unlink(missing_ok=True)
        elif not metrics.exists() or metrics.stat().st_size < size:
            raise RunError(
                f"{metrics} is shorter than when the checkpoint was written: the run "
                "cannot be resumed"
            )
        else:
            with metrics.open("ab") as file:
                file.truncate(size)
        self.size = size
