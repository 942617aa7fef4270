"""Parts of the page that need no script: :func:`table_html` and others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from agents.report.paper_numbers import TABLES, differences_text
from agents.report.runs import Run
from agents.report.tables import Cell, Table, agreement

__all__ = [
    "agreement_text",
    "number_text",
    "runs_html",
    "settings_html",
    "table_html",
    "times_html",
]

_MINUS = "\N{MINUS SIGN}"
_PARTS = ("learning", "memory", "evaluation")


def number_text(value: float, digits: int) -> str:
    """A number with a minus sign as long as a digit, never ``-0.00``.

    Example:
        >>> number_text(-0.0001, 2), number_text(3.14159, 2)
        ('0.00', '3.14')
    """
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", _MINUS)


def agreement_text(tables: Sequence[Table]) -> str:
    """How many cells agree with the paper's, as a sentence; empty if none compare."""
    found = agreement(tables)
    if not found.compared:
        return ""
    cells = "cell agrees" if found.compared == 1 else "cells agree"
    return (
        f"{found.close} of {found.compared} {cells} with the paper within two joint "
        "standard errors."
    )


def table_html(table: Table) -> str:
    """A table of means, for one measure on one stream."""
    heads = "".join(f"<th scope=col>r = {r}</th>" for r in table.imbalances)
    lines = [
        f'<div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(table.title)}, {escape(table.stream)}">',
        '<table class="numbers"><thead>',
        f"<tr><th scope=col>Method</th>{heads}</tr></thead><tbody>",
    ]
    for method in table.methods:
        cells = "".join(
            _cell_html(table.cells[method, r], table) for r in table.imbalances
        )
        lines.append(f"<tr><th scope=row>{escape(method)}</th>{cells}</tr>")
    lines.append("</tbody></table></div>")
    lines.append(f'<p class="note">{_note(table)}</p>')
    return "\n".join(lines)


def _cell_html(cell: Cell, table: Table) -> str:
    digits = 2 if table.percent else 4
    parts = []
    if cell.ours is None:
        parts.append('<span class="ours">\N{EN DASH}</span>')
    else:
        text = number_text(cell.ours.mean, digits)
        if cell.ours.error is not None:
            text += f" \N{PLUS-MINUS SIGN} {number_text(cell.ours.error, digits)}"
        if cell.best:
            text = f"<strong>{text}</strong>"
        mark = (
            '<span class="close" title="within one joint standard error of the best">'
        )
        mark += "\N{ALMOST EQUAL TO}</span>"
        parts.append(f'<span class="ours">{text}{mark if cell.close else ""}</span>')
        if cell.ours.seeds != table.usual_count:
            parts.append(f'<span class="few">n = {cell.ours.seeds}</span>')
    if cell.diverged:
        parts.append(f'<span class="few">{cell.diverged} diverged</span>')
    if cell.paper is not None:
        paper = (
            f"paper {number_text(cell.paper.mean, digits)} \N{PLUS-MINUS SIGN} "
            f"{number_text(cell.paper.error, digits)}"
        )
        parts.append(f'<span class="paper">{paper}{_difference_html(cell)}</span>')
    return f"<td>{''.join(parts)}</td>"


def _difference_html(cell: Cell) -> str:
    if cell.difference is None:
        return ""
    agrees = abs(cell.difference) <= 2
    text = number_text(cell.difference, 1)
    sign = "+" if cell.difference > 0 and not text.startswith("0.0") else ""
    word = "agrees" if agrees else "differs"
    mark = "" if agrees else "\N{EXCLAMATION MARK}"
    return f' <span class="{word}">{sign}{text} se{mark}</span>'


def _note(table: Table) -> str:
    seeds = f"{table.usual_count} seed{'' if table.usual_count == 1 else 's'}"
    if len({cell.ours.seeds for cell in table.cells.values() if cell.ours}) > 1:
        seeds += " unless a cell says otherwise"
    unit = ", percent" if table.percent else ""
    if table.usual_count == 1:
        words = [f"One run per cell{unit}: no standard errors."]
    else:
        words = [f"Mean \N{PLUS-MINUS SIGN} standard error over {seeds}{unit}."]
    if len(table.methods) > 1:
        words.append("Bold: best of its column")
        words[-1] += (
            "."
            if table.usual_count == 1
            else "; \N{ALMOST EQUAL TO}: within one joint standard error of it."
        )
    if any(cell.paper for cell in table.cells.values()):
        words.append(
            f"Paper: {TABLES[table.measure]}, 10 seeds; se: difference in joint "
            "standard errors, ! where it is more than two."
        )
        if table.differences:
            words.append(
                "Cells without a difference were measured in another setting than the "
                f"paper's ({differences_text(table.differences)})."
            )
    text = escape(" ".join(words))
    summary = agreement_text([table])
    return f"<b>{escape(summary)}</b> {text}" if summary else text


def times_html(runs: Sequence[Run], stream: str) -> str:
    """Mean seconds of each method's runs and what they were spent on."""
    groups: dict[tuple[int, str], list[dict[str, float]]] = defaultdict(list)
    for run in runs:
        if run.stream == stream and run.row.get("seconds"):
            groups[run.imbalance, run.method].append(run.row["seconds"])
    if not groups:
        return '<p class="note">No times were measured.</p>'
    means = {
        key: {part: sum(s.get(part, 0) for s in found) / len(found) for part in _PARTS}
        for key, found in groups.items()
    }
    longest = max(sum(mean.values()) for mean in means.values()) or 1.0
    heads = "".join(f"<th scope=col>{part.capitalize()}</th>" for part in _PARTS)
    lines = [
        f'<div class="scroll tall" tabindex="0" role="region" '
        f'aria-label="Times, {escape(stream)}"><table class="numbers times"><thead>'
        f"<tr><th scope=col>Method</th><th scope=col>r</th>{heads}"
        "<th scope=col>Total</th><th scope=col>Parts</th></tr></thead><tbody>"
    ]
    for (imbalance, method), mean in sorted(means.items(), key=lambda each: each[0][0]):
        total = sum(mean.values())
        bars = "".join(
            f'<i class="part {part}" style="width:{100 * mean[part] / longest:.2f}%" '
            f'title="{part} {mean[part]:.2f} s"></i>'
            for part in _PARTS
        )
        cells = "".join(f"<td>{mean[part]:.2f} s</td>" for part in _PARTS)
        lines.append(
            f"<tr><th scope=row>{escape(method)}</th><td>{imbalance}</td>{cells}"
            f'<td>{total:.2f} s</td><td class="bar">{bars}</td></tr>'
        )
    lines.append("</tbody></table></div>")
    return "\n".join(lines)


def settings_html(runs: Sequence[Run], stream: str) -> str:
    """Settings that differ between methods, and those that do not."""
    of_stream = [run for run in runs if run.stream == stream]
    methods = list(dict.fromkeys(run.method for run in of_stream))
    names = dict.fromkeys(name for run in of_stream for name in run.settings)
    same: dict[str, Any] = {}
    lines = []
    for name in names:
        if name in ("env", "data", "imbalance", "seed", "policy"):
            continue
        values = {repr(run.settings.get(name)) for run in of_stream}
        if len(values) == 1:
            same[name] = of_stream[0].settings.get(name)
            continue
        cells = "".join(
            f"<td>{escape(_values([r for r in of_stream if r.method == m], name))}</td>"
            for m in methods
        )
        lines.append(f"<tr><th scope=row><code>{name}</code></th>{cells}</tr>")
    policies = {run.policy for run in of_stream}
    same_settings = (
        "Apart from the policy, all methods have the same settings."
        if len(policies) > 1
        else "All methods have the same settings."
    )
    found = f'<p class="note">{same_settings}</p>'
    if lines:
        heads = "".join(f"<th scope=col>{escape(method)}</th>" for method in methods)
        found = (
            f'<div class="scroll" tabindex="0" role="region" aria-label="Settings that '
            f'differ, {escape(stream)}"><table><thead><tr><th scope=col>Setting</th>'
            f"{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        )
    common = "".join(
        f"<li><code>{escape(name)} = {escape(_value(value))}</code></li>"
        for name, value in same.items()
        if value is not None
    )
    return (
        f"{found}<details><summary>The same in all runs</summary>"
        f'<ul class="settings">{common}</ul></details>'
    )


def _values(runs: Sequence[Run], name: str) -> str:
    """A setting of a method; by imbalance if it was tuned for each."""
    by_imbalance: dict[int, list[str]] = defaultdict(list)
    for run in runs:
        # Rows of older versions do not have all settings.
        value = _value(run.settings[name]) if name in run.settings else "\N{EN DASH}"
        if value not in by_imbalance[run.imbalance]:
            by_imbalance[run.imbalance].append(value)
    told = {r: ", ".join(values) for r, values in by_imbalance.items()}
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return "; ".join(f"r = {r}: {value}" for r, value in sorted(told.items()))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def runs_html(
    runs: Sequence[Run], stream: str, commands: Mapping[str, str | None]
) -> str:
    """Every run with its score, its time and its command."""
    lines = []
    for run in runs:
        if run.stream != stream:
            continue
        percent = run.result.get("metric") == "accuracy"
        value = run.value("average")
        score = "\N{EN DASH}" if value is None else number_text(value, 4)
        if value is not None and percent:
            score = number_text(100 * value, 2)
        if run.diverged:
            score = f"diverged at step {run.result['diverged_at_step']}"
        command = commands.get(run.key)
        told = (
            f"<code>{escape(command)}</code>"
            if command
            else '<span class="note">made in Python: no command</span>'
        )
        seconds = sum((run.row.get("seconds") or {}).values())
        lines.append(
            f"<tr><th scope=row>{escape(run.method)}</th><td>{run.imbalance}</td>"
            f"<td>{run.seed}</td><td>{escape(score)}</td><td>{seconds:.1f} s</td>"
            f'<td class="command">{told}</td></tr>'
        )
    heads = "".join(
        f"<th scope=col>{head}</th>"
        for head in ("Method", "r", "Seed", "Score", "Time", "Command")
    )
    return (
        f'<div class="scroll tall" tabindex="0" role="region" aria-label="Runs, '
        f'{escape(stream)}"><table class="numbers runs"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
