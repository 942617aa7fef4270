"""What a batch with samples of two tasks does to backward transfer on Split MNIST.

Batches run over the boundaries of tasks, so the last batch of a task has samples of the
next one, too. ``python -m benchmarks.backward_transfer`` scores each task before and
after that batch, prints backward transfer by both, and saves one line per run in
``docs/results/backward_transfer.jsonl``.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from agents.supervised.config import ExperimentConfig
from agents.supervised.experiment import Experiment
from agents.supervised.metrics import mean_and_standard_error


def measure(config: ExperimentConfig) -> dict[str, float]:
    """Backward transfer, by scores before and after the last batch of each task."""
    run = Experiment(config)
    ends = run.env.boundaries[:-1]
    scores: dict[str, list[float]] = {"before": [], "after": []}
    while not run.is_over:
        if run.step + 1 in ends:
            scores["before"].append(run.evaluate()[len(scores["before"])])
        run.advance()
        if run.step in ends:
            scores["after"].append(run.evaluate()[len(scores["after"])])
    final = run.evaluate()[:-1]
    return {
        moment: float(np.mean(np.subtract(final, found)))
        for moment, found in scores.items()
    }


def main() -> None:
    """Measure three policies, two imbalances and ten seeds."""
    lines = []
    for policy in ("rs", "cbrs", "infors"):
        for imbalance in (1, 3):
            job = {"policy": policy, "imbalance": imbalance}
            found = []
            for seed in range(10):
                config = ExperimentConfig.preset(
                    "SplitMNIST", **job, seed=seed, evaluations=0, threads=1
                )
                found.append(measure(config))
                lines.append(json.dumps({**job, "seed": seed, **found[-1]}))
            for moment in ("before", "after"):
                values = [100 * each[moment] for each in found]
                mean, error = mean_and_standard_error(values)
                print(f"{policy}, r = {imbalance}, {moment}: {mean:.1f} ± {error:.1f}")
    results = Path(__file__).parent.parent / "docs" / "results"
    (results / "backward_transfer.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
