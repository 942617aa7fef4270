"""The paper's study of update timing (its Figure "The effect of update timing").

``delay`` steps after each task began, ``M / i`` random slots of the memory are given to
samples of the ``i``-th task. The paper uses Split CIFAR-10; here it is Split MNIST with
the settings of the preset. ``python -m benchmarks.update_timing measure`` adds the runs
that are missing to ``docs/results/update_timing.jsonl``, ``table`` prints them.
"""

from __future__ import annotations

import argparse
import itertools
import json
from typing import Any

import torch

from agents.supervised.config import ExperimentConfig
from agents.supervised.experiment import Experiment
from agents.supervised.metrics import mean_and_standard_error
from agents.supervised.samplers import SubsetSampler
from benchmarks.split_mnist import RESULTS
from info_replay import SelectiveReplayBuffer
from info_replay.writers import TaskTimingWriter

PATH = RESULTS / "update_timing.jsonl"
DELAYS = (0, 5, 15, 30, 50, 70, 85)  # a task lasts 84 to 99 steps
ALPHAS = (0.0, 0.3)
SEEDS = range(3)


def run(delay: int, alpha: float, seed: int) -> dict[str, Any]:
    config = ExperimentConfig.preset(
        "SplitMNIST", policy="rs", alpha=alpha, seed=seed, evaluations=0, threads=1
    )
    writer = TaskTimingWriter(delay)

    def make_memory(*_: Any) -> SelectiveReplayBuffer:
        return SelectiveReplayBuffer(
            config.capacity,
            writer=writer,
            sampler=SubsetSampler(),
            generator=torch.Generator().manual_seed(seed),
        )

    experiment = Experiment(config, make_memory=make_memory)

    def tell(step: int, *_: float) -> None:
        if step in experiment.env.boundaries:
            writer.start_task()

    writer.start_task()
    result = experiment.run(tell)
    return {
        "delay": delay,
        "alpha": alpha,
        "seed": seed,
        "average": result["average"],
        "class_counts": result["memory"]["class_counts"],
    }


def table() -> str:
    """Mean ± standard error of the final accuracy, as Markdown."""
    accuracies: dict[tuple[float, int], list[float]] = {}
    for line in PATH.read_text().splitlines():
        entry = json.loads(line)
        key = entry["alpha"], entry["delay"]
        accuracies.setdefault(key, []).append(100 * entry["average"])
    lines = ["| | " + " | ".join(f"Δt = {delay}" for delay in DELAYS) + " |"]
    lines.append("|---" * (1 + len(DELAYS)) + "|")
    for alpha in ALPHAS:
        cells = []
        for delay in DELAYS:
            mean, error = mean_and_standard_error(accuracies[alpha, delay])
            cells.append(f"{mean:.1f} ± {error:.1f}")
        lines.append(f"| α = {alpha:g}, β = 1 | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what nobody has run yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("measure", "table"))
    if parser.parse_args().kind == "table":
        print(table())
        return
    lines = PATH.read_text().splitlines() if PATH.exists() else []
    done = [json.loads(line) for line in lines]
    known = {(entry["delay"], entry["alpha"], entry["seed"]) for entry in done}
    for seed, delay, alpha in itertools.product(SEEDS, DELAYS, ALPHAS):
        if (delay, alpha, seed) not in known:
            with PATH.open("a") as file:
                file.write(json.dumps(run(delay, alpha, seed)) + "\n")


if __name__ == "__main__":
    main()
