"""The process that ``benchmarks.against`` measures, one per worktree.

It runs by its path, with a worktree as working directory and first on the module path.
It uses public names only, and nothing of ``benchmarks``, so that it can measure code of
any age. It prints the names of its workloads as a line of JSON. For every name that it
reads it does one turn of that workload and prints the seconds.
"""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

import info_replay
from info_replay import SelectiveReplayBuffer, make_replay_buffer

CLASSES, WIDTH, BATCH = 10, 100, 128
#: Where names are, in new code and in old code.
PLACES = {
    "DERPlusPlusAgent": ("agents.supervised.derpp", "agents.derpp"),
    "make_network": ("agents.supervised.networks", "agents.networks"),
    "SubsetSampler": ("agents.supervised.samplers", "agents.samplers"),
}


@dataclass(frozen=True)
class Workload:
    """Something to measure.

    Args:
        call: what is timed.
        prepare: makes its argument, before every call, untimed.
        calls: number of calls of a turn.
        begin: brings the memory into the same state before every turn, untimed.
    """

    call: Callable[[Any], object]
    prepare: Callable[[], Any]
    calls: int
    begin: Callable[[], object] | None = None

    def turn(self) -> float:
        """Do one turn; gives the seconds of the processor for one call."""
        if self.begin is not None:
            self.begin()
        seconds = 0.0
        for _ in range(self.calls):
            argument = self.prepare()
            start = time.process_time()
            self.call(argument)
            seconds += time.process_time() - start
        return seconds / self.calls


def batches(size: int = BATCH, number: int = 32, seed: int = 0) -> Iterator[TensorDict]:
    """Batches of clustered items without end; made in advance, then repeated."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(number):
        labels = torch.randint(CLASSES, (size,), generator=generator)
        noise = torch.rand(size, WIDTH, generator=generator)
        entries = {
            "observation": torch.randn(size, 784, generator=generator),
            "logits": torch.randn(size, CLASSES, generator=generator),
            "target": labels,
            "feature": torch.nn.functional.one_hot(labels, WIDTH) + 0.3 * noise,
        }
        made.append(TensorDict(entries, batch_size=[size]))
    return itertools.cycle(made)


def gradients(items: TensorDictBase) -> Tensor:
    """Gradients of groups of items, for GSS: mean squared error of a linear model."""
    errors = items["feature"].sum(-1) - items["target"]
    return (errors.unsqueeze(-1) * items["feature"]).mean(1)


def memory(
    policy: str, capacity: int, offered: int = 20_000, **options: Any
) -> SelectiveReplayBuffer:
    """A memory that has been offered some items."""
    if policy in ("cbrs", "coreset", "infogs", "infors"):
        options["num_classes"] = CLASSES
    if policy == "gss":
        options["gradients"] = gradients
    generator = torch.Generator().manual_seed(0)
    buffer = make_replay_buffer(policy, capacity, generator=generator, **options)
    stream = batches(number=8, seed=1)
    for _ in range(offered // BATCH):
        buffer.extend(next(stream))
    return buffer


def refreshed(buffer: SelectiveReplayBuffer) -> TensorDictBase:
    """A sample with new features."""
    sample = buffer.sample(BATCH)
    # Other features each time, that stay what they are in size.
    sample["feature"] = sample["feature"].roll(1, 1)
    return sample


def extends() -> Iterator[tuple[str, Workload]]:
    """Batches that are offered to each policy."""
    feed = batches().__next__
    for policy, calls, offered in (
        ("rs", 60, 20_000),
        ("wrs", 30, 20_000),
        ("cbrs", 30, 20_000),
        ("fss-clust", 6, 20_000),
        ("gss", 5, 20_000),
        ("coreset", 1, 2_000),
        ("infogs", 6, 5_000),
        ("infors", 15, 20_000),
    ):
        buffer = memory(policy, 100, offered)
        yield f"extend 128, {policy}, M=100", Workload(buffer.extend, feed, calls)
    for policy, calls in (("rs", 40), ("infors", 3)):
        buffer = memory(policy, 10_000, 40_000)
        yield f"extend 128, {policy}, M=10,000", Workload(buffer.extend, feed, calls)
    buffer = memory("infors", 100, gamma=2.0)
    little = Workload(buffer.extend, feed, 15)
    yield "extend 128, infors, M=100, little passes", little
    busy = memory("infors", 100, 0, gamma=-3.0)

    def refill() -> None:
        busy.empty()
        busy.extend(feed())

    much = Workload(busy.extend, feed, 2, refill)
    yield "extend 128, infors, M=100, much passes", much
    buffer = memory("infors", 10_000, 20_000, gamma=-3.0)
    much = Workload(buffer.extend, feed, 2)
    yield "extend 128, infors, M=10,000, much passes", much


def other_calls() -> Iterator[tuple[str, Workload]]:
    """What else a learner asks of a memory."""
    feed, single = batches().__next__, batches(1).__next__

    def write_back(buffer: SelectiveReplayBuffer) -> Workload:
        update = buffer.update_tensordict_priority
        return Workload(update, lambda: refreshed(buffer), 30)

    def both(buffer: SelectiveReplayBuffer) -> Workload:
        def call(argument: tuple[TensorDictBase, TensorDict]) -> None:
            buffer.update_tensordict_priority(argument[0])
            buffer.extend(argument[1])

        return Workload(call, lambda: (refreshed(buffer), feed()), 8)

    def sample(buffer: SelectiveReplayBuffer) -> Workload:
        return Workload(buffer.sample, lambda: BATCH, 30)

    def add(buffer: SelectiveReplayBuffer) -> Workload:
        return Workload(buffer.add, lambda: single()[0], 40)

    for policy, capacity in (("infors", 100), ("infors", 10_000), ("fss-clust", 100)):
        where = f"{policy}, M={capacity:,}"
        yield f"write-back 128, {where}", write_back(memory(policy, capacity))
        yield f"write-back + extend 128, {where}", both(memory(policy, capacity))
    for policy, capacity in (("rs", 100), ("infors", 100), ("infors", 10_000)):
        yield f"sample 128, {policy}, M={capacity:,}", sample(memory(policy, capacity))
    for policy in ("rs", "cbrs", "infors"):
        yield f"add one item, {policy}, M=100", add(memory(policy, 100))


def learning_steps() -> Iterator[tuple[str, Workload]]:
    """Whole steps of a supervised learner."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(16, BATCH, 1, 28, 28), dtype=np.uint8)
    labels = rng.integers(CLASSES, size=(16, BATCH))
    for policy in ("rs", "infors"):
        network = find("make_network")("fc", (1, 28, 28), CLASSES, 0)
        buffer = memory(policy, 100, 0, sampler=find("SubsetSampler")())
        agent = find("DERPlusPlusAgent")(network, buffer, num_classes=CLASSES)
        order = itertools.cycle(range(len(images)))

        def step(number: int, agent: Any = agent) -> None:
            agent.act(images[number])
            agent.learn(images[number], labels[number])

        name = f"act + learn 128, {policy}, M=100"
        yield name, Workload(step, order.__next__, 2)


def find(name: str) -> Any:
    """A name of the agents, wherever it is."""
    for place in PLACES[name]:
        try:
            return getattr(importlib.import_module(place), name)
        except ModuleNotFoundError as error:
            # The name of a parent may be missing, too; other errors are real.
            if not place.startswith(error.name or "?"):
                raise
    raise ImportError(f"{name} is in none of {', '.join(PLACES[name])}")


def main() -> None:
    """Do turns until the input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what others print
    logging.getLogger("torchrl").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = Path(info_replay.__file__).resolve()
    if not found.is_relative_to(Path.cwd().resolve()):
        raise RuntimeError(f"info_replay is {found}, expected it in {Path.cwd()}")
    groups = (extends, other_calls, learning_steps)
    workloads = {name: work for group in groups for name, work in group()}
    print(json.dumps(list(workloads)), file=answers, flush=True)
    for line in sys.stdin:
        print(workloads[line.strip()].turn(), file=answers, flush=True)


if __name__ == "__main__":
    main()
