"""What was run, for the top of a page: :func:`header_html`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any

from agents.report.fragments import agreement_text
from agents.report.runs import Run
from agents.report.tables import MEASURES, Table, agreement

__all__ = ["format_numbers", "header_html"]

_LONG = 24  # characters; longer facts have a line of their own on a phone


def header_html(folder: Path, runs: Sequence[Run], tables: Sequence[Table]) -> str:
    """What was run, by which code, and what should be known about it.

    Args:
        folder: of the sweep.
        runs: of the sweep.
        tables: of all measures and streams.
    """
    commits = Counter(str(run.row.get("commit") or "unknown") for run in runs)
    facts = {
        "Streams": ", ".join(dict.fromkeys(run.stream for run in runs)),
        "Runs": str(len(runs)),
        "Methods": " \N{MIDDLE DOT} ".join(dict.fromkeys(run.method for run in runs)),
        "Imbalances": format_numbers(run.imbalance for run in runs),
        "Seeds": format_numbers(run.seed for run in runs),
        "Commit": _counted(commits),
        "Versions": _versions(runs),
        "Results from": _written(folder),
    }
    items = "".join(
        f"<div{' class=long' if len(text) > _LONG else ''}><dt>{name}</dt>"
        f"<dd>{escape(text)}</dd></div>"
        for name, text in facts.items()
        if text
    )
    warnings = "".join(
        f'<p class="warning">{escape(text)}</p>'
        for text in _warnings(folder, runs, commits)
    )
    summary = _agreement(tables)
    return f'<dl class="facts">{items}</dl>{warnings}{summary}'


def _agreement(tables: Sequence[Table]) -> str:
    """How many cells agree with the paper, of all and of each measure."""
    text = agreement_text(tables)
    if not text:
        return ""
    parts = []
    for measure, title in MEASURES.items():
        found = agreement(table for table in tables if table.measure == measure)
        if found.compared:
            parts.append(f"{title.lower()} {found.close} of {found.compared}")
    return (
        f'<p class="summary"><strong>{escape(text)}</strong> '
        f"{escape(', '.join(parts).capitalize())}.</p>"
    )


def format_numbers(numbers: Iterable[int]) -> str:
    """Whole numbers in order, neighbors as a range.

    Example:
        >>> format_numbers([3, 0, 1, 2, 10]), format_numbers([1, 3])
        ('0\u20133, 10', '1, 3')
    """
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = []
    for first, last in ranges:
        joint = "\N{EN DASH}" if last > first + 1 else ", "
        words.append(str(first) if first == last else f"{first}{joint}{last}")
    return ", ".join(words)


def _counted(counts: Counter[str]) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(
        f"{name} ({count} {'run' if count == 1 else 'runs'})"
        for name, count in counts.items()
    )


def _versions(runs: Sequence[Run]) -> str:
    values: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, version in (run.row.get("versions") or {}).items():
            values.setdefault(str(name), {})[str(version)] = None
    return ", ".join(f"{name} {' and '.join(found)}" for name, found in values.items())


def _written(folder: Path) -> str:
    file = folder / "results.jsonl" if folder.is_dir() else folder
    when = datetime.fromtimestamp(file.stat().st_mtime, timezone.utc)
    return when.strftime("%Y-%m-%d %H:%M UTC")


def _warnings(folder: Path, runs: Sequence[Run], commits: Counter[str]) -> list[str]:
    found = []
    if len(commits) > 1:
        found.append(
            f"These results were made by {len(commits)} versions of the code: "
            f"{_counted(commits)}. Differences between methods may be differences "
            "between versions."
        )
    mixed = _mixed_packages(runs)
    if mixed:
        found.append(f"More than one version was used of {', '.join(mixed)}.")
    if any(re.search("-changed$", commit) for commit in commits):
        found.append(
            "The code had changes that were not committed: the commit alone does not "
            "give these results again."
        )
    if diverged := sum(run.diverged for run in runs):
        were = "run diverged and is" if diverged == 1 else "runs diverged and are"
        found.append(f"{diverged} {were} not in the means.")
    if failed := len([*folder.glob("failed/*.log")]):
        runs_failed = "run" if failed == 1 else "runs"
        found.append(f"{failed} {runs_failed} failed: see {folder / 'failed'}.")
    return found


def _mixed_packages(runs: Sequence[Run]) -> list[str]:
    values: dict[str, set[Any]] = {}
    for run in runs:
        for name, version in (run.row.get("versions") or {}).items():
            values.setdefault(str(name), set()).add(str(version))
    return [name for name, found in values.items() if len(found) > 1]
