"""The page of a sweep: :func:`write_report`."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from agents.report.command import train_command
from agents.report.fragments import runs_html, settings_html, table_html, times_html
from agents.report.header import header_html
from agents.report.images import memory_images
from agents.report.payload import make_payload, to_json
from agents.report.places import check_place, is_sweep
from agents.report.runs import (
    WRONG_VALUES,
    Run,
    finished_rows,
    runs_of_rows,
    wrong_line,
)
from agents.report.tables import MEASURES, Table, make_table
from agents.runs.files import replace_file
from agents.runs.folder import RunError

__all__ = ["make_page", "write_report"]

_SCRIPTS = ("chart.js", "memory.js", "page.js")


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the page of a sweep.

    Args:
        folder: of the sweep, or its file of results.
        out: the file to write, by default ``report.html`` in the folder.

    Returns:
        The file.

    Raises:
        RunError: if there is no such sweep, it is damaged or has no finished runs, or
            the file cannot be written.
    """
    source = Path(folder).expanduser()
    path = (source if source.is_dir() else source.parent) / "report.html"
    if out is not None:
        path = Path(out).expanduser()
    content = make_page(source)
    if path.is_dir():
        raise RunError(f"cannot write {path}: it is a folder; give a file (--out)")
    try:
        with replace_file(path) as file:
            file.write(content.encode())
    except OSError as error:
        reason = error.strerror or error
        raise RunError(
            f"cannot write {path} ({reason}): give another file (--out)"
        ) from error
    return path


def make_page(folder: str | Path) -> str:
    """The page of a sweep as HTML, with everything that it needs.

    Args:
        folder: of the sweep, or its file of results.

    Raises:
        RunError: if there is no such sweep, it is damaged or has no finished runs.
    """
    path = Path(folder).expanduser().absolute()
    if not path.is_file() and not is_sweep(path):
        check_place(path)
    rows = finished_rows(path)

    def use(some: list[dict[str, Any]]) -> None:
        _make_parts(path, runs_of_rows(some), {})

    try:
        runs = runs_of_rows(rows)
        parts = _make_parts(path, runs, memory_images(_place(path), runs))
    except WRONG_VALUES as error:  # rows of JSON, but with values of other types
        where = wrong_line(rows, use)
        raise RunError(f"the rows of {path} are not those of a sweep{where}") from error
    # In one pass: what is put in is not looked at again.
    return re.sub(r"\[\[(\w+)\]\]", lambda found: parts[found[1]], _asset("page.html"))


def _place(path: Path) -> Path:
    """The folder of a sweep that may be given as its file of results."""
    return path if path.is_dir() else path.parent


def _make_parts(
    path: Path, runs: Sequence[Run], images: Mapping[str, Any]
) -> dict[str, str]:
    """What the page is made of, by the name of its place in it."""
    place = _place(path)
    streams = list(dict.fromkeys(run.stream for run in runs))
    tables = [
        make_table(runs, stream, measure) for measure in MEASURES for stream in streams
    ]
    commands = {run.key: train_command(run.settings) for run in runs}
    payload = make_payload(runs, tables, images)
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "title": escape(f"{place.name}: sweep report"),
        "name": escape(place.name),
        "policy": f"'sha256-{digest}'",
        "style": _asset("style.css"),
        "header": header_html(path, runs, tables),
        "tables": _tables_html(tables),
        "times": _by_stream({s: times_html(runs, s) for s in streams}),
        "settings": _by_stream({s: settings_html(runs, s) for s in streams}),
        "runs": _by_stream({s: runs_html(runs, s, commands) for s in streams}),
        "data": to_json(payload),
        "script": script,
    }


def _asset(name: str) -> str:
    return (resources.files("agents.report") / "assets" / name).read_text("utf-8")


def _tables_html(tables: list[Table]) -> str:
    """The tables of each measure; the script shows one measure at a time."""
    found = []
    for measure, title in MEASURES.items():
        shown = [t for t in tables if t.measure == measure and not t.is_empty]
        if measure == "average" and not all(table.percent for table in shown):
            title = "Score"  # of several kinds
        if shown:
            body = _by_stream({_heading(table): table_html(table) for table in shown})
            found.append(
                f'<div class="measure" data-measure="{measure}" '
                f'data-title="{escape(title)}"><h3 class="alone">{escape(title)}</h3>'
                f"{body}</div>"
            )
    return "\n".join(found)


def _heading(table: Table) -> str:
    if table.percent and table.title in MEASURES.values():
        return table.stream
    return f"{table.benchmark}: {table.title.lower()}"


def _by_stream(parts: dict[str, str]) -> str:
    return "\n".join(
        f'<section class="card"><h3>{escape(stream)}</h3>{part}</section>'
        for stream, part in parts.items()
    )
