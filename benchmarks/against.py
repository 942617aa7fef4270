"""Is the code at hand as fast as that of another worktree?

``python -m benchmarks.against OTHER`` starts two processes, one with the packages of
the worktree ``OTHER``, one with those of the current directory. They take turns at the
same workloads: only one works at any time, and the order changes with every round, so
that a noisy machine disturbs both alike. Several pairs of processes follow each other,
because a process may be a few percent faster only by where its memory happens to lie.
What is measured is the time of the processor, which other programs disturb less than
the time of the clock. The ratio of a workload is the median over all rounds; its spread
is that of the middle half of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.timing import report, row

WORKER = Path(__file__).with_name("against_worker.py")
#: Rounds of each pair of processes that are not counted.
WARMUP = 3
LIMIT = 1.05


class Contestant:
    """A process that works with the packages of one worktree.

    Args:
        worktree: its root.

    """

    def __init__(self, worktree: Path) -> None:
        threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        self.worktree = worktree
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            cwd=worktree,
            env={
                **os.environ,
                "PYTHONPATH": str(worktree),
                **dict.fromkeys(threads, "1"),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def workloads(self) -> list[str]:
        """Names of its workloads, when it is ready to work; to be asked once."""
        names: list[str] = json.loads(self._answer())
        return names

    def turn(self, workload: str) -> float:
        """Let it do one turn; gives the seconds of the processor for one call."""
        assert self._process.stdin is not None
        print(workload, file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of {self.worktree} failed, see above")
        return answer

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


#: Seconds of a call in each round, of the old code and of the new one.
Times = list[tuple[float, float]]


def measure(
    old: Contestant, new: Contestant, part: str, seconds: float
) -> dict[str, Times]:
    """Let two contestants take turns until the time is over.

    Args:
        old: with the old code.
        new: with the new code.
        part: what the names of the workloads must contain.
        seconds: how long.
    """
    known, _ = old.workloads(), new.workloads()
    times: dict[str, Times] = {name: [] for name in known if part in name}
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end or number < WARMUP + 3:
        for name, values in times.items():
            order = (old, new) if number % 2 else (new, old)
            spent = {who: who.turn(name) for who in order}
            if number >= WARMUP:
                values.append((spent[old], spent[new]))
        number += 1
    return times


def compared(name: str, times: Times) -> dict[str, Any]:
    """One line of the table: how many times as long the new code takes."""
    ratios = [new / old for old, new in times]
    low, middle, high = statistics.quantiles(ratios, n=4)
    old, new = (statistics.median(part) * 1e6 for part in zip(*times, strict=True))
    line = row(f"{name}: new / old", middle, "x", LIMIT, spread=(low, high))
    return {**line, "old us": round(old, 1), "new us": round(new, 1)}


def main() -> None:
    """Measure everything and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("worktree", type=Path, help="root of the old code")
    parser.add_argument("--pairs", type=int, default=4, help="of processes")
    parser.add_argument("--seconds", type=float, default=45, help="of each pair")
    parser.add_argument(
        "--only", default="", help="part of a workload's name; nothing is saved then"
    )
    options = parser.parse_args()
    times: dict[str, Times] = {}
    for number in range(options.pairs):
        step = -1 if number % 2 else 1  # each of them starts first as often
        roots = [options.worktree.resolve(), Path.cwd()]
        old, new = [Contestant(root) for root in roots[::step]][::step]
        found = measure(old, new, options.only, options.seconds)
        for name, values in found.items():
            times.setdefault(name, []).extend(values)
        for contestant in (old, new):
            contestant.stop()
    rounds = min(map(len, times.values()), default=0)
    print(f"{rounds} rounds against {options.worktree.resolve()}")
    rows = [compared(name, values) for name, values in times.items()]
    if not options.only:
        report("against", rows)
        return
    for line in rows:  # a part must not take the place of the whole
        print(f"{line['what']} {line['value']:.3f} ({line['spread']}) {line['met']}")


if __name__ == "__main__":
    main()
