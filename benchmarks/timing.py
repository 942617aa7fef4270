"""Interleaved timing, so that a noisy machine disturbs all contestants alike."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import threadpoolctl
import torch

RESULTS = Path(__file__).parent / "results"


def medians(
    contestants: Mapping[str, tuple[Callable[[], Any], Callable[[Any], object]]],
    calls: int = 300,
    warmup: int = 20,
) -> dict[str, float]:
    """Median time of a call of each contestant, in microseconds.

    A contestant is a pair: what prepares an argument, and the call that is timed with
    it. The contestants take turns within one loop.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(warmup + calls):
        for name, (prepare, call) in contestants.items():
            argument = prepare()
            start = time.perf_counter()
            call(argument)
            elapsed = time.perf_counter() - start
            if turn >= warmup:
                times[name].append(elapsed * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def one_thread() -> None:
    """Let torch, NumPy and SciPy compute on one thread from now on."""
    torch.set_num_threads(1)
    threadpoolctl.threadpool_limits(1, user_api="blas")


def row(
    what: str,
    value: float,
    unit: str,
    limit: float | None = None,
    least: bool = False,
    spread: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """One line of a table: a measured value and the bound that it should keep, if any.

    A limit is an upper one, unless ``least``; the spread is that of repetitions.
    """
    line = {"what": what, "value": value, "unit": unit, "bound": "", "met": ""}
    if limit is not None:
        line["bound"] = f"{'>=' if least else '<='} {limit:g}"
        line["met"] = "yes" if (value >= limit if least else value <= limit) else "NO"
    if spread is not None:
        line["spread"] = f"{spread[0]:.3g} to {spread[1]:.3g}"
    return line


def report(name: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table and save them with the machine's description."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = ([_text(row.get(column, "")) for column in columns] for row in rows)
    table = [columns, *cells]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    for number, line in enumerate(table):
        print(
            "  ".join(
                cell.ljust(width) for cell, width in zip(line, widths, strict=True)
            )
        )
        if number == 0:
            print("  ".join("-" * width for width in widths))
    RESULTS.mkdir(exist_ok=True)
    content = {
        "command": f"python -m benchmarks.{name}",
        "machine": _processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "rows": rows,
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def _processor() -> str:
    """The name of the processor, where the system tells."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
