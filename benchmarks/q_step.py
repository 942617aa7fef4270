"""What a memory costs a Q-learner: the time of a training step with each.

A step is what ``info-replay dqn`` does with its default settings: collect 32 frames,
offer them to the memory, 8 gradient steps, and whatever is written back. All memories
take turns, step by step, on one thread. The second table leaves the environment out.
"""

from __future__ import annotations

import itertools
import logging
import statistics
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from agents.q_learning import DQNConfig
from agents.q_learning.agent import DQNAgent
from benchmarks.timing import one_thread, report, row

WARMUP = 60
STEPS = 150
MEMORIES: dict[str, dict[str, Any]] = {
    "fifo": {"policy": "fifo"},
    "prioritized": {"policy": "prioritized"},
    "rs": {"policy": "rs", "recent": 0.0},
    "infors": {"policy": "infors", "recent": 0.0},
    "fifo + infors": {"policy": "infors", "recent": 0.25},
}
#: What the issue asks of the memories that learn; the others are for comparison.
BOUNDS = {"infors": 1.3, "fifo + infors": 1.3}


class Stopwatch:
    """Times the part of a step that comes after the frames."""

    def __init__(self, agent: DQNAgent) -> None:
        self.seconds = 0.0
        for name in ("store", "learn"):
            setattr(agent, name, self._timed(getattr(agent, name)))

    def _timed(self, call: Any) -> Any:
        def timed(*arguments: Any) -> None:
            begin = time.perf_counter()
            call(*arguments)
            self.seconds += time.perf_counter() - begin

        return timed


def start(options: dict[str, Any]) -> tuple[Iterator[int], Stopwatch]:
    torch.manual_seed(0)
    agent = DQNAgent(DQNConfig(threads=1, device="cpu", **options))
    agent.env.set_seed(0)
    return agent.train(10**9), Stopwatch(agent)


def main() -> None:
    """Measure everything and print one table."""
    one_thread()
    logging.getLogger("torchrl").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="torchrl")
    runs = {name: start(options) for name, options in MEMORIES.items()}
    whole: dict[str, list[float]] = {name: [] for name in runs}
    learner: dict[str, list[float]] = {name: [] for name in runs}
    for turn, name in itertools.product(range(WARMUP + STEPS), runs):
        steps, stopwatch = runs[name]
        stopwatch.seconds = 0.0
        begin = time.perf_counter()
        next(steps)
        if turn >= WARMUP:
            whole[name].append(time.perf_counter() - begin)
            learner[name].append(stopwatch.seconds)
    rows = [row("step with fifo", 1e3 * statistics.median(whole["fifo"]), "ms")]
    for what, times in (("step", whole), ("learner's part of a step", learner)):
        reference = statistics.median(times["fifo"])
        for name, values in times.items():
            ratio = statistics.median(values) / reference
            limit = BOUNDS.get(name) if what == "step" else None
            rows.append(row(f"{name}: {what} / that with fifo", ratio, "x", limit))
    report("q_step", rows)


if __name__ == "__main__":
    main()
