"""What the memory costs a learner, and what our run costs beside a bare loop.

DER++ with the paper's sizes, one thread. Contestants take turns of a few steps, so that
a noisy machine disturbs all alike, in another order every time: who follows somebody
of its own kind finds warmer caches. They run the whole stream several times: a turn is
the same work every time, so the median of its ratios counts. Needs all three data sets.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows

from agents.supervised.config import ExperimentConfig
from agents.supervised.experiment import Experiment
from agents.supervised.networks import make_network
from benchmarks.streams import indexed
from benchmarks.timing import one_thread, report, row

TURN = 10
IMAGE_STEPS = 20
ROUNDS = 12  # twice each order of three contestants


class BareLoop:
    """DER++ with a plain-tensor reservoir: the same steps without any of our parts."""

    def __init__(
        self,
        config: ExperimentConfig,
        images: torch.Tensor,
        labels: torch.Tensor,
        order: list[torch.Tensor],
    ) -> None:
        self.images = images
        self.labels = labels
        self.order = iter(order)
        self.config = config
        self.network = make_network("fc", (1, 28, 28), 10, config.seed)
        self.sgd = torch.optim.SGD(self.network.parameters(), lr=config.learning_rate)
        self.memory: list[torch.Tensor] = []
        self.seen = 0
        self.hits = 0

    def step(self) -> None:
        config = self.config
        samples = next(self.order)
        images, labels = self.images[samples], self.labels[samples]
        _, logits = self.network(images.float() / 255)
        self.hits += int((logits.argmax(1) == labels).sum())
        loss = F.cross_entropy(logits, labels)
        if self.memory:
            size = min(self.seen, config.capacity)
            first, second = (
                torch.randperm(size)[: config.replay_batch_size] for _ in range(2)
            )
            replayed = torch.cat([self.memory[0][first], self.memory[0][second]])
            _, outputs = self.network(replayed.float() / 255)
            before, now = outputs[: len(first)], outputs[len(first) :]
            loss = loss + config.alpha * F.mse_loss(before, self.memory[2][first])
            loss = loss + config.beta * F.cross_entropy(now, self.memory[1][second])
        self.sgd.zero_grad()
        loss.backward()
        self.sgd.step()
        self.remember(images, labels, logits.detach())

    def turn(self, steps: int) -> tuple[float, float]:
        """Seconds of some steps; nothing is evaluated."""
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        return time.perf_counter() - start, 0.0

    def remember(self, *items: torch.Tensor) -> None:
        capacity = self.config.capacity
        if not self.memory:
            self.memory = [item.new_zeros(capacity, *item.shape[1:]) for item in items]
        count = len(items[0])
        numbers = torch.arange(self.seen, self.seen + count)
        drawn = (torch.rand(count, dtype=torch.float64) * (numbers + 1)).long()
        slots = torch.where(numbers < capacity, numbers, drawn)
        self.seen += count
        # Few are kept once the stream is long; in order, so that the last one stays.
        for place in (slots < capacity).nonzero().flatten().tolist():
            for kept, item in zip(self.memory, items, strict=True):
                kept[slots[place]] = item[place]


class OurRun:
    """A run of ours, a few steps at a time; metrics and progress included."""

    def __init__(self, policy: str) -> None:
        self.experiment = Experiment(
            ExperimentConfig.preset("SplitMNIST", policy=policy, threads=1)
        )

    def turn(self, steps: int) -> tuple[float, float]:
        """Seconds of some steps, and those of the evaluations among them."""
        experiment, watch = self.experiment, self.experiment.agent.stopwatch
        before = watch.seconds.get("evaluation", 0.0)
        start = time.perf_counter()
        for _ in range(steps):
            experiment.advance()
            _ = experiment.recent_reward
            if experiment.step in experiment.evaluation_steps:
                experiment.evaluate()
        seconds = time.perf_counter() - start
        return seconds, watch.seconds.get("evaluation", 0.0) - before


#: Of a contestant, the seconds of each turn in each round.
Times = dict[str, list[list[float]]]


def measure(config: ExperimentConfig) -> Times:
    """Time each contestant, with and without evaluation."""
    env = Experiment(config).env
    images, labels, order = indexed(env, config.seed)
    data = (
        torch.from_numpy(images),
        torch.from_numpy(labels),
        [torch.from_numpy(batch) for batch in order],
    )
    turns = [min(TURN, env.num_steps - n) for n in range(0, env.num_steps, TURN)]
    times: Times = {}
    for sequence in itertools.islice(
        itertools.cycle(itertools.permutations(("bare", "rs", "infors"))), ROUNDS
    ):
        contestants: dict[str, Callable[[int], tuple[float, float]]] = {
            "bare": BareLoop(config, *data).turn,
            **{policy: OurRun(policy).turn for policy in ("rs", "infors")},
        }
        for turn, steps in enumerate(turns):
            for name in sequence:
                seconds, evaluation = contestants[name](steps)
                for what, spent in (
                    (name, seconds - evaluation),
                    (f"{name} and evaluation", seconds),
                ):
                    times.setdefault(what, [[] for _ in turns])[turn].append(spent)
    return times


def ratio(
    what: str, times: Times, above: str, below: str, limit: float | None = None
) -> dict[str, Any]:
    """How many times as long one contestant takes for the stream as another.

    Of each turn, the median of its ratios, weighed with the median of its time; the
    spread is that of whole rounds.
    """
    weights = [statistics.median(turn) for turn in times[below]]
    ratios = [
        statistics.median(a / b for a, b in zip(*turn, strict=True))
        for turn in zip(times[above], times[below], strict=True)
    ]
    value = sum(r * w for r, w in zip(ratios, weights, strict=True)) / sum(weights)
    rounds = [
        sum(a) / sum(b)
        for a, b in zip(
            zip(*times[above], strict=True),
            zip(*times[below], strict=True),
            strict=True,
        )
    ]
    return row(what, value, "x", limit, spread=(min(rounds), max(rounds)))


def filled(env: str, policy: str, capacity: int) -> Experiment:
    """A run whose memory is full already: learning would take too long."""
    config = ExperimentConfig.preset(env, policy=policy, capacity=capacity, threads=1)
    experiment = Experiment(config)
    agent = experiment.agent
    agent.learn = agent.remember  # type: ignore[method-assign]
    while len(agent.memory) < capacity:
        experiment.advance()
    del agent.learn
    return experiment


def image_ratio(env: str, capacity: int) -> float:
    """InfoRS over RS with ResNet-18, in turns, step by step."""
    runs = {policy: filled(env, policy, capacity) for policy in ("rs", "infors")}
    times: dict[str, list[float]] = {policy: [] for policy in runs}
    for turn in range(IMAGE_STEPS + 2):
        for policy, experiment in runs.items():
            start = time.perf_counter()
            experiment.advance()
            if turn >= 2:
                times[policy].append(time.perf_counter() - start)
    return statistics.median(times["infors"]) / statistics.median(times["rs"])


def main() -> None:
    """Measure everything and print one table."""
    one_thread()
    torch.manual_seed(0)
    config = ExperimentConfig.preset("SplitMNIST", policy="rs", threads=1)
    times = measure(config)
    run, bare = "Split MNIST", "bare loop, evaluation excluded"
    both = "infors and evaluation", "rs and evaluation"
    rows = [
        ratio(f"{run}, whole run: InfoRS / RS", times, *both, 1.25),
        ratio(f"{run}, evaluation excluded: InfoRS / RS", times, "infors", "rs", 1.25),
        ratio(f"{run}: RS / {bare}", times, "rs", "bare", 1.5),
        # The bare loop's reservoir does the work of RS, so this has no bound.
        ratio(f"{run}: InfoRS / {bare}", times, "infors", "bare"),
    ]
    for env, capacity in (("SplitCIFAR10", 200), ("SplitMiniImageNet", 1000)):
        what = f"{env}, ResNet-18, M={capacity}: InfoRS / RS"
        rows.append(row(what, image_ratio(env, capacity), "x", 1.05))
    report("learner", rows)


if __name__ == "__main__":
    main()
