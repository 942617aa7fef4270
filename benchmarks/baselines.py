"""What each policy costs a learner in time and memory, against reservoir sampling.

DER++ on Split MNIST with the paper's sizes, one thread. For time, all policies take
turns, step by step; for memory, each has a process of its own. Needs MNIST.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from agents.supervised.config import ExperimentConfig
from agents.supervised.experiment import Experiment
from benchmarks.timing import one_thread, report, row
from info_replay.registry import POLICIES

WARMUP = 60
STEPS = 150


def start(policy: str) -> Experiment:
    return Experiment(
        ExperimentConfig.preset("SplitMNIST", policy=policy, threads=1, evaluations=0)
    )


def step_times() -> dict[str, float]:
    """Mean seconds of a step of each policy, once the memory is full.

    Means, not medians: some policies do much in few steps.
    """
    runs = {policy: start(policy) for policy in POLICIES}
    times: dict[str, list[float]] = {policy: [] for policy in runs}
    for turn in range(WARMUP + STEPS):
        for policy, experiment in runs.items():
            begin = time.perf_counter()
            experiment.advance()
            if turn >= WARMUP:
                times[policy].append(time.perf_counter() - begin)
    return {policy: statistics.mean(values) for policy, values in times.items()}


def resident(peak: bool) -> float:
    """Megabytes that this process has in memory, or had at most (Linux)."""
    name = "VmHWM" if peak else "VmRSS"
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def learn_alone(policy: str) -> float:
    """What learning adds to the memory of this process at most, in megabytes."""
    experiment = start(policy)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = resident(peak=False)
    for _ in range(WARMUP):
        experiment.advance()
    return resident(peak=True) - before


def peak_memory(policy: str) -> float:
    """The same in a process of its own, so that policies do not see each other."""
    command = [sys.executable, "-m", "benchmarks.baselines", policy]
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(output.stdout.splitlines()[-1])


def main() -> None:
    """Measure everything and print one table."""
    one_thread()
    if len(sys.argv) > 1:
        print(learn_alone(sys.argv[1]))
        return
    times = step_times()
    rows = []
    for policy in POLICIES:
        ratio = times[policy] / times["rs"]
        rows.append(row(f"{policy}: step / step with rs", ratio, "x"))
    for policy in POLICIES:
        rows.append(row(f"{policy}: memory of learning", peak_memory(policy), "MB"))
    report("baselines", rows)


if __name__ == "__main__":
    main()
