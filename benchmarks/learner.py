"""What the memory costs a learner, and what our run costs beside a bare loop.

Split MNIST, DER++ with the paper's sizes, one thread, evaluation excluded. Contestants
take turns in slices of the stream, so that a noisy machine disturbs all alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows

from agents.config import ExperimentConfig
from agents.experiment import Experiment
from agents.networks import make_network
from benchmarks.timing import report, row

STEPS = 400
SLICE = 20


class BareLoop:
    """DER++ with a plain-tensor reservoir: the same steps without any of our parts."""

    def __init__(self, config: ExperimentConfig, order: list[torch.Tensor]) -> None:
        env = Experiment(config).env
        self.images = torch.from_numpy(env.dataset.train.inputs.copy())
        self.labels = torch.from_numpy(env.dataset.train.targets.copy())
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


def race(contestants: dict[str, Callable[[], None]], steps: int) -> dict[str, float]:
    """Seconds of each contestant's slices, in sum."""
    spent = dict.fromkeys(contestants, 0.0)
    for _ in range(steps // SLICE):
        for name, step in contestants.items():
            start = time.perf_counter()
            for _ in range(SLICE):
                step()
            spent[name] += time.perf_counter() - start
    return spent


def experiment(env: str, policy: str, **options: object) -> Callable[[], None]:
    """A step of one of our runs."""
    config = ExperimentConfig.preset(env, policy=policy, threads=1, **options)
    return Experiment(config)._advance


def main() -> None:
    """Measure everything and print one table."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = ExperimentConfig.preset("SplitMNIST", policy="rs", threads=1)
    env = Experiment(config).env
    stream = env._stream
    order = []
    for start in range(0, 128 * STEPS, 128):
        parts = [samples for _, samples in stream.take(start, start + 128)]
        order.append(torch.from_numpy(np.concatenate(parts)))
    spent = race(
        {
            "bare": BareLoop(config, order).step,
            "rs": experiment("SplitMNIST", "rs"),
            "infors": experiment("SplitMNIST", "infors"),
        },
        STEPS,
    )
    rows = [
        row("Split MNIST: InfoRS / RS", spent["infors"] / spent["rs"], "x", 1.25),
        row("Split MNIST: RS / bare loop", spent["rs"] / spent["bare"], "x", 1.5),
        row(
            "Split MNIST: InfoRS / bare loop", spent["infors"] / spent["bare"], "x", 1.5
        ),
    ]
    for env_name, capacity in (("SplitCIFAR10", 200), ("SplitMiniImageNet", 1000)):
        spent = race(
            {
                policy: experiment(env_name, policy, capacity=capacity)
                for policy in ("rs", "infors")
            },
            40,
        )
        what = f"{env_name}, ResNet-18, M={capacity}: InfoRS / RS"
        rows.append(row(what, spent["infors"] / spent["rs"], "x", 1.05))
    report("learner", rows)


if __name__ == "__main__":
    main()
