"""The table of a sweep, one JSON object per line: :func:`load_results`."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import zlib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.runs.files import append_lines, cut_file
from agents.runs.folder import RunError, package_versions

if TYPE_CHECKING:
    import pandas

__all__ = [
    "ResultsFile",
    "code_version",
    "code_versions_of",
    "load_results",
    "read_rows",
]

_NAME = "results.jsonl"


class ResultsFile:
    """The rows of a sweep's finished runs, each written at once.

    Args:
        folder: of the sweep.

    Attributes:
        path: the file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / _NAME

    def append(self, row: dict[str, Any]) -> None:
        """Add a row, whole or not at all.

        Raises:
            RunError: if it cannot be written.
        """
        try:
            append_lines(self.path, [json.dumps(row)])
        except OSError as error:
            raise RunError(f"cannot write {self.path} ({error})") from error

    def repair(self) -> list[dict[str, Any]]:
        """All rows; what a killed process left of one at the end is removed.

        Raises:
            RunError: if any other line is damaged; nothing is changed then.
        """
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        rows, whole = _parse(self.path, content)
        if whole < len(content):
            cut_file(self.path, whole)
        return rows


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a sweep.

    Args:
        path: the folder of the sweep, or its file of results, which may be compressed
            (``.gz``).

    Raises:
        RunError: if there is no such file, or a line of it is damaged.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        file = file / _NAME
    if not file.is_file():
        raise RunError(f"{path} is not the folder of a sweep: it has no {_NAME}")
    try:
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise RunError(f"cannot read {file} ({error})") from error
    rows, whole = _parse(file, content)
    if whole < len(content):
        raise RunError(
            f"{file} is cut short in line {len(rows) + 1}: run its sweep again, which "
            "goes on"
        )
    return rows


def _parse(path: Path, content: bytes) -> tuple[list[dict[str, Any]], int]:
    """All whole rows, and where they end: the last one may have been cut."""
    whole = content.rfind(b"\n") + 1
    rows = []
    for number, line in enumerate(content[:whole].splitlines(), 1):
        try:
            row = json.loads(line)
            if not isinstance(row["result"], dict) or not isinstance(row["key"], str):
                raise TypeError
        except (ValueError, TypeError, KeyError, RecursionError):
            raise _damaged(path, number) from None
        rows.append(row)
    # A machine that loses power may leave zeros.
    rest = content[whole:].rstrip(b"\0")
    if rest and not rest.startswith(b"{"):
        raise _damaged(path, len(rows) + 1)
    return rows, whole


def _damaged(path: Path, line: int) -> RunError:
    return RunError(f"{path} is damaged: line {line} is not a result of a run")


def load_results(path: str | Path) -> pandas.DataFrame:
    """The results of a sweep as a data frame, one row per run.

    Args:
        path: the folder of the sweep, or its file of results.

    Returns:
        Columns: ``method``, every setting, ``average``, ``backward_transfer``,
        ``forward_transfer``, ``prequential``, ``matrix`` and ``evaluations`` (lists),
        ``memory_...``, ``seconds`` and ``seconds_...``, versions of packages, and
        ``commit``.

    Raises:
        RunError: if there is no such sweep, or its file is damaged.
    """
    import pandas

    return pandas.DataFrame([_flat(row) for row in read_rows(path)])


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    result = dict(row["result"])
    memory = result.pop("memory", None) or {}
    result.pop("metrics", None)
    seconds = row.get("seconds", {})
    return {
        "method": row["method"],
        **result,
        "evaluations": row.get("evaluations", []),
        **{f"memory_{name}": value for name, value in memory.items()},
        "seconds": math.fsum(seconds.values()),
        **{f"seconds_{name}": value for name, value in seconds.items()},
        **{f"{name}_version": each for name, each in row.get("versions", {}).items()},
        "commit": row.get("commit"),
        "key": row["key"],
    }


def code_version() -> dict[str, Any]:
    """Versions of packages, and the commit of this code if git knows it."""
    versions = {"info-replay": version("info-replay"), **package_versions()}
    return {"versions": versions, "commit": _commit()}


def _commit() -> str | None:
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        ).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        packages = ["info_replay", "continual_envs", "agents"]
        changed = git(
            "status", "--porcelain", "--", *(f":/{each}" for each in packages)
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-changed" if changed else commit


def code_versions_of(rows: Iterable[dict[str, Any]]) -> set[tuple[str | None, str]]:
    """Commits and versions that made rows."""
    return {
        (row.get("commit"), json.dumps(row.get("versions", {}), sort_keys=True))
        for row in rows
    }
