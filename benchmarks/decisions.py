"""Every decision of every policy, recorded, so that a rebuild can be checked.

``python -m benchmarks.decisions record FILE`` plays all cases of
``benchmarks/decision_cases.py`` and writes what was decided to one ``.npz`` file.
``python -m benchmarks.decisions compare FILE`` plays them again with the code at hand
and prints one line per difference. Slots, samples, counts and contents must be equal,
floating-point values must agree to 1e-9. The exit code is 1 if anything differs.

To record with the code of another worktree, run this file by its path, there::

    cd OTHER && PYTHONPATH=$PWD python THIS/benchmarks/decisions.py record FILE
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import logging
import pickle
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tensordict import TensorDict, TensorDictBase
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

import info_replay
from info_replay import SelectiveReplayBuffer, make_replay_buffer
from info_replay.writers import TaskTimingWriter

if __package__:
    from benchmarks.decision_cases import Case, all_cases, make_stream, script_length
else:  # run by its path
    from decision_cases import (  # type: ignore[import-not-found,no-redef]
        Case,
        all_cases,
        make_stream,
        script_length,
    )

RECORDING = Path(__file__).parent / "results" / "decisions.npz"
#: What is recorded, and how it is stored. Floating-point values may differ by rounding.
QUANTITIES: dict[str, type[np.generic]] = {
    "slots": np.int16,
    "sample": np.int16,
    "contents": np.int16,
    "write_count": np.int32,
    "reservoir_count": np.int32,
    "stream_counts": np.int16,
    "memory_counts": np.int16,
    "features": np.float64,
    "scores": np.float64,
    "moments": np.float64,
    "learnability_moments": np.float64,
    "posterior": np.float64,
    "radius": np.float64,
    "total_weight": np.float64,
}
#: Values of one case by step and quantity.
Log = dict[tuple[int, str], NDArray[Any]]
#: After how many words of a script the whole state is looked at, and at the end.
LOOK = 4

# -- playing --------------------------------------------------------------------------


class Player:
    """Plays the script of a case and logs what is decided.

    Args:
        case: what to play.

    Attributes:
        log: the values so far.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.words = case.script.split()
        length = case.preloaded + script_length(case.script)
        self.items = make_stream(case.stream, case.seed, length)
        self.position = 0
        self.step = 0
        self.held: TensorDictBase | None = None
        self.log: Log = {}
        storage = None
        if case.preloaded:
            storage = LazyTensorStorage(case.capacity)
            plain = TensorDictReplayBuffer(storage=storage)
            plain.extend(self.take(case.preloaded))
        self.buffer = self.make(case.seed, storage)

    def make(
        self, seed: int, storage: LazyTensorStorage | None = None
    ) -> SelectiveReplayBuffer:
        """A new buffer as the case wants it."""
        case, generator = self.case, torch.Generator().manual_seed(seed)
        rest: dict[str, Any] = {"generator": generator, "storage": storage}
        capacity = case.capacity if storage is None else None
        if case.policy == "task-timing":
            writer = TaskTimingWriter(**case.options)
            return SelectiveReplayBuffer(capacity, writer=writer, **rest)
        # The recording is older than the standardization of regression targets.
        rest["scale_targets"] = False
        return make_replay_buffer(case.policy, capacity, **case.options, **rest)

    def play(self) -> Log:
        """Play the whole script."""
        for step, word in enumerate(self.words):
            self.step = step
            if word.isdecimal():
                self.record("slots", self.buffer.extend(self.take(int(word))))
            else:
                getattr(self, word)()
            self.record("write_count", self.buffer.write_count)
            self.record("reservoir_count", self.buffer.reservoir_count)
            if self.step % LOOK == LOOK - 1 or self.step == len(self.words) - 1:
                self.look()
        return self.log

    def take(self, count: int) -> TensorDict:
        """The next items of the stream."""
        start = self.position
        self.position += count
        return self.items[start : start + count].clone()

    def record(self, quantity: str, value: ArrayLike | torch.Tensor) -> None:
        """Log a value of this step."""
        if quantity in self.case.left_open:
            return
        array = np.asarray(value).reshape(-1)
        self.log[self.step, quantity] = array.astype(QUANTITIES[quantity])

    @property
    def selection(self) -> Any:
        """The writer that selects, behind the ring of recent items if there is one."""
        return getattr(self.buffer.writer, "selection", self.buffer.writer)

    def look(self) -> None:
        """Log the state of memory and policy."""
        buffer = self.buffer
        memory = buffer[:] if len(buffer) else self.items[:0]
        features = memory["feature"].double().numpy()
        # A weight for each place, so that no two may change places.
        weights = np.cos(np.arange(features.size)).round(3).reshape(features.shape)
        self.record("contents", memory["x"])
        self.record("features", (features * weights).sum())
        selection = self.selection
        for name in ("moments", "learnability_moments"):
            if hasattr(selection, name):
                values = getattr(selection, name)
                self.record(name, [values.weight, values.mean, values.deviation])
        for name in ("stream_counts", "memory_counts", "radius", "total_weight"):
            if hasattr(selection, name):
                self.record(name, getattr(selection, name))
        if self.case.policy == "gss":
            self.record("scores", selection.scores)
        if hasattr(selection, "moments") and buffer.posterior is not None:
            probes = make_stream(self.case.stream, 99, 2)["feature"]
            mean, variance = buffer.posterior.predict(probes)
            self.record("posterior", torch.cat([mean.flatten(), variance.flatten()]))

    # -- words of a script ------------------------------------------------------------

    def add(self) -> None:
        """Offer one item by itself."""
        self.record("slots", self.buffer.add(self.take(1)[0]))

    def score(self) -> None:
        """Ask for scores, where the policy has some."""
        if hasattr(self.selection, "moments"):
            self.record("scores", self.buffer.score(self.items[:5].clone()))

    def hold(self) -> None:
        """Draw a sample, to be written back later."""
        self.held = self.buffer.sample(1 + len(self.buffer) // 3)
        self.record("sample", self.held["index"][:5])

    def late(self) -> None:
        """Write new features of the sample back, which may be stale by now."""
        assert self.held is not None
        self.held["feature"] = refreshed(self.held["feature"])
        self.buffer.update_tensordict_priority(self.held)

    def back(self) -> None:
        """Sample and write new features back."""
        self.hold()
        self.late()

    def all(self) -> None:
        """Write new features of all slots back, if the policy keeps features."""
        memory = self.buffer[:].clone()
        memory["index"] = torch.arange(len(memory))
        memory["feature"] = refreshed(memory["feature"])
        try:
            self.buffer.update_features(memory)
        except AttributeError:  # the policy does not look at features
            self.record("sample", -1)

    def state(self) -> None:
        """Restart: a fresh buffer takes the state of the old one."""
        saved = self.buffer.state_dict()
        self.buffer = self.make(seed=1000)
        self.buffer.load_state_dict(saved)

    def dumps(self) -> None:
        """Restart from a folder."""
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            # TorchRL warns if nothing was written since the last restart.
            warnings.filterwarnings("ignore", message="last_cursor is None")
            self.buffer.dumps(folder)
            self.buffer = self.make(seed=1000)
            self.buffer.loads(folder)

    def pickle(self) -> None:
        """Restart from a pickle."""
        self.buffer = pickle.loads(pickle.dumps(self.buffer))

    def deepcopy(self) -> None:
        """Go on with a deep copy."""
        self.buffer = copy.deepcopy(self.buffer)

    def empty(self) -> None:
        """Empty the buffer."""
        self.buffer.empty()

    def assign(self) -> None:
        """Overwrite some items from outside."""
        items = self.take(3)
        slots = [slot for slot in (0, 3, 11) if slot < len(self.buffer)]
        self.buffer[torch.tensor(slots)] = items[: len(slots)]

    def other(self) -> None:
        """Let a plain buffer write to the same storage."""
        generator = torch.Generator().manual_seed(self.step)
        storage = self.buffer.storage
        plain = TensorDictReplayBuffer(storage=storage, generator=generator)
        plain.extend(self.take(5))

    def task(self) -> None:
        """Begin a new task."""
        self.buffer.writer.start_task()

    def go_on(self) -> None:
        """Nothing happens, where another script has a restart."""


def refreshed(features: torch.Tensor) -> torch.Tensor:
    """Features as a network that has learned would give them."""
    return 0.875 * features + 0.125 * features.roll(1, -1)


# -- recording ------------------------------------------------------------------------


def save(path: Path, logs: dict[str, Log]) -> None:
    """Write logs by the name of their case to one file."""
    names, quantities = list(logs), list(QUANTITIES)
    index: list[tuple[int, int, int, int]] = []
    values: dict[str, list[NDArray[Any]]] = {name: [] for name in quantities}
    for number, log in enumerate(logs.values()):
        for (step, quantity), value in log.items():
            index.append((number, step, quantities.index(quantity), len(value)))
            values[quantity].append(value)
    header = json.dumps({"cases": names, "quantities": quantities})
    arrays: dict[str, Any] = {
        "header": np.frombuffer(header.encode(), dtype=np.uint8),
        "index": np.ascontiguousarray(np.array(index, dtype=np.int16).T),
    }
    for name, parts in values.items():
        arrays[name] = np.concatenate([np.empty(0, QUANTITIES[name]), *parts])
    np.savez_compressed(path, **arrays)


def load(path: Path) -> dict[str, Log]:
    """Read what :func:`save` wrote."""
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays.pop("header").tobytes())
    logs: dict[str, Log] = {name: {} for name in header["cases"]}
    starts = dict.fromkeys(arrays, 0)
    for number, step, place, length in arrays.pop("index").T.tolist():
        quantity, name = header["quantities"][place], header["cases"][number]
        start = starts[quantity]
        logs[name][step, quantity] = arrays[quantity][start : start + length]
        starts[quantity] = start + length
    return logs


# -- comparing ------------------------------------------------------------------------


def differences(case: Case, recorded: Log, found: Log) -> list[str]:
    """One line for each quantity that differs: the first step at which it does."""
    lines = []
    words = case.script.split()
    for quantity in QUANTITIES:
        for step, word in enumerate(words):
            key = (step, quantity)
            change = _change(recorded.get(key), found.get(key), case.tolerance)
            if change:
                place = f"step {step} ({word})"
                lines.append(f"{case.name}, {place}: {quantity} {change}")
                break
    return lines


def _change(
    old: NDArray[Any] | None, new: NDArray[Any] | None, tolerance: float
) -> str:
    """How a value differs from the recorded one; empty if it does not."""
    if old is None or new is None:
        return "" if old is new else f"{'is missing' if new is None else 'is new'}"
    if old.shape != new.shape:
        return f"has {len(new)} numbers, recorded were {len(old)}"
    if np.issubdtype(old.dtype, np.floating):
        near = np.abs(new - old) <= tolerance * np.maximum(1, np.abs(old))
        equal = near | (np.isnan(old) & np.isnan(new))
    else:
        equal = old == new
    if equal.all():
        return ""
    first = int(np.argmin(equal))
    count = int((~equal).sum())
    return (
        f"is {new[first]!s} at place {first}, recorded was {old[first]!s} "
        f"({count} of {len(old)} differ)"
    )


def check(case: Case, recorded: Log) -> list[str]:
    """Play a case, with and without its restarts; gives a line per difference."""
    lines = []
    for played in (case, case.without_restarts()):
        if played is None:
            continue
        note = "" if played is case else " (played without restarts)"
        try:
            found = Player(played).play()
            lines += [line + note for line in differences(case, recorded, found)]
        except Exception as error:
            lines.append(f"{case.name}: raised {type(error).__name__}: {error}{note}")
    return lines


def compare(recorded: dict[str, Log], cases: Iterable[Case]) -> Iterator[str]:
    """Play cases again; gives a line per difference from the recording."""
    for case in cases:
        if case.name in recorded:
            yield from check(case, recorded[case.name])
        else:
            yield f"{case.name}: not in the recording"


def record(cases: Iterable[Case]) -> dict[str, Log]:
    """Play cases; gives their logs by name."""
    return {case.name: Player(case).play() for case in cases}


def main() -> int:
    """Record or compare, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", type=Path, nargs="?", default=RECORDING)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("torchrl").setLevel(logging.WARNING)
    cases = all_cases()
    print(f"{len(cases)} cases with {info_replay.__file__}")
    start = time.perf_counter()
    if options.action == "record":
        save(options.file, record(cases))
        print(f"{options.file}: {options.file.stat().st_size / 1000:.0f} kB")
    # A recording that can't be repeated is of no use: it is compared at once.
    recorded = load(options.file)
    known = {case.name for case in cases}
    count = 0
    for line in itertools.chain(
        compare(recorded, cases),
        (f"{name}: not a case any more" for name in recorded if name not in known),
    ):
        print(line)
        count += 1
    print(f"{count} differences, {time.perf_counter() - start:.0f} s")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
