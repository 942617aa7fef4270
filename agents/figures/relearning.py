"""Relearning from the memory (Figure "Relearning performance of the memory", left).

The features of a trained network are a stream of one epoch, class after class. A linear
classifier is then fitted to the memory only; its test accuracy says how good the memory
is (Sec. "Demonstrating the Criteria By A Greedy Algorithm").
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.figures.feature_files import Features, read_features
from agents.figures.memories import check_size, method_settings, select_memory
from agents.figures.settings import (
    METHODS,
    RelearningSettings,
    parse_methods,
    parse_numbers,
)
from agents.figures.style import METHOD_COLORS, drawing
from agents.report.statistics import Estimate, estimate
from agents.runs.folder import RunError
from agents.sweeps.results import ResultsFile, code_version, code_versions_of

__all__ = ["Case", "make", "relearn", "results_path", "run_cases"]

_SHIFT = 1.03  # of points along the logarithmic axis


class Case(NamedTuple):
    """One memory to select and to learn from.

    Attributes:
        method: one of :data:`~agents.figures.settings.METHODS`.
        size: of the memory.
        seed: of the order of items and of the policy.
        settings: all that the result depends on, by name.
    """

    method: str
    size: int
    seed: int
    settings: dict[str, Any]

    @property
    def key(self) -> str:
        """A name that no other case has, the same in every process."""
        told = json.dumps(self.settings, sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


class _Results(ResultsFile):
    """Results beside a picture rather than in the folder of a sweep."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent)
        self.path = path


def results_path(out: Path) -> Path:
    """The file of results beside a picture.

    Args:
        out: the picture.

    Example:
        >>> results_path(Path("figures/relearning.pdf")).name
        'relearning.jsonl'
    """
    return out.with_suffix(".jsonl")


def make(settings: RelearningSettings, out: Path) -> list[str]:
    """Do what has no result yet, and draw the figure.

    Args:
        settings: of the figure.
        out: the file.

    Returns:
        Lines of a table of what the figure shows.

    Raises:
        RunError: if results are damaged or of another version of the code, or cannot
            be written, or a size is larger than the stream.
        DatasetError: if the features cannot be read.
    """
    features = read_features(settings.features)
    cases = _cases(settings, features)
    rows = run_cases(cases, features, settings, results_path(out))
    found: dict[tuple[str, int], Estimate] = {}
    for method in parse_methods(settings.methods):
        for size in sorted(parse_numbers("sizes", settings.sizes)):
            accuracies = [
                100 * rows[case.key]["result"]["accuracy"]
                for case in cases
                if (case.method, case.size) == (method, size)
            ]
            found[method, size] = estimate(accuracies)
    _draw(out, found)
    return _table(found)


def _cases(settings: RelearningSettings, features: Features) -> list[Case]:
    """All cases, seed after seed, so that a part of them is already a comparison."""
    sizes = parse_numbers("sizes", settings.sizes)
    try:
        check_size(features, max(sizes))
    except ValueError as error:
        raise RunError(str(error)) from error
    common = {
        "figure": "relearning",
        "features": features.digest,
        "classes_per_task": settings.classes_per_task,
        "batch_size": settings.batch_size,
        "penalty": settings.penalty,
    }
    cases = []
    for seed in parse_numbers("seeds", settings.seeds):
        for size in sizes:
            for method in parse_methods(settings.methods):
                own = method_settings(method, settings)
                its = {"method": method, "size": size, "seed": seed}
                cases.append(Case(method, size, seed, {**common, **its, **own}))
    return cases


def run_cases(
    cases: Iterable[Case],
    features: Features,
    settings: RelearningSettings,
    path: Path,
) -> dict[str, dict[str, Any]]:
    """Do the cases that have no result yet, each appended to the file at once.

    Args:
        cases: to do.
        features: of the stream and of the test.
        settings: of the figure.
        path: the file of results.

    Returns:
        The rows of all cases, by their keys.

    Raises:
        RunError: if the file is damaged or cannot be written, or results of several
            versions of the code would be mixed; nothing is changed then.
    """
    from tqdm import tqdm

    results, version = _Results(path), code_version()
    wanted = {case.key: case for case in cases}
    rows = {row["key"]: row for row in results.repair() if row["key"] in wanted}
    waiting = [case for key, case in wanted.items() if key not in rows]
    versions = code_versions_of([*rows.values(), *([version] if waiting else [])])
    if len(versions) > 1 and not settings.mixed:
        commits = ", ".join(sorted({str(commit) for commit, _ in versions}))
        raise RunError(
            f"{path} has results of another version of the code ({commits}): choose "
            "another --out, or allow it with --mixed"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {path} ({error})") from error
    # Not shown at once: there may be nothing to do.
    with tqdm(waiting, desc="relearning", unit="memory", delay=0.5) as bar:
        for case in bar:
            rows[case.key] = row = _run(case, features, settings, version)
            results.append(row)
    return rows


def _run(
    case: Case,
    features: Features,
    settings: RelearningSettings,
    version: dict[str, Any],
) -> dict[str, Any]:
    """The row of one case."""
    start = time.perf_counter()
    memory = select_memory(features, case.method, case.size, case.seed, settings)
    selected = time.perf_counter()
    accuracy = relearn(features, memory, penalty=settings.penalty)
    counts = np.bincount(features.train_labels[memory], minlength=len(features.names))
    return {
        "key": case.key,
        "method": METHODS[case.method],
        "result": {
            **case.settings,
            "accuracy": accuracy,
            "class_counts": counts.tolist(),
        },
        "seconds": {
            "select": round(selected - start, 3),
            "relearn": round(time.perf_counter() - selected, 3),
        },
        **version,
    }


def relearn(
    features: Features, memory: NDArray[np.int64], *, penalty: float = 1.0
) -> float:
    """Test accuracy of a linear classifier that was fitted to the memory only.

    Args:
        features: of training and test set.
        memory: numbers of training items.
        penalty: L2 penalty of the weights.

    Returns:
        The share of test items that are classified correctly.
    """
    from sklearn.linear_model import LogisticRegression

    labels = features.train_labels[memory]
    if len(np.unique(labels)) == 1:  # nothing to separate
        return float((features.test_labels == labels[0]).mean())
    classifier = LogisticRegression(C=1 / penalty, max_iter=10_000)
    # In double precision: the fit is the same whatever else the machine does.
    classifier.fit(features.train[memory].astype(np.float64), labels)
    return float(
        classifier.score(features.test.astype(np.float64), features.test_labels)
    )


def _draw(out: Path, found: dict[tuple[str, int], Estimate]) -> None:
    sizes = sorted({size for _, size in found})
    markers = {"rs": "o", "infogs": "s", "infogs-eta0": "^"}
    with drawing(out, 1, 1, (5.2, 3.6)) as (_, axes):
        axis = axes[0, 0]
        methods = [*dict.fromkeys(method for method, _ in found)]
        for number, method in enumerate(methods):
            estimates = [found[method, size] for size in sizes]
            means = np.array([each.mean for each in estimates])
            ends = np.array([(each.low, each.high) for each in estimates]).T
            # Side by side: intervals of similar methods would hide each other.
            shift = _SHIFT ** (number - (len(methods) - 1) / 2)
            axis.errorbar(
                np.array(sizes) * shift,
                means,
                # Rounding may put an end on the wrong side of the mean.
                yerr=np.abs(ends - means),
                marker=markers[method],
                markersize=5,
                capsize=3,
                color=METHOD_COLORS[method],
                label=METHODS[method],
            )
        axis.set_xscale("log")
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel("size of the memory")
        axis.set_ylabel("test accuracy after relearning (%)")
        axis.legend(loc="lower right")


def _table(found: dict[tuple[str, int], Estimate]) -> list[str]:
    lines = [f"{'size':>5}  {'method':<28}{'accuracy (%)':>12}  95 % interval   seeds"]
    for (method, size), each in sorted(found.items(), key=lambda pair: pair[0][1]):
        name, interval = METHODS[method], f"{each.low:5.2f} to {each.high:5.2f}"
        lines.append(f"{size:5}  {name:<28}{each.mean:12.2f}  {interval}  {each.seeds}")
    return lines
