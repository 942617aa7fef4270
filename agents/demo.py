"""What reservoir sampling and InfoRS keep of an imbalanced stream of digits.

Streams scikit-learn's handwritten digits, one class 30 times as frequent as the others,
through two memories of 100 slots and prints what is in them. Run it with ``make demo``.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from tensordict import TensorDict

from info_replay import SelectiveReplayBuffer, make_replay_buffer

CAPACITY = 100
BATCH_SIZE = 128
FREQUENT_CLASS = 3
IMBALANCE = 30
SEED = 0


def digits_stream(seed: int = SEED) -> TensorDict:
    """Digits in random order, those of one class 30 times each.

    Args:
        seed: of the order.

    Returns:
        Items with the entries ``"observation"``, ``"feature"`` and ``"target"``.
    """
    pixels, labels = load_digits(return_X_y=True)
    observations = torch.from_numpy(pixels).to(torch.uint8)
    targets = torch.from_numpy(labels).long()
    copies = torch.where(targets == FREQUENT_CLASS, IMBALANCE, 1)
    generator = torch.Generator().manual_seed(seed)
    order = torch.arange(len(targets)).repeat_interleave(copies)
    order = order[torch.randperm(len(order), generator=generator)]
    return TensorDict(
        {
            "observation": observations[order],
            "feature": observations[order].float() / 16,
            "target": targets[order],
        },
        batch_size=[len(order)],
    )


def fill_memory(policy: str, stream: TensorDict) -> SelectiveReplayBuffer:
    """Offer a stream to a memory, batch by batch.

    Args:
        policy: name of the selection policy.
        stream: the items.

    Returns:
        The memory that is left.
    """
    options = {"num_classes": 10} if policy == "infors" else {}
    generator = torch.Generator().manual_seed(SEED)
    buffer = make_replay_buffer(policy, CAPACITY, generator=generator, **options)
    for batch in stream.split(BATCH_SIZE):
        buffer.extend(batch)
    return buffer


def class_counts(targets: torch.Tensor) -> list[int]:
    """Number of items of each of the ten classes."""
    counts: list[int] = torch.bincount(targets, minlength=10).tolist()
    return counts


def main() -> None:
    """Print the class counts of the stream and of both memories, side by side."""
    stream = digits_stream()
    columns = {"stream": class_counts(stream["target"])}
    buffers = {policy: fill_memory(policy, stream) for policy in ("rs", "infors")}
    for policy, buffer in buffers.items():
        columns[policy] = class_counts(buffer[:]["target"])
    print(
        f"{len(stream)} handwritten digits, class {FREQUENT_CLASS} {IMBALANCE} times "
        f"as frequent, into a memory of {CAPACITY}:\n"
    )
    print("class" + "".join(f"{name:>10}" for name in ("stream", "RS", "InfoRS")))
    for label, counts in enumerate(zip(*columns.values(), strict=True)):
        bars = "  " + "#" * counts[2]
        print(f"{label:>5}" + "".join(f"{count:>10}" for count in counts) + bars)
    entered = buffers["infors"].reservoir_count
    print(
        f"\nInfoRS let {entered} of {len(stream)} digits enter reservoir sampling; "
        f"RS all {buffers['rs'].reservoir_count}."
    )


if __name__ == "__main__":
    main()
