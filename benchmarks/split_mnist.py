"""The paper's Split MNIST table: all policies, imbalances and seeds, one line a run.

``python -m benchmarks.split_mnist measure`` runs what is not in
``docs/results/split_mnist.jsonl`` yet; several processes may share the work, each with
another ``--shard``. ``tune`` compares settings of the paper's grid on held-out data,
``grid`` does so with the whole grid for InfoRS and InfoGS over all history, ``table``
prints the results beside the paper's, ``best`` the best settings of the grid.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agents.supervised.config import ExperimentConfig
from agents.supervised.derpp import DivergenceError
from agents.supervised.experiment import Experiment
from agents.supervised.metrics import mean_and_standard_error

RESULTS = Path(__file__).parent.parent / "docs" / "results"
IMBALANCES = (1, 3, 10, 30)
SEEDS = range(10)
#: Where a method does not say otherwise; presets of policies came later.
PLAIN = {"alpha": 0.3, "beta": 1.0, "learning_rate": 0.1, "decay": None}
#: What is measured, with what was best in the tuning; settings that are not named are
#: those of the preset "mnist" (eta 1, both gammas 0) and of PLAIN.
METHODS: dict[str, dict[str, Any]] = {
    "RS": {"policy": "rs", "alpha": 1.0},
    "WRS": {"policy": "wrs", "alpha": 0.3},
    "CBRS": {"policy": "cbrs", "alpha": 1.0},
    "InfoRS": {"policy": "infors", "alpha": 0.3},
    "InfoRS, tuned at each r": {"policy": "infors"},
    "InfoRS, decay 0.99": {"policy": "infors", "alpha": 1.0, "decay": 0.99},
    "InfoGS": {"policy": "infogs", "alpha": 1.0},
    "InfoGS, decay 0.99": {"policy": "infogs", "alpha": 1.0, "decay": 0.99},
    "GSS": {"policy": "gss", "alpha": 1.0},
    "FSS-Clust": {"policy": "fss-clust", "alpha": 1.0},
    "Coreset": {"policy": "coreset", "learning_rate": 0.03, "alpha": 1.0, "beta": 0.3},
    "Coreset, lr 0.1, beta 1": {"policy": "coreset", "alpha": 1.0},
}
#: What was best for InfoRS over all history at each imbalance (``best``).
TUNED: dict[int, dict[str, float]] = {
    1: {"alpha": 1.0, "eta": 1.0, "gamma": -0.3},
    3: {"alpha": 1.0, "eta": 1.0, "gamma": -0.3},
    10: {"alpha": 1.0, "eta": 0.0, "gamma": 0.0},
    30: {"alpha": 1.0, "eta": 0.0, "gamma": 0.3},
}
#: Means and standard errors of the paper's Table "The means and standard errors of the
#: continual learning benchmarks", Split MNIST.
PAPER = {
    "RS": ((81.49, 0.72), (78.74, 1.17), (71.94, 1.87), (52.76, 1.41)),
    "WRS": ((75.75, 1.24), (73.90, 0.97), (68.82, 2.39), (65.87, 2.92)),
    "CBRS": ((80.96, 1.43), (79.71, 0.55), (79.43, 2.28), (75.08, 2.73)),
    "GSS": ((45.36, 0.95), (45.10, 0.96), (44.16, 1.15), (49.54, 2.57)),
    "FSS-Clust": ((52.85, 1.13), (54.59, 1.69), (54.36, 2.11), (55.33, 2.89)),
    "Coreset": ((69.77, 0.75), (63.47, 2.21), (50.30, 2.97), (42.05, 2.19)),
    "InfoGS": ((78.55, 1.37), (78.35, 1.56), (69.90, 2.18), (67.19, 3.52)),
    "InfoRS": ((80.02, 1.53), (81.48, 0.98), (73.81, 2.43), (63.70, 2.63)),
}
Job = dict[str, Any]


def measurements() -> Iterator[Job]:
    """Every method, imbalance and seed; the short ones first."""
    for imbalance, seed, (method, options) in itertools.product(
        IMBALANCES, SEEDS, METHODS.items()
    ):
        if method.endswith("tuned at each r"):
            options = {**options, **TUNED[imbalance]}
        yield {"method": method, **options, "imbalance": imbalance, "seed": seed}


def tuning() -> Iterator[Job]:
    """A part of the paper's grid and of the decays, three seeds, on held-out data."""
    plain = [{"policy": policy} for policy in ("rs", "wrs", "cbrs")]
    informative = [
        {"policy": "infors", "gamma": gamma, "decay": decay}
        for gamma, decay in itertools.product((-0.3, 0.0), (None, 0.99))
    ]
    greedy = [{"policy": "infogs", "decay": decay} for decay in (None, 0.99, 0.995)]
    others = [{"policy": policy} for policy in ("gss", "fss-clust")]
    coreset = [
        {"policy": "coreset", "learning_rate": rate, "beta": 0.3}
        for rate in (0.01, 0.03)
    ]
    for settings in ([*plain, *informative, *greedy], others, coreset):
        for seed, imbalance, alpha, options in itertools.product(
            (100, 101, 102), (1, 10), (0.3, 1.0), settings
        ):
            yield {
                **options,
                "alpha": alpha,
                "imbalance": imbalance,
                "seed": seed,
                "validation": True,
            }


def grid() -> Iterator[Job]:
    """The paper's grid over all history, on held-out data, and more seeds than above.

    InfoRS has five seeds, in which the imbalance meets each task once: balanced, the
    whole grid; then with the learning rate that was by far the best there; at last,
    where a run is long, two seeds, and the others with what did well. InfoGS has three
    seeds, balanced, with that learning rate.
    """
    etas, gammas, seeds = (0.0, 1.0, 3.0), (-0.3, 0.0, 0.3), range(100, 105)
    whole = {"rates": (0.03, 0.1, 0.3), "etas": etas, "gammas": gammas}
    part = {**whole, "rates": (0.1,)}
    few = {**part, "etas": (0.0, 1.0), "gammas": (0.0, 0.3)}
    learnability: tuple[dict[str, float], ...] = (
        {"gamma_learnability": 0.0},
        {"gamma_learnability": 1.0},
    )
    for policy, imbalance, values, more, chosen in (
        ("infors", 1, whole, ({},), seeds),
        ("infors", 3, part, ({},), seeds),
        ("infors", 10, part, ({},), seeds),
        ("infors", 30, part, ({},), seeds[:2]),
        ("infors", 30, few, ({},), seeds[2:]),
        ("infogs", 1, part, learnability, seeds[:3]),
    ):
        for seed, rate, alpha, eta, gamma, further in itertools.product(
            chosen, values["rates"], (0.3, 1.0), values["etas"], values["gammas"], more
        ):
            yield {
                "policy": policy,
                "learning_rate": rate,
                "alpha": alpha,
                "eta": eta,
                "gamma": gamma,
                "imbalance": imbalance,
                "seed": seed,
                "validation": True,
                **further,
            }


def run(job: Job) -> dict[str, Any]:
    """One run; what came out with the settings that made it."""
    options = {name: value for name, value in job.items() if name != "method"}
    config = ExperimentConfig.preset(
        "SplitMNIST", **{**PLAIN, **options}, evaluations=0, threads=1, device="cpu"
    )
    experiment = Experiment(config)
    try:
        result = experiment.run()
    except DivergenceError:
        result = {"average": None, "diverged_at_step": experiment.step}
    seconds = experiment.agent.stopwatch.seconds
    rounded = {part: round(spent, 2) for part, spent in seconds.items()}
    return {"job": job, "result": result, "seconds": rounded}


def table() -> str:
    """Our means and standard errors beside the paper's, as Markdown.

    A cell is bold where it differs from the paper's by more than two joint standard
    errors.
    """
    accuracies: dict[tuple[str, int], list[float]] = {}
    for line in (RESULTS / "split_mnist.jsonl").read_text().splitlines():
        entry = json.loads(line)
        key = entry["job"]["method"], entry["job"]["imbalance"]
        accuracies.setdefault(key, []).append(100 * entry["result"]["average"])
    heads = "".join(f" r = {imbalance} |" for imbalance in IMBALANCES)
    lines = [f"| Split MNIST, M = 100 |{heads}", "|---" * 5 + "|"]
    for method in METHODS:
        cells = []
        paper = PAPER[method.split(",")[0]]
        for imbalance, (theirs, their_error) in zip(IMBALANCES, paper, strict=True):
            values = accuracies.get((method, imbalance), [])
            if len(values) < 2:
                cells.append("-")
                continue
            ours, error = mean_and_standard_error(values)
            text = f"{ours:.1f} ± {error:.1f}"
            if abs(ours - theirs) > 2 * (error**2 + their_error**2) ** 0.5:
                text = f"**{text}**"
            if len(values) < len(SEEDS):
                text += f" (n={len(values)})"
            cells.append(f"{text} / {theirs:.1f} ± {their_error:.1f}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def best(most: int = 3) -> str:
    """The best settings of the whole grid on held-out data, one line each."""
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    for line in (RESULTS / "split_mnist_grid.jsonl").read_text().splitlines():
        entry = json.loads(line)
        job = entry["job"]
        settings = ", ".join(
            f"{name} {value:g}"
            for name, value in job.items()
            if name not in ("policy", "imbalance", "seed", "validation")
        )
        cell = found.setdefault((job["policy"], job["imbalance"]), {})
        # A network that is lost knows nothing.
        cell.setdefault(settings, []).append(100 * (entry["average"] or 0.0))
    lines = []
    for (policy, imbalance), cell in found.items():
        # Settings that were given up have fewer seeds, and those are not comparable.
        seeds = max(map(len, cell.values()))
        rest = {name: values for name, values in cell.items() if len(values) == seeds}
        lines.append(
            f"{policy}, r = {imbalance}: {len(rest)} of {len(cell)} settings have "
            f"{seeds} seeds"
        )
        for settings in sorted(rest, key=lambda name: -sum(rest[name]))[:most]:
            mean, error = mean_and_standard_error(rest[settings])
            lines.append(f"  {settings}: {mean:.1f} ± {error:.1f}")
    return "\n".join(lines)


def brief(entry: dict[str, Any]) -> dict[str, Any]:
    """Of a run, what a comparison of many settings needs."""
    result = entry["result"]
    memory = result.pop("memory", None) or {}
    kept = ("average", "diverged_at_step", "reservoir_count", "class_counts")
    found = {**result, **memory}
    return {
        "job": entry["job"],
        **{name: found[name] for name in kept if name in found},
        "seconds": round(sum(entry["seconds"].values()), 1),
    }


def append(path: Path, job: Job, measure: Callable[[Job], dict[str, Any]]) -> None:
    """Add a line with what came out of a job, unless there is one already."""
    lines = path.read_text().splitlines() if path.exists() else []
    if job in [json.loads(line)["job"] for line in lines]:
        return
    line = json.dumps(measure(job)) + "\n"
    # One write in append mode: lines of several processes do not mix.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(handle, line.encode())
    os.close(handle)
    print(job, flush=True)


def main() -> None:
    """Run the jobs of one kind that nobody has run yet."""
    kinds = {
        "measure": ("split_mnist", measurements),
        "tune": ("split_mnist_tuning", tuning),
        "grid": ("split_mnist_grid", grid),
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=(*kinds, "table", "best"))
    parser.add_argument("--method", help="only runs of this method or policy")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th job from i on")
    arguments = parser.parse_args()
    first, step = map(int, arguments.shard.split("/"))
    kind = arguments.kind
    if kind in ("table", "best"):
        print(table() if kind == "table" else best())
        return
    name, make_jobs = kinds[kind]
    jobs = list(make_jobs())
    if arguments.method:
        jobs = [job for job in jobs if arguments.method in job.values()]
    path = RESULTS / f"{name}.jsonl"
    RESULTS.mkdir(exist_ok=True)
    for job in jobs[first::step]:
        append(path, job, (lambda job: brief(run(job))) if kind == "grid" else run)


if __name__ == "__main__":
    main()
