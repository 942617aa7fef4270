"""The files of a tuning: :func:`load_tuned`, :class:`TuningFolder`.

==================  ==================================================================
``tuning.json``     seeds, fixed settings and grids, to notice another tuning
``tuned.json``      what was chosen, and why
``grid``            the sweep of the runs on validation data
``test``            the sweep of the runs with the chosen settings, if there were any
``optuna.journal``  the studies of Optuna, if it was used
==================  ==================================================================
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock

from agents.runs.files import replace_file
from agents.runs.folder import RunError
from agents.supervised.config import ExperimentConfig
from agents.sweeps.tuning_cases import Case
from agents.sweeps.values import check_setting

__all__ = ["TuningFolder", "is_in_tuning", "load_tuned"]

_TUNED, _TUNING = "tuned.json", "tuning.json"
_COMMAND = "'info-replay tune'"
# A tuned setting is one of the others.
_OF_A_RUN = ("env", "data", "policy", "imbalance", "seed", "validation")

Key = tuple[str, str, int]


def is_in_tuning(path: str | Path) -> bool:
    """Whether a folder is directly in that of a tuning.

    Args:
        path: the folder, which need not be there.
    """
    return (Path(path).expanduser().resolve().parent / _TUNING).exists()


def load_tuned(path: str | Path) -> dict[Key, dict[str, Any]]:
    """Settings that were tuned, for :func:`~agents.sweeps.make_jobs`.

    Args:
        path: ``tuned.json`` of a tuning, or the folder of the tuning.

    Returns:
        Settings by stream, policy and imbalance: those that were chosen, and those that
        the tuning had fixed.

    Raises:
        RunError: if there is no such file, or it is damaged.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        file = file / _TUNED
    tuned = {}
    for key, entry in _read_entries(file).items():
        tuned[key] = {**entry["fixed"], **entry["settings"]}
    return tuned


def _read_entries(file: Path) -> dict[Key, dict[str, Any]]:
    """The entries of a file of tuned settings, checked."""
    expected = f"a tuned.json of {_COMMAND}"
    try:
        found = _read_json(file, f"give {expected}")
    except _DamagedFile:
        raise RunError(f"{file} is not {expected}, or is damaged") from None
    entries = found.get("tuned")
    if not isinstance(entries, list) or not entries:
        raise RunError(f"{file} is not {expected}: it has no list of tuned settings")
    checked: dict[Key, dict[str, Any]] = {}
    for number, entry in enumerate(entries, 1):
        try:
            key = _check_entry(entry)
        except (ValueError, TypeError) as error:
            raise RunError(f"{file} is damaged: entry {number}: {error}") from None
        if key in checked:
            raise RunError(f"{file} is damaged: entry {number} is there twice")
        checked[key] = entry
    return checked


def _check_entry(entry: Any) -> Key:
    """The case of an entry.

    Raises:
        ValueError: if it is not an entry, or its settings cannot be run.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"expected names and values, got {entry!r:.60}")
    for name in ("stream", "policy", "imbalance", "fixed", "settings"):
        if name not in entry:
            raise ValueError(f"it has no {name!r}")
    for name in ("fixed", "settings"):
        if not isinstance(entry[name], dict):
            raise ValueError(f"{name} must be values by setting, got {entry[name]!r}")
    if not isinstance(entry["stream"], str) or not entry["settings"]:
        raise ValueError("it must have a stream and settings")
    settings = {**entry["fixed"], **entry["settings"]}
    for name in settings:
        check_setting(name)
        if name in _OF_A_RUN:
            raise ValueError(f"{name} is not a setting to tune")
    policy, imbalance = entry["policy"], entry["imbalance"]
    ExperimentConfig(policy=policy, imbalance=imbalance, **settings)
    return entry["stream"], policy, imbalance


class _DamagedFile(RunError):
    """A file whose content is not what it should be."""


def _read_json(file: Path, advice: str) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        raise RunError(f"there is no file {file}: {advice}") from None
    except OSError as error:
        raise RunError(f"cannot read {file} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise _DamagedFile(f"{file} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise _DamagedFile(f"{file} is damaged: expected names and values")
    return found


class TuningFolder:
    """The folder of a tuning.

    Args:
        path: the folder.

    Attributes:
        grid: folder of the runs on validation data.
        test: folder of the runs with the chosen settings.
        tuned: file of the chosen settings.
        journal: file of Optuna's studies.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()
        self.grid = self.path / "grid"
        self.test = self.path / "test"
        self.tuned = self.path / _TUNED
        self.journal = self.path / "optuna.journal"

    @contextlib.contextmanager
    def opened(self, cases: Sequence[Case]) -> Iterator[None]:
        """Keep other tunings out while this one is at work.

        Args:
            cases: of this tuning.

        Raises:
            RunError: if the folder is not that of a tuning or of another one, its files
                are damaged, or another process is at work there; nothing is changed
                then.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make {self.path} ({error.strerror})") from error
        try:
            with filelock.FileLock(self.path / ".lock", 0, thread_local=False):
                merged = self._checked(cases)
                self.entries()  # raises now, not after hours of runs
                self._write(self.path / _TUNING, merged)
                yield
        except filelock.Timeout:
            raise RunError(
                f"another tuning is at work in {self.path}: wait for it, or give "
                "another folder (--out)"
            ) from None

    def entries(self) -> dict[Key, dict[str, Any]]:
        """What was chosen so far.

        Raises:
            RunError: if the file is damaged.
        """
        if not self.tuned.exists():
            return {}
        try:
            return _read_entries(self.tuned)
        except RunError as error:
            raise RunError(
                f"{error}; delete it to have it made again from the runs, which are "
                "all there"
            ) from None

    def add_entries(self, entries: Iterable[Mapping[str, Any]], command: str) -> None:
        """Store choices, in place of earlier ones for the same cases.

        Args:
            entries: the choices.
            command: that led to them.
        """
        found = self.entries()
        for entry in entries:
            key = entry["stream"], entry["policy"], entry["imbalance"]
            found[key] = {**entry, "command": command}
        ordered = [found[key] for key in sorted(found)]
        self._write(self.tuned, {"tuned": ordered})

    def _checked(self, cases: Sequence[Case]) -> dict[str, Any]:
        """The description of all tuning here; refuses one that does not fit."""
        now = _describe(cases)
        file = self.path / _TUNING
        if not file.exists():
            # Temporary files of a killed process begin with a dot.
            names = {each.name for each in self.path.iterdir()}
            if strangers := {name for name in names if not name.startswith(".")}:
                raise RunError(
                    f"{self.path} is not the folder of a tuning: it has "
                    f"{min(strangers)}; give another one (--out)"
                )
            return now
        before = _read_json(file, "give another folder (--out)")
        try:
            old = {**before["cases"]}
            for what in ("seeds", "fixed"):
                self._compare(what, before[what], now[what])
            for name, case in now["cases"].items():
                for what in ("source", "grid"):
                    known = old.get(name, case)[what]
                    self._compare(f"{what} of {name}", known, case[what])
        except (KeyError, TypeError) as error:
            raise RunError(f"{file} is damaged ({error}): give another --out") from None
        return {**now, "cases": {**old, **now["cases"]}}

    def _compare(self, what: str, before: Any, now: Any) -> None:
        if before != now:
            raise RunError(
                f"{self.path} holds another tuning: {what} was {_short(before)}, and "
                f"is now {_short(now)}; give another folder (--out)"
            )

    def _write(self, path: Path, content: Any) -> None:
        try:
            with replace_file(path) as file:
                file.write((json.dumps(content, indent=1) + "\n").encode())
        except OSError as error:
            raise RunError(f"cannot write {path} ({error})") from error


def _describe(cases: Sequence[Case]) -> dict[str, Any]:
    """What makes a tuning another one, as JSON has it."""
    matters = ExperimentConfig().what_matters()
    fixed = {name: value for name, value in cases[0].fixed.items() if name in matters}
    described = {
        f"{case.stream} {case.policy}": {"source": case.source, "grid": case.grid}
        for case in cases
    }
    told = {"seeds": cases[0].seeds, "fixed": fixed, "cases": described}
    found: dict[str, Any] = json.loads(json.dumps(told))
    return found


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
