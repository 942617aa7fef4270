"""Several runs or sweeps side by side, as text: :func:`compare`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.report.fragments import agreement_text
from agents.report.paper_numbers import differences_text
from agents.report.places import check_place, is_sweep
from agents.report.runs import (
    WRONG_VALUES,
    Run,
    finished_rows,
    identity,
    runs_of_rows,
    wrong_line,
)
from agents.report.tables import MEASURES, Cell, Table, make_table
from agents.runs.folder import RunError, RunFolder

__all__ = ["compare", "format_table"]

Rows = list[dict[str, Any]]


def compare(paths: Sequence[str | Path], measures: Iterable[str] = ("average",)) -> str:
    """Tables of what came out, in Markdown.

    Of a run that has one result in several places, it counts once; where the results
    differ, as those of two versions may, methods are named with their places.

    Args:
        paths: folders of finished runs and of sweeps, at least one.
        measures: names of :data:`~agents.report.tables.MEASURES`.

    Returns:
        One table per stream and measure: mean and standard error over seeds, the best
        of each column in bold, and behind a stroke the paper's number. Then a line each
        on what should be known: agreement with the paper, and versions that differ.

    Raises:
        RunError: if a path is neither a finished run nor a sweep with one.
    """
    runs = runs_of_rows(_told_apart({str(path): _rows_of(path) for path in paths}))
    tables = _tables(runs, measures)
    notes = [*_legend(tables), agreement_text(tables), _versions_text(runs)]
    parts = [*map(format_table, tables), "\n".join(filter(None, notes))]
    return "\n\n".join(filter(None, parts))


def _tables(runs: Sequence[Run], measures: Iterable[str]) -> list[Table]:
    streams = dict.fromkeys(run.stream for run in runs)
    names = [*measures]
    return [make_table(runs, stream, name) for stream in streams for name in names]


def _rows_of(path: str | Path) -> Rows:
    """What a path has, all of which can be used."""
    several = is_sweep(path)
    rows = finished_rows(path) if several else [_row_of_run(path)]
    try:
        _use(rows)
    except WRONG_VALUES as error:
        where = wrong_line(rows, _use) if several else ""
        raise RunError(f"the results in {path} are not those of runs{where}") from error
    return rows


def _use(rows: Rows) -> None:
    """Fails with rows that are not those of runs."""
    runs = runs_of_rows(rows)
    _tables(runs, MEASURES)
    _versions_text(runs)


def _row_of_run(path: str | Path) -> dict[str, Any]:
    folder = RunFolder(path)
    check_place(path)
    result = folder.read("result.json")
    if "policy" not in result or "stream" not in result:
        raise RunError(
            f"{path} cannot be compared: it is not a run of 'info-replay train'"
        )
    versions = {}
    if (folder.path / "versions.json").exists():
        versions = folder.read("versions.json")
        versions.pop("data", None)
    key = str(folder.path.absolute())
    return {
        "key": key,
        "method": result["policy"],
        "result": result,
        "versions": versions,
    }


def _told_apart(found: Mapping[str, Rows]) -> Rows:
    """All rows; methods with two results of one run are named with their places."""
    results: dict[str, set[str]] = defaultdict(set)
    methods: dict[str, str] = {}
    for rows in found.values():
        for run in runs_of_rows(rows):
            raw = str(run.row["method"])
            told = identity(run, raw)
            methods[told] = raw
            results[told].add(repr([run.value(measure) for measure in MEASURES]))
    twice = {methods[told] for told, each in results.items() if len(each) > 1}
    return [
        {**row, "key": f"{path}: {row['key']}", "method": f"{row['method']} ({path})"}
        if str(row["method"]) in twice
        else row
        for path, rows in found.items()
        for row in rows
    ]


# -- tables ---------------------------------------------------------------------------


def format_table(table: Table) -> str:
    """A table in Markdown, with its title before it; columns are aligned.

    Args:
        table: to write.
    """
    columns = [["method", *map(_plain, table.methods)]]
    for imbalance in table.imbalances:
        cells = [table.cells[method, imbalance] for method in table.methods]
        columns.append([f"r = {imbalance}", *(_format(each, table) for each in cells)])
    lines = [
        f"| {' | '.join(row)} |" for row in zip(*map(_padded, columns), strict=True)
    ]
    unit = " in per cent" if table.percent else ""
    title = f"{_plain(table.benchmark)}, {_plain(table.title).lower()}{unit}"
    return "\n".join([f"{title}{_of_seeds(table.usual_count)}:", "", *lines])


def _padded(column: list[str]) -> list[str]:
    """Words of the same length, with a stroke under the first; numbers are in line."""
    if any(word.startswith("**") for word in column):
        column = [word if word.startswith("**") else f"  {word}" for word in column]
    width = max(map(len, column))
    first, *others = (word.ljust(width) for word in column)
    return [first, "-" * width, *others]


def _of_seeds(count: int) -> str:
    if count < 2:
        return ", one seed" if count else ""
    return f", mean ± standard error of {count} seeds"


def _format(cell: Cell, table: Table) -> str:
    if cell.ours is None:
        return "diverged" if cell.diverged else "-"
    digits = 1 if table.percent else 4
    text = f"{cell.ours.mean:.{digits}f}"
    if cell.ours.error is not None:
        text += f" ± {cell.ours.error:.{digits}f}"
    if cell.best:
        text = f"**{text}**"
    remarks = []
    if cell.ours.seeds != table.usual_count:
        remarks.append(f"n={cell.ours.seeds}")
    if cell.diverged:
        remarks.append(f"{cell.diverged} diverged")
    if remarks:
        text += f" ({', '.join(remarks)})"
    if cell.paper is not None and cell.comparable:
        text += f" / {cell.paper.mean:.{digits}f} ± {cell.paper.error:.{digits}f}"
    if cell.difference is not None and abs(cell.difference) > 2:
        text += f" ({cell.difference:+.1f} se)"
    return text


def _plain(text: str) -> str:
    """A name in one line, without what a table or a terminal takes for its own."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(shown.split()).replace("|", "\\|")


# -- what should be known of them -----------------------------------------------------


def _legend(tables: Sequence[Table]) -> Iterator[str]:
    """Which numbers are the paper's, and why others are not there."""
    cells = [cell for table in tables for cell in table.cells.values() if cell.ours]
    known = [cell for cell in cells if cell.paper is not None]
    if any(cell.comparable for cell in known):
        yield (
            "After the stroke: the paper's number, and the difference in joint "
            "standard errors (se) where it is more than two."
        )
    if not all(cell.comparable for cell in known):
        fixed: dict[str, Any] = {}
        for table in tables:
            fixed |= table.differences
        yield (
            "The paper's numbers are left out where settings differ from the paper's "
            f"({differences_text(fixed)})."
        )


def _versions_text(runs: Sequence[Run]) -> str:
    """Which versions made the results, if there are several.

    Of a single run, the commit is not known.
    """
    counts: dict[str, Counter[str | None]] = defaultdict(Counter)
    for run in runs:
        counts["the code"][run.row.get("commit")] += 1
        for name, version in (run.row.get("versions") or {}).items():
            counts[name][version] += 1
    parts = []
    for name, found in counts.items():
        known = len(found.keys() - {None})
        if known > 1:
            told = ", ".join(
                f"{_plain(str(version or 'unknown'))} "
                f"({count} {'run' if count == 1 else 'runs'})"
                for version, count in found.items()
            )
            parts.append(f"of {known} versions of {_plain(name)}: {told}")
    return f"Results {'; '.join(parts)}." if parts else ""
