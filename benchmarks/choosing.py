"""The tables and the picture of docs/choosing.md, from stored rows of sweeps.

``python -m benchmarks.choosing`` compares ``auto`` with every other policy, seed by
seed, on every stream of ``docs/results/policy_test.jsonl.gz`` and
``policy_streams.jsonl.gz``, prints the tables and draws ``docs/_static/choosing.png``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agents.figures.style import COLORS, drawing, line_style
from agents.report.paper_numbers import IMBALANCES, PAPER
from agents.report.statistics import Estimate, estimate, joint_error
from agents.sweeps.results import read_rows

_DOCS = Path(__file__).parent.parent / "docs"
_FILES = ("policy_test.jsonl.gz", "policy_streams.jsonl.gz")
_DEFAULT = "auto"

#: Of each stream, in the order in which they are shown: scores by method and seed.
Streams = Mapping[str, Mapping[str, Mapping[int, float]]]


def read_streams(paths: Iterable[Path]) -> Streams:
    """The scores of all rows, in percent, or the squared error as it is.

    Args:
        paths: of the results of sweeps.

    Returns:
        By stream, method and seed.
    """
    found: dict[str, dict[str, dict[int, float]]] = defaultdict(dict)
    imbalances: dict[str, int] = {}
    for path in paths:
        for row in read_rows(path):
            result = row["result"]
            if "average" not in result:
                continue  # it diverged
            score = result["average"]
            score = 100 * score if result["metric"] == "accuracy" else -score
            scores = found[_stream_of(result)].setdefault(row["method"], {})
            scores[result["seed"]] = score
            imbalances[_stream_of(result)] = result["imbalance"]
    # As they come, but for the imbalance, of which the largest came first.
    kinds = {name: name.replace(f", r = {imbalances[name]}", "") for name in found}
    places = [*dict.fromkeys(kinds.values())]
    order = sorted(found, key=lambda it: (places.index(kinds[it]), imbalances[it]))
    return {name: found[name] for name in order}


def _stream_of(result: Mapping[str, Any]) -> str:
    name = str(result["env"] or result["data"].rpartition(":")[2])
    shapes = {"imbalance": "r", "longtail": "tail", "blur": "blur", "width": "width"}
    values = ((label, result[key]) for key, label in shapes.items())
    told = [f"{label} = {value:g}" for label, value in values if value]
    return ", ".join([name, *told])


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate:
    """The mean difference, paired by the seeds that both have."""
    return estimate([ours[seed] - theirs[seed] for seed in ours if seed in theirs])


def _told(found: Estimate, sign: str = "") -> str:
    size = max(abs(found.mean), 1e-9)
    digits = 1 if size >= 0.05 else 1 - math.floor(math.log10(size))
    error = "" if found.error is None else f" ± {found.error:.{digits}f}"
    return f"{found.mean:{sign}.{digits}f}{error}"


def print_scores(streams: Streams) -> None:
    """Means of all policies on all streams, and paired differences from the default."""
    methods = list(dict.fromkeys(name for each in streams.values() for name in each))
    print("| stream | seeds | " + " | ".join(methods) + " |")
    print("|---" * (len(methods) + 2) + "|")
    for stream, scores in streams.items():
        cells = []
        for method in methods:
            if method not in scores:
                cells.append("")
                continue
            cell = _told(estimate([*scores[method].values()]))
            if method != _DEFAULT:
                apart = difference(scores[_DEFAULT], scores[method])
                cell += f" ({_told(apart, '+')})"
            cells.append(cell)
        print(f"| {stream} | {len(scores[_DEFAULT])} | " + " | ".join(cells) + " |")


def print_cells(streams: Streams) -> None:
    """The eight cells of MNIST: the default, our best other policy, the paper's."""
    print(
        "\n| cell | auto | our best other | difference / joint se | the paper's best |"
    )
    print("|---|---|---|---|---|")
    for env in ("SplitMNIST", "PermutedMNIST"):
        for column, imbalance in enumerate(IMBALANCES):
            scores = streams.get(f"{env}, r = {imbalance}")
            if scores is None:
                continue
            means = {name: estimate([*its.values()]) for name, its in scores.items()}
            ours = means.pop(_DEFAULT)
            if not means:
                continue
            best = max(means, key=lambda name: means[name].mean)
            error = joint_error(ours.error, means[best].error)
            apart = (ours.mean - means[best].mean) / error if error else math.nan
            paper = max(row[column].mean for row in PAPER["average"][env].values())
            print(
                f"| {env}, r = {imbalance} | {_told(ours)} | {best} "
                f"{_told(means[best])} | {apart:+.1f} | {paper:.1f} |"
            )


def draw(streams: Streams, path: Path) -> None:
    """How far each policy is behind the default on each stream, with 95 % intervals."""
    shown = {name: its for name, its in streams.items() if "rotations" not in name}
    methods = list(dict.fromkeys(name for each in shown.values() for name in each))
    height = 0.36 * len(shown) + 1.0
    with drawing(path, 1, 1, (7.0, height)) as (_, ((axes,),)):
        axes.axvline(0, color=COLORS["purple"], linewidth=2)
        labeled: set[str] = set()
        for place, scores in enumerate(shown.values()):
            others = [name for name in methods if name in scores and name != _DEFAULT]
            for number, method in enumerate(others):
                apart = difference(scores[method], scores[_DEFAULT])
                style = line_style(method, number)
                axes.errorbar(
                    apart.mean,
                    place + 0.12 * (number - (len(others) - 1) / 2),
                    xerr=[[apart.mean - apart.low], [apart.high - apart.mean]],
                    markersize=5,
                    linewidth=1,
                    label=None if method in labeled else method,
                    **style,
                )
                labeled.add(method)
        axes.set_yticks(range(len(shown)), list(shown))
        axes.invert_yaxis()
        axes.set_xlabel("accuracy beside that of auto, points (paired, 95 % interval)")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def main() -> None:
    """Print the tables and draw the picture."""
    streams = read_streams(_DOCS / "results" / name for name in _FILES)
    print_scores(streams)
    print_cells(streams)
    draw(streams, _DOCS / "_static" / "choosing.png")


if __name__ == "__main__":
    main()
