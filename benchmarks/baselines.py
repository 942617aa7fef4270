"""What each policy costs a learner in time and memory, against reservoir sampling.

DER++ on Split MNIST with the paper's sizes, one thread. For time, all policies take
turns, step by step; for memory, each has a process of its own. Needs MNIST.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time

from agents.config import ExperimentConfig
from agents.experiment import Experiment
from benchmarks.timing import one_thread, report, row
from info_replay.replay_buffer import POLICIES

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
            experiment._advance()
            if turn >= WARMUP:
                times[policy].append(time.perf_counter() - begin)
    return {policy: statistics.mean(values) for policy, values in times.items()}


def peak_memory(policy: str) -> float:
    """Most resident memory of a process that learns with a policy, in megabytes."""
    command = [sys.executable, "-m", "benchmarks.baselines", policy]
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(output.stdout.splitlines()[-1])


def main() -> None:
    """Measure everything and print one table."""
    one_thread()
    if len(sys.argv) > 1:  # a process of its own
        experiment = start(sys.argv[1])
        for _ in range(WARMUP):
            experiment._advance()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    times = step_times()
    base = peak_memory("rs")
    rows = []
    for policy in POLICIES:
        ratio = times[policy] / times["rs"]
        rows.append(row(f"{policy}: step / step with rs", ratio, "x"))
    for policy in POLICIES:
        extra = peak_memory(policy) - base
        rows.append(row(f"{policy}: peak memory beyond rs's", extra, "MB"))
    report("baselines", rows)


if __name__ == "__main__":
    main()
