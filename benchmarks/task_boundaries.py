"""What a batch with samples of two tasks does to backward and forward transfer.

Batches run over the boundaries of tasks, so the last batch of a task has samples of the
next one, too. ``python -m benchmarks.task_boundaries`` scores the tasks before and
after that batch, prints both transfers by both scores, and saves one line per run in
``docs/results/task_boundaries.jsonl``, at once; what is there is not done again.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from agents.supervised.config import ExperimentConfig
from agents.supervised.experiment import Experiment
from agents.supervised.metrics import mean_and_standard_error

_RESULTS = Path(__file__).parent.parent / "docs" / "results" / "task_boundaries.jsonl"
#: Streams with the policies, imbalances and number of seeds that are measured.
_CASES = {
    "SplitMNIST": (("rs", "cbrs", "infors"), (1, 3), 10),
    "PermutedMNIST": (("rs", "infogs"), (1,), 3),
}


def measure(config: ExperimentConfig) -> dict[str, float]:
    """Transfers, by scores before and after the last batch of each task."""
    run = Experiment(config)
    ends = run.env.boundaries[:-1]
    first = np.array(run.evaluate())
    rows: dict[str, list[Any]] = {"before": [], "after": []}
    while not run.is_over:
        if run.step + 1 in ends:
            rows["before"].append(run.evaluate())
        run.advance()
        if run.step in ends:
            rows["after"].append(run.evaluate())
    final = np.array(run.evaluate())
    found = {}
    for moment, matrix in rows.items():
        scores = np.array(matrix)  # (T - 1, T): of each task after each but the last
        found[f"backward_{moment}"] = float(np.mean(final[:-1] - scores.diagonal()))
        found[f"forward_{moment}"] = float(np.mean(scores.diagonal(1) - first[1:]))
    return found


def main() -> None:
    """Measure what is missing, then print means and standard errors."""
    lines = _RESULTS.read_text().splitlines() if _RESULTS.exists() else []
    rows = [json.loads(line) for line in lines]
    names = ("env", "policy", "imbalance", "seed")
    done = {tuple(row[name] for name in names) for row in rows}
    for env, (policies, imbalances, seeds) in _CASES.items():
        for case in itertools.product([env], policies, imbalances, range(seeds)):
            if case in done:
                continue
            settings = dict(zip(names, case, strict=True))
            config = ExperimentConfig.preset(**settings, evaluations=0, threads=1)
            rows.append({**settings, **measure(config)})
            with _RESULTS.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    groups = defaultdict(list)
    for row in rows:
        groups[row["env"], row["policy"], row["imbalance"]].append(row)
    for (env, policy, imbalance), found in groups.items():
        print(f"{env}, {policy}, r = {imbalance}")
        for name in sorted({*itertools.chain(*found)} - {*names}):
            values = [100 * row[name] for row in found if name in row]
            mean, error = mean_and_standard_error(values)
            print(f"  {name}: {mean:.1f} ± {error:.1f} (n = {len(values)})")


if __name__ == "__main__":
    main()
