"""Learners on Split MNIST with one memory: DER++, ER, ER-ACE and none.

``python -m benchmarks.compare_learners measure`` adds the runs that are missing to
``docs/results/learners.jsonl``, ``table`` prints them.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from typing import Any

from agents.supervised.metrics import mean_and_standard_error
from benchmarks.split_mnist import RESULTS, Job, append, brief, run

PATH = RESULTS / "learners.jsonl"
POLICIES = ("rs", "infors")
SEEDS = range(20)
#: All with the settings of the preset "mnist", lr 0.1 among them.
LEARNERS: dict[str, dict[str, Any]] = {
    "DER++, alpha 1": {"learner": "der++", "alpha": 1.0},
    "DER++, alpha 0.3": {"learner": "der++", "alpha": 0.3},
    "ER, join mean": {"learner": "er", "join": "mean"},
    "ER, join sum": {"learner": "er", "join": "sum"},
    "ER-ACE": {"learner": "er-ace"},
    "finetune": {"learner": "finetune"},
}


def jobs() -> Iterator[Job]:
    """Every learner, policy and seed."""
    for seed, policy, (method, options) in itertools.product(
        SEEDS, POLICIES, LEARNERS.items()
    ):
        if method == "finetune" and policy != POLICIES[0]:
            continue  # it has no memory
        kept = {"policy": "none" if method == "finetune" else policy}
        yield {"method": method, **options, **kept, "seed": seed}


def table() -> str:
    """Mean ± standard error of the final accuracy, as Markdown."""
    found: dict[tuple[str, str], list[float]] = {}
    for line in PATH.read_text().splitlines():
        entry = json.loads(line)
        key = entry["job"]["method"], entry["job"]["policy"]
        found.setdefault(key, []).append(100 * entry["average"])
    heads = " | ".join(POLICIES)
    lines = [f"| Split MNIST, M = 100 | {heads} |", "|---" * (1 + len(POLICIES)) + "|"]
    for method in LEARNERS:
        cells = []
        for policy in POLICIES:
            name = "none" if method == "finetune" and policy == POLICIES[0] else policy
            values = found.get((method, name))
            if values is None:
                cells.append("")
                continue
            mean, error = mean_and_standard_error(values)
            cells.append(f"{mean:.1f} ± {error:.1f}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what nobody has run yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("measure", "table"))
    if parser.parse_args().kind == "table":
        print(table())
        return
    for job in jobs():
        append(PATH, job, lambda job: brief(run(job)))


if __name__ == "__main__":
    main()
