"""How fast a stream is against a bare loop, and how much memory a data set takes.

Split MNIST at batch 128, in turns with indexing the same samples in the same order.
Needs MNIST in ``CONTINUAL_ENVS_DATA`` or downloads it.
"""

from __future__ import annotations

import subprocess
import sys
import time

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.timing import report, row
from continual_envs import StreamEnv

BATCH_SIZE = 128
ROUNDS = 9


def indexed(
    env: StreamEnv, seed: int = 0
) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[NDArray[np.int64]]]:
    """What a stream shows, as a data set in another order and indices of each batch.

    So a loop that indexes has to look for samples all over the data set, as a stream
    has to.
    """
    observation, _ = env.reset(seed=seed)
    inputs, labels = [], []
    action, terminated = np.zeros(len(observation), dtype=np.int64), False
    while not terminated:
        following, _, terminated, _, info = env.step(action)
        shown = info["label"] >= 0  # the last batch is padded
        inputs.append(observation[shown])
        labels.append(info["label"][shown])
        observation = following
    sizes = np.cumsum([len(part) for part in labels])
    places = np.random.default_rng(0).permutation(sizes[-1])
    shuffled = np.argsort(places)
    return (
        np.concatenate(inputs)[shuffled],
        np.concatenate(labels)[shuffled],
        np.split(places, sizes[:-1]),
    )


def main() -> None:
    """Measure and print one table."""
    torch.set_num_threads(1)
    env = gymnasium.make("continual_envs/SplitMNIST-v0", batch_size=BATCH_SIZE)
    stream = env.unwrapped
    assert isinstance(stream, StreamEnv)
    arrays = indexed(stream)
    tensors = (
        torch.from_numpy(arrays[0]),
        torch.from_numpy(arrays[1]),
        [torch.from_numpy(batch) for batch in arrays[2]],
    )
    action = np.zeros(BATCH_SIZE, dtype=np.int64)

    def steps() -> None:
        terminated = False
        while not terminated:
            _, _, terminated, _, _ = env.step(action)

    def bare(inputs, targets, order) -> None:
        for samples in order:
            inputs[samples], targets[samples]

    times: dict[str, list[float]] = {"steps": [], "numpy": [], "torch": []}
    for _ in range(ROUNDS):
        for name, call in (
            ("steps", steps),
            ("numpy", lambda: bare(*arrays)),
            ("torch", lambda: bare(*tensors)),
        ):
            env.reset(seed=0)
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    median = {name: float(np.median(values)) for name, values in times.items()}
    what = "Split MNIST, batch 128: env.step / indexing"
    rows = [
        row(f"{what} tensors", median["steps"] / median["torch"], "x", 1.5),
        row(f"{what} arrays", median["steps"] / median["numpy"], "x", 1.5),
        row("MNIST: resident memory / raw bytes", memory_share("MNIST"), "x", 1.2),
        row("CIFAR-10: resident memory / raw bytes", memory_share("CIFAR10"), "x", 1.2),
    ]
    report("streams", rows)


def memory_share(name: str) -> float:
    """Resident memory that loading a data set adds, over its raw bytes."""
    code = f"""
import resource, sys
from pathlib import Path
import continual_envs
def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
continual_envs.load_dataset("Digits")
before = resident()
dataset = continual_envs.load_dataset({name!r})
env = continual_envs.make_stream("Split" + {name!r}, batch_size=128)
env.reset(seed=0)
print((resident() - before) / dataset.nbytes)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return float(run.stdout)


if __name__ == "__main__":
    main()
