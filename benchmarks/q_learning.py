"""Memories for Q-learning on a sequence of CartPole variants, one line a run.

``python -m benchmarks.q_learning measure`` runs what is not in
``docs/results/q_learning.jsonl`` yet; several processes may share the work, each with
another ``--shard``. ``single`` does the same for the check that nobody loses by
switching on a single task (``docs/results/q_learning_single.jsonl``). ``report`` puts
means, standard errors and paired differences into ``docs/results/q_learning.md``.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchrl.objectives import DQNLoss

from agents.q_learning import DQNConfig
from agents.q_learning.experiment import DQNExperiment
from agents.q_learning.memory import make_memory
from agents.supervised.metrics import mean_and_standard_error
from benchmarks.control_writers import (
    TerminalKeepingReservoirWriter,
    ThinnedReservoirWriter,
)
from info_replay import SelectiveReplayBuffer

RESULTS = Path(__file__).parent.parent / "docs" / "results"
LENGTHS = {"balanced": "10000,10000,10000", "imbalanced": "5000,5000,30000"}
FRAMES = {"balanced": 30_000, "imbalanced": 40_000}
#: Seeds that nothing was tuned on.
SEEDS = range(1000, 1010)
#: What is measured. A "control" is not a policy of the package but of this study.
METHODS: dict[str, dict[str, Any]] = {
    "FIFO": {"policy": "fifo"},
    "prioritised": {"policy": "prioritized"},
    "RS": {"policy": "rs", "recent": 0.0},
    "InfoRS td": {"policy": "infors", "target": "td", "recent": 0.0},
    "InfoRS dyn": {"policy": "infors", "target": "dyn", "recent": 0.0},
    "FIFO + RS": {"policy": "rs", "recent": 0.25},
    "FIFO + InfoRS": {"policy": "infors", "target": "dyn", "recent": 0.25},
    "everything": {"policy": "fifo"},
    "RS, thinned": {"policy": "rs", "recent": 0.0, "control": "thinned"},
    "RS, terminals kept": {"policy": "rs", "recent": 0.0, "control": "terminals"},
}
#: Compared at other capacities, too, with the first five seeds.
AT_OTHER_CAPACITIES = ("FIFO", "RS", "FIFO + RS", "FIFO + InfoRS")
#: Single tasks, and what is compared there: few slots of ours, many of TorchRL's.
SINGLE: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"frames": 20_000},
    "Acrobot-v1": {"frames": 40_000, "discount": 0.99},
}
SINGLE_METHODS: dict[str, dict[str, Any]] = {
    "FIFO, 10,000 slots": {"policy": "fifo", "capacity": 10_000},
    "FIFO + InfoRS, 1,000 slots": {
        "policy": "infors",
        "capacity": 1000,
        "recent": 0.25,
    },
}
#: What the report is put between.
BEGIN, END = "<!-- measured -->", "<!-- end -->"
Job = dict[str, Any]


def measurements() -> Iterator[Job]:
    """Every method, setting and seed; what is compared most comes first."""
    for seed, setting, method in itertools.product(SEEDS, LENGTHS, METHODS):
        yield {"method": method, "setting": setting, "capacity": 1000, "seed": seed}
    for seed, setting, capacity, method in itertools.product(
        SEEDS[:5], LENGTHS, (300, 3000), AT_OTHER_CAPACITIES
    ):
        yield {"method": method, "setting": setting, "capacity": capacity, "seed": seed}


def make_config(job: Job) -> DQNConfig:
    """The settings of a run."""
    options = dict(METHODS[job["method"]])
    options.pop("control", None)
    capacity = job["capacity"]
    if job["method"] == "everything":
        capacity = FRAMES[job["setting"]] + 1000
    return DQNConfig(
        lengths=LENGTHS[job["setting"]],
        capacity=capacity,
        seed=job["seed"],
        compiled=True,
        threads=1,
        device="cpu",
        **options,
    )


def pass_rate(job: Job, done: dict[str, dict[str, Any]]) -> float:
    """Share of items that InfoRS (dyn) let pass in the same run once it was full."""
    twin = {**job, "method": "InfoRS dyn"}
    last = done[json.dumps(twin, sort_keys=True)]["result"]["evaluations"][-1]
    size = last["size"]
    passed: float = (last["reservoir_count"] - size) / (last["write_count"] - size)
    return passed


def memory_maker(job: Job, done: dict[str, dict[str, Any]]) -> Callable[..., Any]:
    """What makes the replay buffer of a run."""
    control = METHODS[job["method"]].get("control")
    if control is None:
        return make_memory
    if control == "thinned":
        writer: Any = ThinnedReservoirWriter(pass_rate(job, done))
    else:
        writer = TerminalKeepingReservoirWriter()

    def make(config: DQNConfig, loss: DQNLoss, shape: torch.Size) -> Any:
        return SelectiveReplayBuffer(
            config.capacity,
            writer=writer,
            generator=torch.Generator().manual_seed(config.seed),
        )

    return make


def compact(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what the job tells and digits that tell nothing."""
    defaults = DQNConfig().as_dict()
    kept = {
        name: value
        for name, value in result.items()
        if name == "evaluations" or name not in defaults or value != defaults[name]
    }
    kept.pop("device", None)
    *before, _ = kept["evaluations"] = [dict(event) for event in result["evaluations"]]
    for event in before:  # the counts at the end say it all
        for name in ("size", "write_count", "reservoir_count"):
            event.pop(name, None)
    text = json.dumps(kept)
    return json.loads(text, parse_float=lambda digits: round(float(digits), 4))


def run(job: Job, done: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One run; what came out with the settings that made it."""
    start = time.perf_counter()
    experiment = DQNExperiment(make_config(job), make_memory=memory_maker(job, done))
    result = compact(experiment.run())
    seconds = round(time.perf_counter() - start, 1)
    return {"job": job, "result": result, "seconds": seconds}


def single_measurements() -> Iterator[Job]:
    """Every single task, method and seed."""
    for seed, env, method in itertools.product(SEEDS, SINGLE, SINGLE_METHODS):
        yield {"method": method, "env": env, "seed": seed}


def run_single(job: Job, done: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One run on a single task."""
    start = time.perf_counter()
    config = DQNConfig(
        env=job["env"],
        seed=job["seed"],
        compiled=True,
        threads=1,
        device="cpu",
        **SINGLE[job["env"]],
        **SINGLE_METHODS[job["method"]],
    )
    result = compact(DQNExperiment(config).run())
    seconds = round(time.perf_counter() - start, 1)
    return {"job": job, "result": result, "seconds": seconds}


def single_table() -> str:
    """Return along the run and at its end, and paired differences, as Markdown."""
    runs: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for entry in read_results("q_learning_single").values():
        job = entry["job"]
        key = job["env"], job["method"]
        runs.setdefault(key, {})[job["seed"]] = entry["result"]
    baseline = next(iter(SINGLE_METHODS))
    lines = ["| | mean along the run | at the end | minus the first, mean | seeds |"]
    lines.append("|---" * 5 + "|")
    for env, method in itertools.product(SINGLE, SINGLE_METHODS):
        results, first = runs.get((env, method), {}), runs.get((env, baseline), {})
        gaps = [
            results[seed]["mean"] - first[seed]["mean"]
            for seed in sorted(results.keys() & first.keys())
        ]
        cells = [cell([r[name] for r in results.values()]) for name in ("mean", "end")]
        cells.append("" if method == baseline else cell(gaps))
        lines.append(
            f"| {env}, {method} | " + " | ".join(cells) + f" | {len(results)} |"
        )
    return "\n".join(lines)


def read_results(name: str) -> dict[str, dict[str, Any]]:
    """Finished runs by their jobs."""
    path = RESULTS / f"{name}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    entries = [json.loads(line) for line in lines]
    return {json.dumps(entry["job"], sort_keys=True): entry for entry in entries}


def measure(name: str, jobs: list[Job], run: Callable[..., dict[str, Any]]) -> None:
    """Run jobs that nobody has run yet; each is written at once."""
    # tensordict looks for optional packages at every step of an environment.
    importlib.util.find_spec = functools.cache(importlib.util.find_spec)
    for job in jobs:
        done = read_results(name)  # others may have been busy
        if json.dumps(job, sort_keys=True) in done:
            continue
        entry = run(job, done)
        line = json.dumps(entry, separators=(",", ":")) + "\n"
        handle = os.open(
            RESULTS / f"{name}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
        )
        os.write(handle, line.encode())  # one call: lines of two processes don't mix
        os.close(handle)
        print(json.dumps(job), entry["seconds"], flush=True)


#: What is shown of a run, and how it is called in the table.
COLUMNS = {
    "old_during": "old tasks, while the last is learnt",
    "old_end": "old tasks, at the end",
    "current_end": "last task, at the end",
    "mean_end": "all tasks, at the end",
    "forgetting": "forgetting",
}


def cell(values: list[float]) -> str:
    """Mean and standard error."""
    if len(values) < 2:
        return "-"
    mean, error = mean_and_standard_error(values)
    return f"{mean:.0f} ± {error:.0f}"


def table(setting: str, capacity: int) -> str:
    """Means and standard errors over seeds, as Markdown."""
    runs = select(setting, capacity)
    heads = [*COLUMNS.values(), "terminal share", "memory by task", "seeds"]
    lines = ["| | " + " | ".join(heads) + " |"]
    lines.append("|---" * (len(heads) + 1) + "|")
    for method, results in runs.items():
        cells = [cell([r[name] for r in results.values()]) for name in COLUMNS]
        last = [r["evaluations"][-1] for r in results.values()]
        terminal = np.mean([event["terminal_share"] for event in last])
        shares = np.mean([event["task_shares"] for event in last], axis=0)
        cells.append(f"{100 * terminal:.1f} %")
        cells.append(" / ".join(f"{100 * share:.0f}" for share in shares))
        lines.append(f"| {method} | " + " | ".join(cells) + f" | {len(results)} |")
    return "\n".join(lines)


def select(setting: str, capacity: int) -> dict[str, dict[int, dict[str, Any]]]:
    """Results by method and seed."""
    runs: dict[str, dict[int, dict[str, Any]]] = {method: {} for method in METHODS}
    for entry in read_results("q_learning").values():
        job = entry["job"]
        if (job["setting"], job["capacity"]) == (setting, capacity):
            runs[job["method"]][job["seed"]] = entry["result"]
    return {method: results for method, results in runs.items() if results}


def select_both(capacity: int) -> dict[str, dict[int, dict[str, Any]]]:
    """By method and seed, the means of both settings where there are both."""
    first, second = (select(setting, capacity) for setting in LENGTHS)
    return {
        method: {
            seed: {
                name: (first[method][seed][name] + second[method][seed][name]) / 2
                for name in COLUMNS
            }
            for seed in sorted(first[method].keys() & second[method].keys())
        }
        for method in first
        if method in second
    }


def differences(setting: str | None, capacity: int, baseline: str) -> str:
    """Paired differences to a baseline over the seeds that both have, as Markdown.

    Without a setting, of each seed the mean over both settings.
    """
    runs = select(setting, capacity) if setting else select_both(capacity)
    lines = [f"| minus {baseline} | " + " | ".join(COLUMNS.values()) + " |"]
    lines.append("|---" * (len(COLUMNS) + 1) + "|")
    for method, results in runs.items():
        seeds = sorted(results.keys() & runs.get(baseline, {}).keys())
        if method == baseline or len(seeds) < 2:
            continue
        cells = []
        for name in COLUMNS:
            gaps = [results[s][name] - runs[baseline][s][name] for s in seeds]
            mean, error = mean_and_standard_error(gaps)
            text = f"{mean:+.0f} ± {error:.0f}"
            clear = abs(mean) > 2 * error and len(seeds) >= 5
            cells.append(f"**{text}**" if clear else text)
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report() -> str:
    """All tables, as Markdown."""
    parts = []
    for setting, capacity in itertools.product(LENGTHS, (1000, 300, 3000)):
        name = " / ".join(f"{int(n) // 1000}k" for n in LENGTHS[setting].split(","))
        parts.append(f"## {name} frames, {capacity} slots")
        parts.append(table(setting, capacity))
        baselines = ["FIFO + RS"]
        if capacity == 1000:
            baselines += ["RS", "InfoRS dyn"]
        parts += [differences(setting, capacity, baseline) for baseline in baselines]
    parts.append("## Both settings, 1000 slots")
    baselines = ["RS", "FIFO + RS", "RS, thinned", "RS, terminals kept"]
    baselines += ["FIFO", "everything", "InfoRS td", "InfoRS dyn"]
    parts += [differences(None, 1000, baseline) for baseline in baselines]
    parts += ["## Single tasks", single_table()]
    return "\n\n".join(parts)


def main() -> None:
    """Measure or print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("measure", "single", "report"))
    parser.add_argument("--method", nargs="+", help="only runs of these methods")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th job from i on")
    options = parser.parse_args()
    logging.getLogger("torchrl").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="torchrl")
    if options.kind in ("measure", "single"):
        single = options.kind == "single"
        part, parts = map(int, options.shard.split("/"))
        jobs = [
            job
            for job in (single_measurements() if single else measurements())
            if (not options.method or job["method"] in options.method)
            and job["seed"] % parts == part
        ]
        if single:
            measure("q_learning_single", jobs, run_single)
        else:
            measure("q_learning", jobs, run)
        return
    page = RESULTS / "q_learning.md"
    before, rest = page.read_text().split(BEGIN)
    _, after = rest.split(END)
    page.write_text(before + BEGIN + "\n\n" + report() + "\n\n" + END + after)


if __name__ == "__main__":
    main()
