"""Long-tailed Split MNIST: which policy to take where classes are rare.

``python -m benchmarks.long_tail measure`` adds the runs that are missing to
``docs/results/long_tail.jsonl``; several processes may share the work, each with
another ``--shard``. ``table`` prints them.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from agents.supervised.metrics import mean_and_standard_error
from benchmarks.split_mnist import METHODS, RESULTS, Job, append, brief, run

PATH = RESULTS / "long_tail.jsonl"
RATIOS = (1, 10, 100)
SEEDS = range(20)
#: The settings of the Split MNIST table; InfoRS with what was best there at r = 1.
POLICIES: dict[str, dict[str, Any]] = {
    **{name: METHODS[name] for name in ("RS", "WRS", "CBRS", "InfoGS, decay 0.99")},
    "InfoRS": {"policy": "infors", "alpha": 1.0, "gamma": -0.3},
}


def jobs() -> Iterator[Job]:
    """Every policy, ratio and seed."""
    for seed, ratio, (method, options) in itertools.product(
        SEEDS, RATIOS, POLICIES.items()
    ):
        yield {"method": method, **options, "longtail": float(ratio), "seed": seed}


def table() -> str:
    """Final accuracy and how many classes are scarce in memory, as Markdown."""
    entries = [json.loads(line) for line in PATH.read_text().splitlines()]
    heads = " | ".join(f"ρ = {ratio}" for ratio in RATIOS)
    last = " | ".join(f"classes with {text} in memory" for text in ("< 3", "none"))
    lines = [f"| Split MNIST, M = 100 | {heads} | {last} |", "|---" * 6 + "|"]
    for method in POLICIES:
        cells = []
        for ratio in RATIOS:
            found = [
                entry
                for entry in entries
                if (entry["job"]["method"], entry["job"]["longtail"]) == (method, ratio)
            ]
            values = [100 * entry["average"] for entry in found]
            mean, error = mean_and_standard_error(values)
            cells.append(f"{mean:.1f} ± {error:.1f}")
        for fewest in (3, 1):  # at the largest ratio
            scarce = [int((np.array(e["class_counts"]) < fewest).sum()) for e in found]
            mean, error = mean_and_standard_error(scarce)
            cells.append(f"{mean:.1f} ± {error:.1f}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what nobody has run yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("measure", "table"))
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th job from i on")
    arguments = parser.parse_args()
    if arguments.kind == "table":
        print(table())
        return
    first, step = map(int, arguments.shard.split("/"))
    for job in [*jobs()][first::step]:
        append(PATH, job, lambda job: brief(run(job)))


if __name__ == "__main__":
    main()
