"""The files of one run: :class:`RunFolder`.

========================  ===========================================================
``config.json``           the settings
``versions.json``         of Python, of the packages, and a fingerprint of the data
``metrics.jsonl``         one line per event along the run
``result.json``           what came out; the same for the same settings, byte for byte
``timing.json``           where the time went
``network.pt``            the weights at the end
``memory.pt``             the whole memory at the end
``memories``              items in memory at each evaluation (``--snapshots``)
``checkpoint.pt``         while the run is not over
``logs``                  files of a logger (TensorBoard, say)
========================  ===========================================================
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import platform
import shlex
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import filelock

from agents.runs.files import replace_file
from agents.settings import Settings

__all__ = ["RunError", "RunFolder", "default_folder", "package_versions"]

AnySettings = TypeVar("AnySettings", bound=Settings)

_PACKAGES = ("torch", "torchvision", "torchrl", "tensordict", "gymnasium", "numpy")
# What a new run would continue or overwrite.
_FILES = (
    "versions.json",
    "metrics.jsonl",
    "timing.json",
    "checkpoint.pt",
    "result.json",
    "network.pt",
    "memory.pt",
    "memory",
    "memories",
    "logs",
)
# A setting that only the runs of one command have.
_SETTINGS_OF = {"updates_per_batch": "dqn", "epochs": "train"}
_LONGEST_NAME = 120  # bytes; most file systems allow 255


class RunError(RuntimeError):
    """A run folder is not what it should be; the message says what to do."""


class RunFolder:
    """Reads and writes the files of a run.

    Args:
        path: the folder; ``~`` is the user's home folder.

    Raises:
        RunError: if it is in the home folder of nobody.

    Attributes:
        checkpoint: file of the last checkpoint.
        metrics: file of the events along the run.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            self.path = Path(path).expanduser()
        except RuntimeError:  # pathlib's words do not name the path
            raise RunError(
                f"{path} is in the home folder of a user who does not exist"
            ) from None
        self.checkpoint = self.path / "checkpoint.pt"
        self.metrics = self.path / "metrics.jsonl"
        # The system releases it when the process ends, however that happens.
        self._lock = filelock.FileLock(self.path / ".lock", 0, thread_local=False)

    @property
    def is_finished(self) -> bool:
        """Whether the run is over."""
        return (self.path / "result.json").exists()

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint, or a link of its name that leads nowhere."""
        return os.path.lexists(self.checkpoint)

    def how_to_resume(self, command: str) -> str:
        """What to type to go on with the run.

        Args:
            command: of ``info-replay``.

        Example:
            >>> RunFolder("my runs/1").how_to_resume("train")
            "info-replay train --resume 'my runs/1'"
        """
        return f"info-replay {command} --resume {shlex.quote(str(self.path))}"

    def check_new(self) -> None:
        """Refuse to start a run where there is one, or a part of one.

        Raises:
            RunError: if a run is there already, or a file of one.
        """
        if os.path.lexists(self.path / "config.json"):
            raise RunError(
                f"{self.path} holds a run already: give --resume to continue it, or "
                "another folder (--out)"
            )
        for name in _FILES:
            if os.path.lexists(self.path / name):
                raise RunError(
                    f"{self.path / name} is of another run: give another folder "
                    "(--out), or delete it"
                )

    def acquire(self) -> None:
        """Keep other processes from running in this folder, until :meth:`release`.

        Raises:
            RunError: if another one does.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise RunError(f"{self.path} is a file: a run needs a folder") from None
        try:
            if not self._lock.is_locked:
                self._lock.acquire()
        except (filelock.Timeout, RuntimeError):
            raise RunError(
                f"another process runs in {self.path}: wait for it, or give another "
                "folder (--out)"
            ) from None

    def release(self) -> None:
        """Let others run in this folder."""
        self._lock.release()

    def create(self, config: Settings, *, data: str | None = None) -> None:
        """Make and acquire the folder of a new run.

        Args:
            config: its settings.
            data: fingerprint of what it learns from.

        Raises:
            RunError: if a run is there already.
        """
        self.check_new()
        self.acquire()
        try:
            self.check_new()  # somebody may have been faster
            self.write("config.json", config.as_dict())
            about = {} if data is None else {"data": data}
            self.write("versions.json", {**package_versions(), **about})
        except BaseException:
            self.release()
            raise

    def check_data(self, fingerprint: str) -> None:
        """Refuse to continue a run with other data.

        Args:
            fingerprint: of the data.

        Raises:
            RunError: if that of the run's data is another one.
        """
        if not (self.path / "versions.json").exists():
            return  # killed while the folder was made
        if self.read("versions.json").get("data", fingerprint) != fingerprint:
            raise RunError(
                f"the data is not that of the run in {self.path}: give it the same, or "
                "start another run"
            )

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
            for name, now in package_versions().items()
            if saved.get(name, now) != now
        ]

    def config(
        self, kind: type[AnySettings], found: dict[str, Any] | None = None
    ) -> AnySettings:
        """The settings of the run that is here.

        A setting that did not exist when the run was started has its default.

        Args:
            kind: of settings.
            found: in place of those in the file.

        Raises:
            RunError: if there is no run, or one of another kind.
        """
        path = self.path / "config.json"
        if not path.exists():
            raise RunError(f"there is no run to resume in {self.path}")
        found = self.read("config.json") if found is None else found
        known = {field.name for field in dataclasses.fields(kind)}
        for name in found.keys() & _SETTINGS_OF.keys() - known:
            raise RunError(
                f"{self.path} holds a run of info-replay {_SETTINGS_OF[name]}"
            )
        try:
            return kind(**found)
        except (TypeError, ValueError) as error:
            raise RunError(f"{path} cannot be used here: {error}") from error

    def check(self, config: Settings) -> None:
        """Refuse to continue a run with other settings.

        Raises:
            RunError: naming the setting.
        """
        saved = self.config(type(config)).as_dict()
        for name, value in config.what_matters().items():
            if saved[name] != value:
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

    def read(self, name: str, advice: str = "") -> dict[str, Any]:
        """Read a JSON file.

        Args:
            name: of the file.
            advice: what to do if it is missing or damaged.

        Raises:
            RunError: if there is none or it is damaged.
        """
        path = self.path / name
        then = f". {advice}" if advice else ""
        try:
            return _as_object(path.read_text())
        except FileNotFoundError:
            raise RunError(
                f"{path} is missing: this is not a finished run{then}"
            ) from None
        except OSError as error:
            raise RunError(f"cannot read {path} ({error})") from error
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path} is damaged: {error}{then}") from error

    @contextlib.contextmanager
    def expecting_a_run(self) -> Iterator[None]:
        """Where values of the files are used, which may be of any type.

        Raises:
            RunError: in place of the error that a value of a wrong type leads to.
        """
        try:
            yield
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            text = " ".join(str(error).split())
            raise RunError(
                f"the files in {self.path} are not those of a run: {text}"
            ) from error

    def events(self, kind: str, size: int | None = None) -> Iterator[dict[str, Any]]:
        """The events of one kind, in order.

        Args:
            kind: of the events.
            size: bytes of the file to read; ``None`` for all.

        Raises:
            RunError: if a line is damaged.
        """
        if not self.metrics.exists():
            return
        try:
            lines = self.metrics.read_bytes()[:size].decode().splitlines()
            events = [_as_object(line) for line in lines]
        except OSError as error:
            raise RunError(f"cannot read {self.metrics} ({error})") from error
        except (ValueError, RecursionError) as error:
            raise RunError(f"{self.metrics} is damaged: {error}") from error
        yield from (event for event in events if event.get("kind") == kind)


def default_folder(
    config: Settings, usual: Settings, named: dict[str, str], parent: str = "runs"
) -> Path:
    """A folder named after the settings of a run, another one for other settings.

    Args:
        config: the settings.
        usual: those that need no mention.
        named: the beginning of the name: settings and how they appear in it, if at all.
        parent: of the folder.

    Returns:
        The folder; a name that would be too long ends in a hash of the settings.

    Example:
        >>> from agents.q_learning.config import DQNConfig
        >>> config = DQNConfig(policy="rs", gamma=0.5, double=True)
        >>> default_folder(config, DQNConfig(), {"policy": "rs"}).as_posix()
        'runs/rs-double-gamma0.5'
    """
    common = usual.as_dict()
    others = {
        name: value
        for name, value in config.what_matters().items()
        if name not in named and value != common[name]
    }
    words = [_word(name, value) for name, value in others.items()]
    first = [word for word in named.values() if word]
    name = "-".join([*first, *words])
    if len(os.fsencode(name)) > _LONGEST_NAME:
        told = json.dumps([named, others])
        digest = hashlib.sha256(told.encode()).hexdigest()[:8]
        start = os.fsencode("-".join(first))[:_LONGEST_NAME]
        name = f"{start.decode(errors='ignore')}-{digest}"
    return Path(parent) / "".join("-" if each in "/\\:<>" else each for each in name)


def _word(name: str, value: Any) -> str:
    """A setting in the name of a folder."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return name if value else f"no-{name}"
    return f"{name}-{value}" if isinstance(value, str) else f"{name}{value}"


def _as_object(text: str) -> dict[str, Any]:
    """The names and values of a JSON object; refuses any other JSON value."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"expected names and values, got {text.strip():.40}")
    return found


@functools.cache
def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # not every run needs all of them
            continue
    return found
