"""How fast the memory is, against TorchRL's own writer in the same run.

Items have 784 + 10 + 100 floats and a label. One thread, medians of at least 200 calls,
contestants taking turns. ``make bench`` prints the table and saves it as JSON.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from benchmarks.point_by_point import PaperInfoRS, ShermanMorrisonInfoRS
from benchmarks.timing import medians, one_thread, report, row
from info_replay import SelectiveReplayBuffer, make_replay_buffer

CLASSES = 10
Contestant = tuple[Callable[[], Any], Callable[[Any], object]]


def stream(
    batch_size: int, feature_dim: int = 100, batches: int = 64
) -> Iterator[TensorDict]:
    """Batches of clustered items without end; made in advance, then repeated."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, feature_dim, generator=generator)
    made = []
    for _ in range(batches):
        labels = torch.randint(CLASSES, (batch_size,), generator=generator)
        noise = torch.randn(batch_size, feature_dim, generator=generator)
        made.append(
            TensorDict(
                {
                    "observation": torch.randn(batch_size, 784, generator=generator),
                    "logits": torch.randn(batch_size, CLASSES, generator=generator),
                    "feature": (centres[labels] + noise).relu(),
                    "target": labels,
                },
                batch_size=[batch_size],
                device="cpu",
            )
        )
    while True:
        yield from made


def round_robin(capacity: int) -> TensorDictReplayBuffer:
    """TorchRL's buffer with its ``TensorDictRoundRobinWriter``."""
    return TensorDictReplayBuffer(storage=LazyTensorStorage(capacity))


def infors(
    capacity: int, offered: int, feature_dim: int = 100, policy: str = "infors"
) -> SelectiveReplayBuffer:
    """A memory of InfoRS, or of another policy, that was offered some items."""
    buffer = make_replay_buffer(policy, capacity, num_classes=CLASSES)
    batches = stream(1000, feature_dim, batches=8)
    for _ in range(offered // 1000):
        buffer.extend(next(batches))
    return buffer


def training_step(
    buffer: SelectiveReplayBuffer, batches: Iterator[TensorDict], size: int
) -> Contestant:
    """What a training step asks of the memory: new features, then a new batch.

    Sampling, which every replay buffer does alike, is not timed.
    """

    def prepare() -> tuple[TensorDict, TensorDict]:
        sample = buffer.sample(size)
        feature = sample["feature"]
        sample["feature"] = feature + 0.01 * torch.randn_like(feature)
        return sample, next(batches)

    def step(argument: tuple[TensorDict, TensorDict]) -> None:
        sample, batch = argument
        buffer.update_tensordict_priority(sample)
        buffer.extend(batch)

    return prepare, step


def main() -> None:
    """Measure everything and print one table."""
    one_thread()
    torch.manual_seed(0)
    rows: list[dict[str, object]] = []

    def add(*what: Any, **options: Any) -> None:
        rows.append(row(*what, **options))

    # Reservoir sampling against the ring buffer, while filling and when long full.
    batches = stream(128)
    offer = partial(next, batches)
    full = make_replay_buffer("rs", 100)
    for _ in range(157):
        full.extend(next(batches))
    filling = make_replay_buffer("rs", 100_000)
    ring, large_ring = round_robin(100), round_robin(100_000)
    times = medians(
        {
            "ring": (offer, ring.extend),
            "rs": (offer, full.extend),
            "large ring": (offer, large_ring.extend),
            "rs filling": (offer, filling.extend),
        }
    )
    add("RS extend(128), M=100 / ring", times["rs"] / times["ring"], "x", 1.3)
    add(
        "RS extend(128), filling M=100,000 / ring",
        times["rs filling"] / times["large ring"],
        "x",
        1.3,
    )

    # A training step's worth of InfoRS against one extend of the ring buffer.
    step = training_step(infors(100, 20_000), batches, 128)
    times = medians({"ring": (offer, ring.extend), "step": step}, calls=3000)
    add(
        "InfoRS write-back + extend(128), M=100, d=101 / ring",
        times["step"] / times["ring"],
        "x",
        3,
    )

    # The batch algorithm against Alg. 1 item by item, from the same state on.
    plain = infors(100, 20_000)
    paper, lean = (
        kind(100, 100, CLASSES) for kind in (PaperInfoRS, ShermanMorrisonInfoRS)
    )
    past = stream(1000, batches=8)
    for _ in range(20):
        lean.extend(next(past))
    paper.storage, paper.size = lean.storage.clone(), lean.size
    paper.reservoir_count, paper.seen = lean.reservoir_count, lean.seen
    paper.mean = lean.mean
    paper.a, paper.b = lean.a.clone(), lean.b.clone()
    times = medians(
        {
            "batch": (offer, plain.extend),
            "lean": (offer, lean.extend),
            "paper": (offer, paper.extend),
        },
        calls=200,
        warmup=5,
    )
    add(
        "InfoRS extend(128): the paper's equations point by point / batch",
        times["paper"] / times["batch"],
        "x",
        30,
        least=True,
    )
    add(
        "InfoRS extend(128): Sherman-Morrison point by point / batch",
        times["lean"] / times["batch"],
        "x",
        1,
        least=True,
    )

    # Wide features.
    wide_batches = stream(32, 512)
    wide = infors(1000, 20_000, 512)
    wide_step = training_step(wide, wide_batches, 32)
    times = medians({"step": wide_step}, calls=200)
    add(
        "InfoRS write-back + extend(32), M=1,000, d=513",
        times["step"] / 1e3,
        "ms",
        8,
    )

    # A hundred times the capacity, at the same share of written items.
    small, large = infors(1000, 20_000), infors(100_000, 300_000)
    for buffer in (small, large):
        buffer.writer.reservoir_count = 100 * buffer.capacity
    times = medians(
        {
            "small": (offer, small.extend),
            "large": (offer, large.extend),
        },
        calls=200,
    )
    add(
        "InfoRS extend(128), M=100,000 / M=1,000",
        times["large"] / times["small"],
        "x",
        1.3,
    )

    # The default policy beside InfoRS, and what it costs in large memories and in long
    # streams.
    auto = partial(infors, policy="auto")
    steps = {
        "infors": training_step(infors(100, 20_000), batches, 128),
        "auto": training_step(auto(100, 20_000), batches, 128),
        "auto, long": training_step(auto(100, 1_000_000), batches, 128),
    }
    repeated = [medians(steps, calls=400) for _ in range(7)]
    for what, one, other in (
        ("auto / InfoRS", "auto", "infors"),
        ("auto, a stream of 1,000,000 / of 20,000", "auto, long", "auto"),
    ):
        ratios = [times[one] / times[other] for times in repeated]
        add(
            f"write-back + extend(128): {what}",
            statistics.median(ratios),
            "x",
            1.3,
            spread=(min(ratios), max(ratios)),
        )
    # Ten times the capacity, at the same share of written items.
    times = medians(
        {
            "small": (offer, auto(1000, 100_000).extend),
            "large": (offer, auto(10_000, 1_000_000).extend),
        },
        calls=200,
    )
    add(
        "auto extend(128), M=10,000 / M=1,000",
        times["large"] / times["small"],
        "x",
        1.3,
    )
    report("memory", rows)


if __name__ == "__main__":
    main()
