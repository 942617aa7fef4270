"""The files of one run: :class:`RunFolder`.

========================  ===========================================================
``config.json``           the settings
``versions.json``         of Python and of the packages
``metrics.jsonl``         one line per event along the run
``result.json``           what came out; the same for the same settings, byte for byte
``timing.json``           where the time went
``memory.pt``             what the memory holds at the end
``checkpoint.pt``         while the run is not over
``memory``                folder of the memory's last checkpoint, with engine 'ray'
========================  ===========================================================
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents.runs.files import replace_file
from agents.settings import Settings

__all__ = ["RunError", "RunFolder"]

_PACKAGES = ("torch", "torchvision", "torchrl", "tensordict", "gymnasium", "numpy")
#: Settings that may differ between a run and its continuation.
_FREE = ("checkpoint_every", "data_dir", "tensorboard")


class RunError(RuntimeError):
    """A run folder is not what it should be; the message says what to do."""


class RunFolder:
    """Reads and writes the files of a run.

    Args:
        path: the folder.

    Attributes:
        checkpoint: file of the last checkpoint.
        metrics: file of the events along the run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint.pt"
        self.metrics = self.path / "metrics.jsonl"

    @property
    def is_finished(self) -> bool:
        """Whether the run is over."""
        return (self.path / "result.json").exists()

    def check_new(self, *, resumable: bool = True) -> None:
        """Refuse to start a run where there is one.

        Args:
            resumable: whether such a run could be continued.

        Raises:
            RunError: if a run is there already.
        """
        if (self.path / "config.json").exists():
            raise RunError(
                f"{self.path} holds a run already: give "
                + ("--resume to continue it, or " if resumable else "")
                + "another folder (--out)"
            )

    def create(self, config: Settings) -> None:
        """Make the folder of a new run.

        Raises:
            RunError: if a run is there already.
        """
        self.check_new()
        self.path.mkdir(parents=True, exist_ok=True)
        self.write("config.json", config.as_dict())
        self.write("versions.json", _versions())

    def changed_versions(self) -> list[str]:
        """What has another version now than when the run was started.

        Returns:
            One phrase each, ``"torch was 2.13.0 and is 2.14.1"``.
        """
        if not (self.path / "versions.json").exists():
            return []  # killed while the folder was made
        saved = self.read("versions.json")
        return [
            f"{name} was {saved[name]} and is {now}"
            for name, now in _versions().items()
            if saved.get(name, now) != now
        ]

    def check(self, config: Settings) -> None:
        """Refuse to continue a run with other settings.

        A setting that did not exist when the run was started has its default.

        Raises:
            RunError: naming the setting.
        """
        if not (self.path / "config.json").exists():
            raise RunError(f"there is no run to resume in {self.path}")
        found = self.read("config.json")
        if not isinstance(found, dict):
            raise RunError(
                f"{self.path / 'config.json'} is damaged: expected settings by name"
            )
        saved = {**type(config)().as_dict(), **found}
        for name, value in config.as_dict().items():
            if name not in _FREE and saved[name] != value:
                raise RunError(
                    f"cannot resume a run with {name}={saved[name]!r} as one with "
                    f"{name}={value!r}"
                )

    def write(self, name: str, content: Any) -> None:
        """Write a JSON file, whole or not at all.

        Raises:
            RunError: if it cannot be written.
        """
        path = self.path / name
        try:
            with replace_file(path) as file:
                file.write((json.dumps(content, indent=1) + "\n").encode())
        except OSError as error:
            raise RunError(f"cannot write {path} ({error})") from error

    def read(self, name: str) -> Any:
        """Read a JSON file.

        Raises:
            RunError: if there is none or it is damaged.
        """
        path = self.path / name
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            raise RunError(f"{path} is missing: this is not a finished run") from None
        except OSError as error:
            raise RunError(f"cannot read {path} ({error})") from error
        except ValueError as error:
            raise RunError(f"{path} is damaged: {error}") from error

    def events(self, kind: str) -> Iterator[dict[str, Any]]:
        """The events of one kind, in order.

        Raises:
            RunError: if a line is damaged.
        """
        if not self.metrics.exists():
            return
        try:
            lines = self.metrics.read_text().splitlines()
            events = [json.loads(line) for line in lines]
        except ValueError as error:
            raise RunError(f"{self.metrics} is damaged: {error}") from error
        yield from (event for event in events if event["kind"] == kind)


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), **packages}
