"""What memories held along their runs, as images for a page: :func:`memory_images`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from agents.report.payload import to_json
from agents.report.runs import Run
from agents.report.sheets import Snapshots, make_sheet

__all__ = ["memory_images"]

_MOST_BYTES = 4_000_000  # of all images; a page should open at once on a phone

# Snapshots of a run, and items of each. All methods are on the page before one of them
# shows more: the first amount that leaves room for all of them is taken.
_AMOUNTS = ((8, 200), (6, 120), (5, 60), (4, 30))


def memory_images(folder: Path, runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """The images in the memories of runs whose folders were kept.

    The first seed of each method and imbalance comes first. More seeds are added while
    there is room on the page.

    Args:
        folder: of the sweep.
        runs: of the sweep.

    Returns:
        By key of the run: what :func:`~agents.report.sheets.make_sheet` returns.

    Raises:
        RunError: if a memory or a snapshot is damaged.
    """
    firsts, others = _in_order(run for run in runs if _is_kept(_place(folder, run)))
    found: dict[str, dict[str, Any]] = {}
    for amount in _AMOUNTS:
        found, looked_at = _within_limit(folder, [*firsts, *others], amount)
        if looked_at >= len(firsts):
            break
    return found


def _place(folder: Path, run: Run) -> Path:
    return folder / "runs" / run.key


def _is_kept(folder: Path) -> bool:
    return (folder / "memories").is_dir() or (folder / "memory.pt").exists()


def _in_order(runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
    """The first seeds of all cells, all methods of an imbalance at a time; the rest."""
    cells: dict[tuple[str, str, int], list[Run]] = defaultdict(list)
    for run in runs:
        cells[run.stream, run.method, run.imbalance].append(run)
    ranked = [
        (rank, run)
        for cell in cells.values()
        for rank, run in enumerate(sorted(cell, key=lambda run: run.seed))
    ]
    ranked.sort(key=lambda each: (each[0], each[1].imbalance))
    return [run for rank, run in ranked if not rank], [run for n, run in ranked if n]


def _within_limit(
    folder: Path, runs: Sequence[Run], amount: tuple[int, int]
) -> tuple[dict[str, dict[str, Any]], int]:
    """Images of runs until the page is full, and the number of runs looked at."""
    found: dict[str, dict[str, Any]] = {}
    size = 0
    for number, run in enumerate(runs):
        sheet = make_sheet(_snapshots(_place(folder, run), run), *amount)
        if sheet is not None:
            size += len(to_json(sheet))
            if size > _MOST_BYTES:
                return found, number
            found[run.key] = sheet
    return found, len(runs)


def _snapshots(folder: Path, run: Run) -> Snapshots:
    """All snapshots of a run; of a run that kept none, its memory at the end."""
    from agents.runs.folder import RunFolder
    from agents.supervised.saved_run import stored_items
    from agents.supervised.snapshots import read_snapshots

    found = read_snapshots(folder)
    if found:
        return found
    items = stored_items(RunFolder(folder))
    names = ("observation", "target")
    if not all(name in items for name in names):
        return {}
    step = int(run.result.get("steps_done") or 0)
    return {step: {name: items[name].numpy() for name in names}}
