"""How good a learner is on every task, by any metric: :class:`Evaluator`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.objects import is_object, object_name
from agents.supervised.learner import Learner
from continual_envs import StreamEnv
from info_replay.registry import Registry

__all__ = ["METRICS", "Evaluator", "Metric", "MetricError", "named_metrics"]

_BATCH = 1000

#: Gives a number for the targets and the predictions of a task, in this order, as those
#: of scikit-learn do; both in the units of the user's data.
Metric = Callable[[NDArray[Any], NDArray[Any]], float]
#: Metrics by name; ``"module:function"`` finds any.
METRICS: Registry[Metric] = Registry("metric", "info_replay.metrics")


def named_metrics(
    metrics: Mapping[str, Metric] | Iterable[str | Metric] | None,
) -> dict[str, Metric]:
    """Metrics by the names that results have them under.

    Args:
        metrics: by name, or functions and names such as ``"sklearn.metrics:r2_score"``,
            which are called by the last part of their names.

    Raises:
        ValueError: if there is no such metric, or two have one name.

    Example:
        >>> list(named_metrics(["sklearn.metrics:r2_score"]))
        ['r2_score']
    """
    if isinstance(metrics, Mapping):
        return {name: _checked(name, metric) for name, metric in metrics.items()}
    if isinstance(metrics, str) or callable(metrics):
        metrics = [metrics]
    found: dict[str, Metric] = {}
    for metric in metrics or ():
        if isinstance(metric, str) and is_object(metric):
            raise ValueError(
                f"metric {metric} was an object in Python: give it again there, as in "
                "train(..., metrics=...)"
            )
        name = object_name(metric).strip("<>")
        name = name.rpartition(":")[2].rpartition(".")[2]
        if name in found:
            raise ValueError(
                f"metrics must have names of their own, got {name!r} twice"
            )
        known = METRICS.get(metric) if isinstance(metric, str) else metric
        found[name] = _checked(name, known)
    return found


def _checked(name: str, metric: Any) -> Metric:
    if name in ("", "kind", "step"):
        raise ValueError(f"a metric needs a name other than 'step', got {name!r}")
    if not callable(metric):
        raise ValueError(
            f"metric {name!r} must be a function of targets and predictions, got "
            f"{metric!r}"
        )
    return metric


class MetricError(ValueError):
    """A metric does not give what it should."""


class Evaluator:
    """Scores a learner on every task of a stream.

    Args:
        env: the stream, whose evaluation sets are used.
        metrics: of the user's, by name.

    Raises:
        MetricError: if there are metrics and nothing to evaluate on.

    Example:
        >>> from agents.supervised.config import ExperimentConfig
        >>> from agents.supervised.experiment import Experiment
        >>> run = Experiment(ExperimentConfig.preset("SplitDigits", policy="rs"))
        >>> def share_of_first_class(targets, predictions):
        ...     return (predictions == targets.min()).mean()
        >>> metrics = named_metrics([share_of_first_class])
        >>> scores, others = Evaluator(run.env, metrics).evaluate(run.agent)
        >>> len(scores), {name: len(found) for name, found in others.items()}
        (5, {'share_of_first_class': 5})
    """

    def __init__(self, env: StreamEnv, metrics: Mapping[str, Metric]) -> None:
        self.env = env
        self.metrics = dict(metrics)
        if self.metrics and not env.evaluation_sets:
            raise MetricError(
                f"metrics need test data (test=...), which {env.name} has not"
            )

    def evaluate(self, agent: Learner) -> tuple[list[float], dict[str, list[float]]]:
        """Score every task as things are.

        Args:
            agent: the learner.

        Returns:
            The score of each task, accuracy or negative squared error, and that of each
            metric.

        Raises:
            MetricError: if a metric gives something that is not a finite number.
        """
        scores: list[float] = []
        others: dict[str, list[float]] = {name: [] for name in self.metrics}
        for part in self.env.evaluation_sets:
            total = 0.0
            seen: list[tuple[NDArray[Any], NDArray[Any]]] = []
            for inputs, targets in part.batches(_BATCH):
                prediction = agent.predict(inputs)
                if self.env.dataset.num_classes is not None:
                    total += float((prediction == targets).sum())
                else:
                    error = np.square(prediction - targets)
                    total -= float(error.sum()) / (error.size // len(targets))
                if self.metrics:
                    seen.append((targets, prediction))
            scores.append(total / len(part))
            if self.metrics:
                both = map(np.concatenate, zip(*seen, strict=True))
                known, predicted = map(self._in_units, both)
                for name, metric in self.metrics.items():
                    others[name].append(_number(name, metric(known, predicted)))
        return scores, others

    def _in_units(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Numbers as the user's data has them; classes as they are."""
        units = self.env.dataset.standardization
        if units is None or self.env.dataset.num_classes is not None:
            return numbers
        return units.restore(numbers)


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise MetricError(f"metric {name!r} must give a finite number, got {value!r}")
    return number
