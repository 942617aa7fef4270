"""A saved buffer goes on, in another process, as if it had never been stopped."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    RandomSampler,
    SamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from torchrl.data.replay_buffers.samplers import PrioritizedSampler
from torchrl.envs import Transform

from info_replay import (
    MIC,
    HybridWriter,
    OutputHessian,
    SelectiveReplayBuffer,
    WeightedReservoirWriter,
)
from info_replay.coreset.kernels import ReLUTangentKernel

from .helpers import (
    BATCH,
    CAPACITY,
    CLASSES,
    HYBRID,
    KINDS,
    POLICIES,
    WIDTH,
    OneTaskWriter,
    assert_full,
    assert_in_step,
    complete_state,
    differences,
    for_each_kind,
    linear_gradients,
    make_buffer,
    make_stream,
    make_writer,
    play,
    refused,
)

STORAGES: dict[str, Callable[[], Any]] = {
    "tensor": lambda: LazyTensorStorage(CAPACITY),
    "memmap": lambda: LazyMemmapStorage(CAPACITY),
}
for_each_storage = pytest.mark.parametrize("storage", STORAGES)
through_each_way = pytest.mark.parametrize("way", ["state_dict", "dumps"])


def run_script(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script in a new process of the same interpreter."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def save(buffer: Any, way: str, path: Path) -> None:
    if way == "state_dict":
        torch.save(buffer.state_dict(), path)
    elif way == "dumps":
        buffer.dumps(path)
    elif way == "save":
        buffer.save(path)
    else:
        path.write_bytes(pickle.dumps(buffer))


def load(buffer: SelectiveReplayBuffer, way: str, path: Path) -> None:
    if way == "state_dict":
        buffer.load_state_dict(torch.load(path, weights_only=True))
    else:
        buffer.loads(path)


# -- in a new process -----------------------------------------------------------------

#: Items that were offered before the stop: in the middle of filling, and later.
STOPS = {"filling": 10, "full": 30}
STREAM = 50
#: Policy, way to save, storage and stop. TorchRL cannot pickle memory maps.
CASES = [
    *itertools.product(POLICIES, ["state_dict"], ["tensor"], ["filling"]),
    *itertools.product(POLICIES, ["dumps", "pickle"], ["tensor"], ["full"]),
    *itertools.product(KINDS, ["state_dict"], ["memmap"], ["full"]),
    *itertools.product(KINDS, ["dumps"], ["memmap"], ["filling"]),
    ("infors", "save", "tensor", "full"),
]

#: What a process does that finds saved buffers: restore each of them and go on.
RESUME = """
    import json, pickle, sys
    from pathlib import Path

    import torch
    from torchrl.data import LazyMemmapStorage, LazyTensorStorage

    torch.set_num_threads(1)
    folder, helpers = Path(sys.argv[1]), sys.argv[2]
    sys.path.insert(0, helpers)
    from helpers import CAPACITY, complete_state, make_buffer, make_stream, play

    def resume(saved, policy, way, storage, stop, length):
        if way == "pickle":
            buffer = pickle.loads(saved.read_bytes())
        else:
            make = LazyMemmapStorage if storage == "memmap" else LazyTensorStorage
            # Another seed: what counts is the one that was saved.
            buffer = make_buffer(policy, storage=make(CAPACITY), seed=77)
            if way == "state_dict":
                buffer.load_state_dict(torch.load(saved, weights_only=True))
            elif way == "dumps":
                buffer.loads(saved)
            else:
                buffer.load(saved)
        restored = complete_state(buffer)
        log = play(buffer, make_stream(length)[stop:])
        return restored, log, complete_state(buffer)

    results = {}
    for name, case in json.loads((folder / "plan.json").read_text()).items():
        try:
            results[name] = resume(folder / name, *case)
        except Exception as error:
            results[name] = repr(error)
    torch.save(results, folder / "results.pt")
"""


def test_a_new_process_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Every policy, way to save and storage; one process resumes them all."""
    plan, here = {}, {}
    stream = make_stream(STREAM)
    for policy, way, storage, stop in CASES:
        name, items = f"{policy}-{way}-{storage}-{stop}", STOPS[stop]
        buffer = make_buffer(policy, storage=STORAGES[storage]())
        play(buffer, stream[:items])
        plan[name] = (policy, way, storage, items, STREAM)
        save(buffer, way, tmp_path / name)
        saved = complete_state(buffer)
        assert saved["size"] <= min(items, CAPACITY)
        here[name] = saved, play(buffer, stream[items:]), complete_state(buffer)
        assert buffer.write_count == STREAM
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    run_script(RESUME, tmp_path, Path(__file__).parent)
    there = torch.load(tmp_path / "results.pt", weights_only=True)
    wrong = {}
    for name, expected in here.items():
        found = there[name]
        if isinstance(found, str):
            wrong[name] = [found]
        elif different := differences(expected, found):
            wrong[name] = different
    assert wrong == {}


# -- within a process -----------------------------------------------------------------


@through_each_way
@for_each_storage
@for_each_kind
def test_a_buffer_that_was_in_use_takes_a_saved_state(
    policy: str, storage: str, way: str, tmp_path: Path
) -> None:
    buffer = make_buffer(policy, storage=STORAGES[storage]())
    play(buffer, make_stream(40))
    twin = make_buffer(policy, storage=STORAGES[storage](), seed=5)
    play(twin, make_stream(30, seed=5))
    save(buffer, way, tmp_path / "saved")
    drawn = twin.state_dict()["_writer"]["generations"]
    load(twin, way, tmp_path / "saved")
    here, there = complete_state(buffer), complete_state(twin)
    # Generations never go back: samples that the twin drew before are stale now.
    later = there["_writer"].pop("generations")
    assert bool(((later > drawn) | (drawn < 0)).all())
    del here["_writer"]["generations"]
    assert differences(here, there) == []
    # From then on it is used like any other.
    assert_full(twin)
    assert differences(twin[:], buffer[:]) == []
    assert differences(twin[3], buffer[3]) == []
    there, here = twin.sample(), buffer.sample()
    for sample in (there, here):
        del sample["index_generation"]
    assert differences(there, here) == []
    assert twin.add(make_stream(1)[0]) == buffer.add(make_stream(1)[0])
    stream = make_stream(20, seed=1)
    assert differences(play(buffer, stream), play(twin, stream)) == []
    twin.empty()
    assert len(twin.extend(make_stream(3))) == len(twin) == 3
    assert_in_step(twin)


@for_each_kind
def test_a_state_from_before_the_first_item_makes_a_buffer_new(policy: str) -> None:
    new, used = make_buffer(policy), make_buffer(policy, seed=5)
    play(used, make_stream(40, seed=5))
    used.load_state_dict(new.state_dict())
    assert (len(used), used.write_count, used.reservoir_count) == (0, 0, 0)
    assert differences(play(new, make_stream(40)), play(used, make_stream(40))) == []


@pytest.mark.parametrize(("one", "other"), [("memmap", "tensor"), ("tensor", "memmap")])
@for_each_kind
def test_storages_can_be_exchanged_on_the_way(
    policy: str, one: str, other: str, tmp_path: Path
) -> None:
    buffer = make_buffer(policy, storage=STORAGES[one]())
    play(buffer, make_stream(40))
    buffer.dumps(tmp_path)
    saved = complete_state(buffer)
    stream = make_stream(20, seed=1)
    log = play(buffer, stream)
    for _ in range(2):  # a memory is not tied to the folder that it came from
        twin = make_buffer(policy, storage=STORAGES[other](), seed=5)
        twin.loads(tmp_path)
        assert differences(saved, complete_state(twin)) == []
        assert differences(log, play(twin, stream)) == []


@for_each_kind
def test_a_writer_in_a_plain_buffer_is_saved_with_it(
    policy: str, tmp_path: Path
) -> None:
    def make_plain() -> TensorDictReplayBuffer:
        return TensorDictReplayBuffer(
            storage=LazyTensorStorage(CAPACITY),
            writer=make_writer(policy),
            batch_size=BATCH,
        )

    buffer, twin = make_plain(), make_plain()
    buffer.extend(make_stream(40))
    buffer.dumps(tmp_path)
    twin.loads(tmp_path)
    for batch in make_stream(30, seed=1).split(7):
        slots = buffer.extend(batch.clone())
        assert torch.equal(slots, twin.extend(batch.clone()))


class Counting(Transform):
    """Counts the batches that went by, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def _inv_call(self, tensordict: Any) -> Any:
        self.count += 1
        return tensordict

    def forward(self, tensordict: Any) -> Any:
        return tensordict


@pytest.mark.parametrize("way", ["state_dict", "dumps", "pickle", "deepcopy"])
@pytest.mark.parametrize(
    "make_sampler",
    [
        RandomSampler,
        SamplerWithoutReplacement,
        lambda: PrioritizedSampler(CAPACITY, alpha=0.7, beta=0.5),
    ],
    ids=["random", "without replacement", "prioritized"],
)
def test_samplers_and_transforms_go_on_where_they_were(
    make_sampler: Callable[[], Any], way: str, tmp_path: Path
) -> None:
    buffer, twin = (make_buffer("infors", sampler=make_sampler()) for _ in range(2))
    for each in (buffer, twin):
        each.append_transform(Counting())
    play(buffer, make_stream(40))
    if way == "deepcopy":
        twin = copy.deepcopy(buffer)
    elif way == "pickle":
        twin = pickle.loads(pickle.dumps(buffer))
    elif way == "dumps":
        buffer.dumps(tmp_path)
    else:
        state = buffer.state_dict()
    # What was saved does not follow what comes now.
    stream = make_stream(30, seed=1)
    log = play(buffer, stream)
    if way == "dumps":
        twin.loads(tmp_path)
    elif way == "state_dict":
        twin.load_state_dict(state)
    assert differences(log, play(twin, stream)) == []
    counts = [int(each.transform[0].count) for each in (buffer, twin)]
    assert counts == [14, 14]


@for_each_storage
@for_each_kind
def test_a_state_dict_is_a_snapshot_that_can_be_used_twice(
    policy: str, storage: str
) -> None:
    buffer = make_buffer(policy, storage=STORAGES[storage]())
    play(buffer, make_stream(40))
    state = buffer.state_dict()
    before = copy.deepcopy(state)
    logs = [play(buffer, make_stream(20, seed=1))]
    buffer.empty()
    for _ in range(2):
        twin = make_buffer(policy, storage=STORAGES[storage](), seed=5)
        twin.load_state_dict(state)
        logs.append(play(twin, make_stream(20, seed=1)))
    assert differences(before, state) == []
    assert differences(logs[0], logs[1]) == []
    assert differences(logs[0], logs[2]) == []


def make_large_batch(number: int) -> TensorDict:
    """Items that take long to copy and tell in every place which item they are."""
    batch = make_stream(16, seed=number)
    batch["id"] = torch.arange(16) + 16 * number
    batch["observation"] = batch["id"][:, None].float().repeat(1, 20_000)
    return batch


@through_each_way
@pytest.mark.parametrize("policy", ["rs", "infors"])
def test_a_save_while_another_thread_writes_is_of_one_moment(
    policy: str, way: str, tmp_path: Path
) -> None:
    capacity, batches = 128, 22
    buffer = make_buffer(policy, capacity)
    # The memory is full from the start, so that every save takes long.
    for number in range(capacity // 16):
        buffer.extend(make_large_batch(number))

    def write() -> None:
        for number in range(capacity // 16, batches):
            buffer.extend(make_large_batch(number))

    writer = threading.Thread(target=write)
    writer.start()
    saved = []
    while writer.is_alive() and len(saved) < 2:
        saved.append(tmp_path / str(len(saved)))
        save(buffer, way, saved[-1])
    writer.join()
    for path in saved:
        twin = make_buffer(policy, capacity)
        load(twin, way, path)
        memory = twin[:]
        ids = memory["id"].float()[:, None]
        assert bool((memory["observation"] == ids).all())
        for number in range(twin.write_count // 16, batches):
            twin.extend(make_large_batch(number))
        assert torch.equal(twin[:]["id"], buffer[:]["id"])


@for_each_kind
def test_saving_changes_nothing(policy: str, tmp_path: Path) -> None:
    saving, quiet = make_buffer(policy), make_buffer(policy)
    logs: tuple[list[Tensor], list[Tensor]] = ([], [])
    for batch in make_stream(60).split(20):
        logs[0].extend(play(saving, batch))
        logs[1].extend(play(quiet, batch))
        for way in ("dumps", "pickle", "state_dict"):
            save(saving, way, tmp_path / way)
    assert differences(*logs) == []


@pytest.mark.parametrize("policy", ["rs", "recent-rs"])
def test_a_buffer_that_is_seeded_by_chance_is_saved_with_its_seed(policy: str) -> None:
    make = functools.partial(SelectiveReplayBuffer, CAPACITY, batch_size=BATCH)
    buffer, twin = (make(writer=make_writer(policy)) for _ in range(2))
    twin.load_state_dict(buffer.state_dict())
    stream = make_stream(60)
    assert differences(play(buffer, stream), play(twin, stream)) == []


# -- what does not fit ----------------------------------------------------------------


def coarse_gradients(items: TensorDictBase) -> Tensor:
    return items["feature"].mean(1)


#: Another value of each setting that a writer has.
OTHER: dict[str, Any] = {
    "criterion": MIC(eta=0.5),
    "decay": 0.9,
    "delay": 1,
    "dtype": torch.float32,
    "feature_key": "observation",
    "gamma": 0.25,
    "gamma_learnability": -3.0,
    "gradients": coarse_gradients,
    "group_size": 4,
    "groups": 2,
    "jitter": 5.0,
    "kernel": ReLUTangentKernel(depth=1),
    "noise": 0.4,
    "num_classes": CLASSES + 1,
    "observation_key": "feature",
    "parts": 4,
    "recent": 4,
    "regularization": 1e-3,
    "reservoir": True,
    "scale_targets": False,
    "score": OutputHessian("more_logits"),
    "target_key": "more_targets",
}
WITH_SETTINGS = (
    "wrs",
    "cbrs",
    "gss",
    "infors",
    "infogs",
    "fss-clust",
    "coreset",
    "recent-infors",
    "timing",
)


def make_one(policy: str, **options: Any) -> SelectiveReplayBuffer:
    if policy == "timing":
        return SelectiveReplayBuffer(
            CAPACITY, writer=OneTaskWriter(**options), batch_size=BATCH
        )
    return make_buffer(policy, **options)


def settings_of(policy: str) -> list[str]:
    """What the constructor of a writer takes, and that of the one behind a ring."""
    writer = make_one(policy).writer
    names = {*writer.settings(), *writer.policy.settings()} - {"selection"}
    return sorted(names)


def fill(buffer: SelectiveReplayBuffer) -> None:
    """Offer items with all entries that a setting may name."""
    stream = make_stream(30)
    stream["more_targets"] = stream["target"].clone()
    stream["more_logits"] = stream["logits"].clone()
    for batch in stream.split(5):
        buffer.extend(batch)


@functools.cache
def state_of(policy: str) -> dict[str, Any]:
    buffer = make_one(policy)
    fill(buffer)
    return buffer.state_dict()


@pytest.mark.parametrize(
    ("policy", "setting"),
    [(policy, name) for policy in WITH_SETTINGS for name in settings_of(policy)],
)
def test_a_memory_saved_with_another_setting_is_refused(
    policy: str, setting: str
) -> None:
    """Each argument of each writer's constructor; here are all of them."""
    saved = state_of(policy)
    for age in ("new", "full"):
        buffer = make_one(policy, **{setting: OTHER[setting]})
        if age == "full":
            fill(buffer)
        writer = buffer.writer
        before = saved["_writer"]["settings"]
        if policy in HYBRID and setting != "recent":
            writer = writer.policy
            before = saved["_writer"]["state"]["selection"]["settings"]
        old, new = before[setting], writer.settings()[setting]
        assert old != new
        with refused(buffer, ValueError, f"{setting}={old!r} ", f"{setting}={new!r}"):
            buffer.load_state_dict(saved)


@pytest.mark.parametrize("setting", ["jitter", "criterion", "num_classes", "recent"])
def test_so_is_one_on_disk(setting: str, tmp_path: Path) -> None:
    source = make_one("recent-infors")
    play(source, make_stream(30))
    source.dumps(tmp_path)
    for age in ("new", "full"):
        buffer = make_one("recent-infors", **{setting: OTHER[setting]})
        if age == "full":
            play(buffer, make_stream(30))
        with refused(buffer, ValueError, f"{setting}="):
            buffer.loads(tmp_path)


def test_functions_are_told_apart() -> None:
    partial = functools.partial
    functions = [
        linear_gradients,
        coarse_gradients,
        partial(linear_gradients, target_key="target"),
        partial(linear_gradients, target_key="id"),
        partial(coarse_gradients),
    ]
    for one, other in itertools.permutations(functions, 2):
        state = make_buffer("gss", gradients=one).state_dict()
        with pytest.raises(ValueError, match="gradients=.* gradients="):
            make_buffer("gss", gradients=other).load_state_dict(state)


class Weigher(torch.nn.Module):
    """A function that is in some mode and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, items: TensorDictBase) -> Tensor:
        self.calls += 1
        return items["logits"].abs().sum(1)


def test_what_an_object_counts_is_not_a_setting() -> None:
    buffer = make_buffer("wrs", score=Weigher())
    buffer.extend(make_stream(30))
    twin = make_buffer("wrs", score=Weigher().eval())
    twin.load_state_dict(buffer.state_dict())
    stream = make_stream(30, seed=1)
    assert differences(play(buffer, stream), play(twin, stream)) == []


@through_each_way
@pytest.mark.parametrize("age", [0, 30], ids=["new", "full"])
@for_each_kind
def test_a_memory_of_other_slots_or_items_is_refused(
    policy: str, age: int, way: str, tmp_path: Path
) -> None:
    buffer, larger, wider = (
        make_buffer(policy),
        make_buffer(policy, CAPACITY + 1),
        make_buffer(policy),
    )
    if age:
        play(buffer, make_stream(age))
    play(larger, make_stream(30))
    save(larger, way, tmp_path / "larger")
    words = [f"capacity={CAPACITY + 1}", f"capacity={CAPACITY}"]
    with refused(buffer, ValueError, *words):
        load(buffer, way, tmp_path / "larger")
    if age:
        play(wider, make_stream(30, width=WIDTH + 2))
        save(wider, way, tmp_path / "wider")
        words = ["'feature'", f"float32[{WIDTH + 2}]", f"float32[{WIDTH}]"]
        with refused(buffer, ValueError, *words):
            load(buffer, way, tmp_path / "wider")


@pytest.mark.parametrize("age", [0, 30], ids=["new", "full"])
def test_a_memory_of_another_policy_is_refused(age: int) -> None:
    for policy in POLICIES:
        buffer = make_buffer(policy)
        if age:
            play(buffer, make_stream(age))
        own = type(buffer.writer).__name__
        for other in POLICIES:
            if other == policy:
                continue
            state = state_of(other)
            name = state["_writer"]["settings"]["writer"]
            words = ["cannot restore"]  # two rings, and InfoGS with a reservoir
            if name != own:
                words = [f"writer={name!r}", f"writer={own!r}"]
            with refused(buffer, ValueError, *words):
                buffer.load_state_dict(state)


def test_a_memory_behind_a_ring_must_be_of_the_same_policy() -> None:
    buffer = make_buffer("recent-rs")
    other = SelectiveReplayBuffer(
        CAPACITY, writer=HybridWriter(WeightedReservoirWriter(), 3), batch_size=BATCH
    )
    play(other, make_stream(30))
    words = "selection='WeightedReservoirWriter", "selection='ReservoirWriter"
    with refused(buffer, ValueError, *words):
        buffer.load_state_dict(other.state_dict())


@pytest.mark.parametrize("age", [0, 30], ids=["new", "full"])
@for_each_kind
def test_what_is_not_the_state_of_a_memory_is_refused(
    policy: str, age: int, tmp_path: Path
) -> None:
    buffer = make_buffer(policy)
    if age:
        play(buffer, make_stream(age))
    name = type(buffer.writer).__name__
    plain = TensorDictReplayBuffer(
        storage=LazyTensorStorage(CAPACITY), batch_size=BATCH
    )
    plain.extend(make_stream(CAPACITY))
    with refused(buffer, ValueError, "not the state", name):
        buffer.load_state_dict(plain.state_dict())
    plain.dumps(tmp_path / "plain")
    with refused(buffer, ValueError, "saved by TorchRL", "extend this one"):
        buffer.loads(tmp_path / "plain")
    for folder in (tmp_path / "nowhere", tmp_path):
        with refused(buffer, FileNotFoundError, "no replay buffer", str(folder)):
            buffer.loads(folder)
    assert not (tmp_path / "nowhere").exists()
    with refused(buffer, ValueError, "state", name):
        buffer.load_state_dict({})
    for part in ("_storage", "_writer", "_sampler", "_transforms", "_batch_size"):
        state = copy.copy(state_of(policy))
        del state[part]
        with refused(buffer, ValueError, f"no {part!r}"):
            buffer.load_state_dict(state)


@pytest.mark.parametrize("part", ["settings", "counts", "in_step", "state", "seed"])
@pytest.mark.parametrize("policy", ["cbrs", "recent-infors"])
def test_a_writer_without_one_of_its_parts_is_refused(policy: str, part: str) -> None:
    """Parts that a policy declared are in ``tests/test_shared_state.py``."""
    buffer = make_buffer(policy)
    play(buffer, make_stream(30, seed=1))
    state = copy.deepcopy(state_of(policy))
    del (state["_writer"]["counts"] if part == "seed" else state["_writer"])[part]
    with refused(buffer, ValueError):
        buffer.load_state_dict(state)


# -- on disk --------------------------------------------------------------------------


def test_a_save_that_fails_leaves_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = make_buffer("infors")
    play(buffer, make_stream(40))
    buffer.dumps(tmp_path)
    saved, files = complete_state(buffer), sorted(tmp_path.rglob("*"))
    play(buffer, make_stream(60, seed=1))

    monkeypatch.setattr(buffer.writer, "state_dict", lambda: {"seed": object()})
    with pytest.raises(TypeError, match="plain values and tensors only"):
        buffer.dumps(tmp_path)
    assert sorted(tmp_path.rglob("*")) == files
    twin = make_buffer("infors", seed=5)
    twin.loads(tmp_path)
    assert differences(saved, complete_state(twin)) == []


def test_a_save_replaces_the_one_before_it_also_of_torchrl(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    plain = TensorDictReplayBuffer(
        storage=LazyTensorStorage(CAPACITY), batch_size=BATCH
    )
    plain.extend(make_stream(CAPACITY, seed=8))
    plain.dumps(folder)
    buffer = make_buffer("infors")
    for seed in range(2):
        play(buffer, make_stream(30, seed=seed))
        buffer.dumps(folder)
        twin = make_buffer("infors", seed=5)
        twin.loads(str(folder))
        assert differences(complete_state(buffer), complete_state(twin)) == []
        assert len([*folder.glob("snapshot-*")]) == 1


def test_a_buffer_without_items_can_be_saved(tmp_path: Path) -> None:
    make_buffer("infors").dumps(tmp_path)
    twin = make_buffer("infors", seed=5)
    twin.loads(tmp_path)
    assert len(twin) == twin.write_count == 0


KILLS = 8
#: Saves two contents in turn in a forked child, which is killed at random moments.
KILL = """
    import json, os, random, signal, sys, time
    from pathlib import Path

    import torch
    from tensordict import TensorDict

    from info_replay import make_replay_buffer

    torch.set_num_threads(1)
    folder, kills = Path(sys.argv[1]), int(sys.argv[2])
    rows, width = 256, 1024
    chance = random.Random(0)

    def make(seed=0):
        return make_replay_buffer(
            "infors", rows, num_classes=2, batch_size=4,
            generator=torch.Generator().manual_seed(seed),
        )

    def content(value):
        # Everything that is saved tells which of the two it is.
        buffer = make(value)
        count = rows * value
        buffer.extend(TensorDict({
            "observation": torch.full((count, width), float(value)),
            "feature": torch.full((count, 3), float(value)),
            "target": torch.full((count,), value - 1),
            "tail": torch.full((count, width), float(value)),
        }, batch_size=[count]))
        return buffer

    def which():
        buffer = make(5)
        buffer.loads(folder)
        found = {
            buffer.write_count // rows,
            buffer.writer.seed == buffers[1].writer.seed or 2,
            int(buffer.posterior.predict(torch.ones(1, 3))[0].argmax()) + 1,
            *buffer[:]["observation"].unique().int().tolist(),
            *buffer[:]["feature"].unique().int().tolist(),
            *(buffer[:]["target"] + 1).unique().tolist(),
            *buffer[:]["tail"].unique().int().tolist(),
        }
        return sorted(found)

    def start_saving():
        child = os.fork()
        if child:
            return child
        while True:
            for value in (2, 1):
                buffers[value].dumps(folder)

    def kill(child):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    buffers = {value: content(value) for value in (1, 2)}
    started = time.perf_counter()
    buffers[1].dumps(folder)
    duration = time.perf_counter() - started
    found, interrupted = [], 0
    while interrupted < kills and len(found) < 60:
        child = start_saving()
        time.sleep(chance.uniform(0, 3) * duration)
        kill(child)
        interrupted += sum(path.is_dir() for path in folder.iterdir()) > 1
        found.append(which())
    buffers[2].dumps(folder)
    final, left = which(), sum(1 for _ in folder.iterdir())
    child, meanwhile = start_saving(), []
    try:
        for _ in range(12):
            try:
                meanwhile.append(which())
            except Exception as error:
                meanwhile.append(repr(error))
    finally:
        kill(child)
    print(json.dumps({
        "found": found,
        "interrupted": interrupted,
        "final": final,
        "left": left,
        "meanwhile": meanwhile,
        "megabytes": sum(f.stat().st_size for f in folder.rglob("*")) / 2**20,
    }))
"""


def test_a_save_that_is_killed_leaves_the_old_one_or_the_new_one(
    tmp_path: Path,
) -> None:
    done = run_script(KILL, tmp_path, KILLS)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["megabytes"] > 2
    assert report["interrupted"] >= KILLS
    assert [found for found in report["found"] if found not in ([1], [2])] == []
    # The next save cleans up what killed ones left: a snapshot and the file that
    # names it remain.
    assert (report["final"], report["left"]) == ([2], 2)
    # And one can be loaded while the next one is written.
    assert [found for found in report["meanwhile"] if found not in ([1], [2])] == []
