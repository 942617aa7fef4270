"""A run's events for TensorBoard and the like: :class:`LogFeed`.

Events are passed on only when they are final, which is once a checkpoint or the result
has them: a run that was killed and resumed logs no step twice.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import uuid
from pathlib import Path
from typing import Any

from agents.runs.files import replace_file

__all__ = ["LOGGERS", "LogFeed"]

#: The loggers, and the package that each needs beside TorchRL.
LOGGERS: dict[str, str | None] = {
    "csv": None,
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
}
_PROJECT = "info-replay"


class LogFeed:
    r"""Passes the lines of an event file on to one of TorchRL's loggers, each once.

    How far it came is noted in the folder before the logger is told, so that a process
    that is killed in between leaves a gap rather than a step twice.

    Args:
        kind: one of :data:`LOGGERS`.
        folder: of the logger's files.
        name: of the run.

    Raises:
        ValueError: if the logger's package is not installed.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> events = folder / "events.jsonl"
        >>> _ = events.write_text('{"kind": "evaluation", "step": 3, "reward": 0.5}\n')
        >>> LogFeed("csv", folder / "logs", "mine").send(events)
        >>> print(*(folder / "logs").rglob("*.csv"))
        /.../logs/mine/scalars/evaluation/reward.csv
    """

    def __init__(self, kind: str, folder: Path, name: str) -> None:
        package = LOGGERS[kind]
        if package is not None and importlib.util.find_spec(package) is None:
            raise ValueError(
                f"logger {kind!r} needs the package {package}, which is not installed: "
                f"pip install {package}"
            )
        self._kind = kind
        self._folder = folder
        self._name = name
        self._note = folder / f"sent-{kind}.json"
        self._logger: Any = None

    def send(self, events: Path) -> None:
        """Pass on all events that were not passed on before.

        Args:
            events: a file with one JSON object per line: ``kind``, a moment, and
                numbers, lists of numbers or ``None``.

        Raises:
            Exception: whatever the logger raises; nothing is passed on again then.
        """
        if not events.exists():
            return
        noted: dict[str, Any] = {"bytes": 0, "id": uuid.uuid4().hex}
        if self._note.exists():
            noted = json.loads(self._note.read_text())
        with events.open("rb") as file:
            file.seek(noted["bytes"])
            new = file.read()
        if not new:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._logger is None:
            self._logger = self._make(noted)
        noted["bytes"] += len(new)
        with replace_file(self._note) as note:
            note.write(json.dumps(noted).encode())
        for line in new.splitlines():
            self._log(json.loads(line))
        flush = getattr(self._logger.experiment, "flush", None)
        if flush is not None:
            flush()

    def close(self) -> None:
        """Tell the logger that nothing more comes from this process."""
        if self._logger is None:
            return
        logger, self._logger = self._logger, None
        if self._kind == "mlflow":
            # A package that no extra brings; the logger has imported it.
            importlib.import_module("mlflow").end_run()
        elif self._kind == "wandb":
            logger.experiment.finish()
        elif self._kind == "tensorboard":
            logger.experiment.close()

    def _log(self, event: dict[str, Any]) -> None:
        """Log every number of an event; the second entry is its moment."""
        (_, kind), (_, step), *values = event.items()
        for name, value in values:
            parts = (
                {f"{name}/{place}": part for place, part in enumerate(value)}
                if isinstance(value, list)
                else {name: value}
            )
            for path, number in parts.items():
                if number is not None:
                    self._logger.log_scalar(f"{kind}/{path}", number, step=step)

    def _make(self, noted: dict[str, Any]) -> Any:
        """The logger, of the same run as before if there was one."""
        from torchrl.record.loggers import get_logger

        if self._kind == "mlflow":
            return self._make_mlflow(noted)
        again = {"id": noted["id"], "resume": "allow", "project": _PROJECT}
        return get_logger(self._kind, str(self._folder), self._name, wandb_kwargs=again)

    def _make_mlflow(self, noted: dict[str, Any]) -> Any:
        """Not by ``get_logger``, which asks for a store that MLflow has given up."""
        from torchrl.record.loggers.mlflow import MLFlowLogger

        store = f"sqlite:///{(self._folder / 'mlflow.db').absolute()}"
        uri = os.environ.get("MLFLOW_TRACKING_URI", store)
        before = os.environ.get("MLFLOW_RUN_ID")
        if "run" in noted:
            os.environ["MLFLOW_RUN_ID"] = noted["run"]  # MLflow goes on with that run
        try:
            logger = MLFlowLogger(self._name, uri)
            noted["run"] = logger.experiment.info.run_id
        finally:
            os.environ.pop("MLFLOW_RUN_ID", None)
            if before is not None:
                os.environ["MLFLOW_RUN_ID"] = before
        return logger
