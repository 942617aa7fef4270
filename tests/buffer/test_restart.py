"""A saved buffer goes on, in another process, as if it had never been stopped."""

from __future__ import annotations

import copy
import itertools
import json
import os
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
from tensordict import TensorDict
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

from info_replay import SelectiveReplayBuffer

from .helpers import (
    BATCH,
    CAPACITY,
    INFORMATION,
    KINDS,
    assert_full,
    assert_in_step,
    complete_state,
    differences,
    for_each_kind_of_policy,
    make_buffer,
    make_stream,
    make_writer,
    play,
)

STORAGES: dict[str, Callable[[], Any]] = {
    "tensor": lambda: LazyTensorStorage(CAPACITY),
    "memmap": lambda: LazyMemmapStorage(CAPACITY),
}
#: Items that were offered before the stop: in the middle of filling, and later.
STOPS = {"filling": 10, "full": 40}
STREAM = 70

#: Ways to save; TorchRL cannot pickle memory-mapped storages.
WAYS = {
    "tensor": ("state_dict", "dumps", "save", "pickle"),
    "memmap": ("state_dict", "dumps"),
}
for_each_storage = pytest.mark.parametrize("storage", STORAGES)

#: What a process does that finds saved buffers: restore each of them and go on.
RESUME = """
    import json, pickle, sys
    from pathlib import Path

    import torch
    from torchrl.data import LazyMemmapStorage, LazyTensorStorage

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


def run_script(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script in a new process of the same interpreter."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def save(buffer: SelectiveReplayBuffer, way: str, path: Path) -> None:
    if way == "state_dict":
        torch.save(buffer.state_dict(), path)
    elif way == "dumps":
        buffer.dumps(path)
    elif way == "save":
        buffer.save(path)
    else:
        path.write_bytes(pickle.dumps(buffer))


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """For every combination, what went on here and what was resumed elsewhere."""
    folder = tmp_path_factory.mktemp("restart")
    plan, here = {}, {}
    stream = make_stream(STREAM)
    for policy, storage, stop in itertools.product(KINDS, STORAGES, STOPS):
        items = STOPS[stop]
        buffer = make_buffer(policy, storage=STORAGES[storage]())
        play(buffer, stream[:items])
        names = []
        for way in WAYS[storage]:
            names.append(f"{policy}-{way}-{storage}-{stop}")
            plan[names[-1]] = (policy, way, storage, items, STREAM)
            save(buffer, way, folder / names[-1])
        saved = complete_state(buffer)
        log = play(buffer, stream[items:])
        here.update(dict.fromkeys(names, (saved, log, complete_state(buffer))))
    (folder / "plan.json").write_text(json.dumps(plan))
    run_script(RESUME, folder, Path(__file__).parent)
    there = torch.load(folder / "results.pt", weights_only=True)
    return {name: (here[name], there[name]) for name in plan}


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize(
    ("way", "storage"), [(way, storage) for storage in WAYS for way in WAYS[storage]]
)
@for_each_kind_of_policy
def test_a_new_process_goes_on_to_the_bit(
    policy: str,
    way: str,
    storage: str,
    stop: str,
    resumed: dict[str, tuple[Any, Any]],
) -> None:
    here, there = resumed[f"{policy}-{way}-{storage}-{stop}"]
    assert not isinstance(there, str), there
    for part, one, other in zip(("restored", "log", "end"), here, there, strict=True):
        assert differences(one, other, part) == []


def test_a_stop_in_the_middle_of_filling_is_one(
    resumed: dict[str, tuple[Any, Any]],
) -> None:
    (saved, _, end), _ = resumed["infors-dumps-tensor-filling"]
    assert (saved["size"], end["size"]) == (STOPS["filling"], CAPACITY)
    assert end["_writer"]["counters"]["write_count"] == STREAM


# -- within a process -----------------------------------------------------------------


@pytest.mark.parametrize("stop", STOPS)
@for_each_storage
@for_each_kind_of_policy
def test_a_deep_copy_goes_on_to_the_bit_and_by_itself(
    policy: str, storage: str, stop: str
) -> None:
    stream = make_stream(STREAM)
    past, future = stream[: STOPS[stop]], stream[STOPS[stop] :]
    buffer = make_buffer(policy, storage=STORAGES[storage]())
    play(buffer, past)
    twin = copy.deepcopy(buffer)
    before = complete_state(twin)
    log = play(buffer, future)
    assert differences(before, complete_state(twin)) == []
    assert differences(log, play(twin, future)) == []
    assert differences(complete_state(buffer), complete_state(twin)) == []


@pytest.mark.parametrize("way", ["state_dict", "dumps"])
@for_each_storage
@for_each_kind_of_policy
def test_a_restored_buffer_can_be_used_like_any_other(
    policy: str, storage: str, way: str, tmp_path: Path
) -> None:
    buffer = make_buffer(policy, storage=STORAGES[storage]())
    play(buffer, make_stream(40))
    twin = make_buffer(policy, storage=STORAGES[storage]())
    if way == "state_dict":
        twin.load_state_dict(buffer.state_dict())
    else:
        buffer.dumps(tmp_path)
        twin.loads(tmp_path)
    assert len(twin) == len(buffer)
    assert_full(twin)
    assert differences(twin[:], buffer[:]) == []
    assert differences(twin[3], buffer[3]) == []
    assert differences(twin.sample(), buffer.sample()) == []
    assert twin.add(make_stream(1)[0]) == buffer.add(make_stream(1)[0])
    twin.empty()
    assert len(twin.extend(make_stream(3))) == len(twin) == 3
    if policy in INFORMATION:
        assert_in_step(twin)


@pytest.mark.parametrize("way", ["state_dict", "dumps"])
@for_each_storage
@for_each_kind_of_policy
def test_a_buffer_that_was_in_use_takes_a_saved_state(
    policy: str, storage: str, way: str, tmp_path: Path
) -> None:
    stream = make_stream(STREAM)
    buffer = make_buffer(policy, storage=STORAGES[storage]())
    play(buffer, stream[:40])
    other = make_buffer(policy, storage=STORAGES[storage](), seed=5)
    play(other, make_stream(50, seed=5))
    if way == "state_dict":
        other.load_state_dict(buffer.state_dict())
    else:
        buffer.dumps(tmp_path)
        other.loads(tmp_path)
    assert differences(complete_state(buffer), complete_state(other)) == []
    assert differences(play(buffer, stream[40:]), play(other, stream[40:])) == []


@for_each_kind_of_policy
def test_a_state_from_before_the_first_item_makes_a_buffer_new(policy: str) -> None:
    stream = make_stream(60)
    new, used = make_buffer(policy), make_buffer(policy, seed=5)
    play(used, make_stream(50, seed=5))
    used.load_state_dict(new.state_dict())
    assert (len(used), used.write_count, used.reservoir_count) == (0, 0, 0)
    assert differences(play(new, stream), play(used, stream)) == []


@for_each_kind_of_policy
def test_storages_can_be_exchanged_on_the_way(policy: str, tmp_path: Path) -> None:
    stream = make_stream(STREAM)
    buffer = make_buffer(policy, storage=STORAGES["memmap"]())
    play(buffer, stream[:40])
    buffer.dumps(tmp_path)
    twin = make_buffer(policy, storage=STORAGES["tensor"]())
    twin.loads(tmp_path)
    assert differences(play(buffer, stream[40:]), play(twin, stream[40:])) == []


@for_each_kind_of_policy
def test_a_writer_in_a_plain_buffer_is_saved_with_it(
    policy: str, tmp_path: Path
) -> None:
    stream = make_stream(STREAM)

    def make_plain() -> TensorDictReplayBuffer:
        return TensorDictReplayBuffer(
            storage=LazyTensorStorage(CAPACITY),
            writer=make_writer(policy),
            batch_size=BATCH,
        )

    buffer, twin, ours = make_plain(), make_plain(), make_buffer(policy)
    buffer.extend(stream[:40].clone())
    buffer.dumps(tmp_path)
    twin.loads(tmp_path)
    ours.loads(tmp_path)
    for batch in stream[40:].split(7):
        slots = buffer.extend(batch.clone())
        assert torch.equal(slots, twin.extend(batch.clone()))
        assert torch.equal(slots, ours.extend(batch.clone()))


def make_prioritized_sampler() -> PrioritizedSampler:
    return PrioritizedSampler(CAPACITY, alpha=0.7, beta=0.5)


@pytest.mark.parametrize("way", ["state_dict", "dumps", "pickle", "deepcopy"])
@pytest.mark.parametrize(
    "sampler", [RandomSampler, SamplerWithoutReplacement, make_prioritized_sampler]
)
@pytest.mark.parametrize("policy", ["rs", "infors"])
def test_samplers_go_on_where_they_were(
    policy: str, sampler: Callable[[], Any], way: str, tmp_path: Path
) -> None:
    stream = make_stream(STREAM)
    buffer = make_buffer(policy, sampler=sampler())
    play(buffer, stream[:40])
    twin = make_buffer(policy, sampler=sampler(), seed=5)
    if way == "deepcopy":
        twin = copy.deepcopy(buffer)
    elif way == "pickle":
        twin = pickle.loads(pickle.dumps(buffer))
    elif way == "dumps":
        buffer.dumps(tmp_path)
        twin.loads(tmp_path)
    else:
        twin.load_state_dict(buffer.state_dict())
    assert differences(play(buffer, stream[40:]), play(twin, stream[40:])) == []


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


@for_each_storage
@for_each_kind_of_policy
def test_a_state_dict_is_a_snapshot(policy: str, storage: str) -> None:
    buffer = make_buffer(policy, storage=STORAGES[storage]())
    play(buffer, make_stream(40))
    state = buffer.state_dict()
    before = copy.deepcopy(state)
    play(buffer, make_stream(30, seed=1))
    buffer.empty()
    assert differences(before, state) == []


@pytest.mark.parametrize(
    "sampler", [SamplerWithoutReplacement, make_prioritized_sampler]
)
def test_samplers_and_transforms_are_part_of_the_snapshot(
    sampler: Callable[[], Any],
) -> None:
    buffer = make_buffer("infors", sampler=sampler())
    buffer.append_transform(Counting())
    play(buffer, make_stream(40))
    state = buffer.state_dict()
    twin = make_buffer("infors", sampler=sampler())
    twin.append_transform(Counting())
    early = copy.deepcopy(twin)
    early.load_state_dict(state)
    play(buffer, make_stream(30, seed=1))
    twin.load_state_dict(state)
    stream = make_stream(20, seed=2)
    assert differences(play(early, stream), play(twin, stream)) == []
    assert int(early.transform[0].count) == int(twin.transform[0].count) == 8 + 4


@for_each_storage
@for_each_kind_of_policy
def test_a_state_that_was_taken_can_be_taken_again(policy: str, storage: str) -> None:
    stream = make_stream(STREAM)
    buffer = make_buffer(policy, storage=STORAGES[storage]())
    play(buffer, stream[:40])
    state = buffer.state_dict()
    logs = []
    for _ in range(2):
        twin = make_buffer(policy, storage=STORAGES[storage](), seed=5)
        twin.load_state_dict(state)
        logs.append(play(twin, stream[40:]))
    logs.append(play(buffer, stream[40:]))
    assert differences(logs[0], logs[1]) == []
    assert differences(logs[0], logs[2]) == []


def make_large_batch(number: int) -> TensorDict:
    """Items that take long to copy and tell in every place which item they are."""
    batch = make_stream(16, seed=number)
    batch["id"] = torch.arange(16) + 16 * number
    batch["observation"] = batch["id"][:, None].float().repeat(1, 20_000)
    return batch


@pytest.mark.parametrize("way", ["state_dict", "dumps"])
@for_each_kind_of_policy
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
    while writer.is_alive() and len(saved) < 3:
        if way == "state_dict":
            saved.append(buffer.state_dict())
        else:
            saved.append(tmp_path / str(len(saved)))
            buffer.dumps(saved[-1])
    writer.join()
    for state in saved:
        twin = make_buffer(policy, capacity)
        twin.load_state_dict(state) if way == "state_dict" else twin.loads(state)
        memory = twin[:]
        ids = memory["id"].float()[:, None]
        assert bool((memory["observation"] == ids).all())
        for number in range(twin.write_count // 16, batches):
            twin.extend(make_large_batch(number))
        assert torch.equal(twin[:]["id"], buffer[:]["id"])


@for_each_kind_of_policy
def test_saving_changes_nothing(policy: str, tmp_path: Path) -> None:
    stream = make_stream(STREAM)
    saving, quiet = make_buffer(policy), make_buffer(policy)
    logs: tuple[list[Tensor], list[Tensor]] = ([], [])
    for number, batch in enumerate(stream.split(35)):
        logs[0].extend(play(saving, batch))
        logs[1].extend(play(quiet, batch))
        save(saving, "dumps", tmp_path / "dumps")
        save(saving, "pickle", tmp_path / f"pickle-{number}")
        save(saving, "state_dict", tmp_path / f"state-{number}")
    assert differences(*logs) == []


@for_each_kind_of_policy
def test_a_buffer_that_is_seeded_by_chance_is_saved_with_its_seed(
    policy: str, tmp_path: Path
) -> None:
    stream = make_stream(STREAM)
    buffer = SelectiveReplayBuffer(
        CAPACITY, writer=make_writer(policy), batch_size=BATCH
    )
    state = buffer.state_dict()
    play(buffer, stream)
    twin = SelectiveReplayBuffer(CAPACITY, writer=make_writer(policy), batch_size=BATCH)
    twin.load_state_dict(state)
    play(twin, stream)
    assert differences(buffer[:], twin[:]) == []


# -- on disk --------------------------------------------------------------------------


@for_each_kind_of_policy
def test_a_save_replaces_the_one_before_it(policy: str, tmp_path: Path) -> None:
    buffer = make_buffer(policy)
    stream = make_stream(STREAM)
    for batch in stream.split(35):
        play(buffer, batch)
        buffer.dumps(tmp_path / "run" / "memory")
    twin = make_buffer(policy, seed=5)
    twin.loads(str(tmp_path / "run" / "memory"))
    assert differences(complete_state(buffer), complete_state(twin)) == []
    folders = [
        path for path in (tmp_path / "run" / "memory").iterdir() if path.is_dir()
    ]
    assert len(folders) == 1


@for_each_kind_of_policy
def test_a_save_that_fails_leaves_the_one_before_it(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = make_buffer(policy)
    play(buffer, make_stream(40))
    buffer.dumps(tmp_path)
    saved, files = complete_state(buffer), sorted(tmp_path.rglob("*"))
    play(buffer, make_stream(60, seed=1))

    def fail(path: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(buffer.writer, "dumps", fail)
    with pytest.raises(OSError, match="no space"):
        buffer.dumps(tmp_path)
    assert sorted(tmp_path.rglob("*")) == files
    twin = make_buffer(policy, seed=5)
    twin.loads(tmp_path)
    assert differences(saved, complete_state(twin)) == []


@for_each_kind_of_policy
def test_a_memory_is_no_longer_tied_to_the_folder_it_came_from(
    policy: str, tmp_path: Path
) -> None:
    stream = make_stream(STREAM)
    buffer = make_buffer(policy)
    play(buffer, stream[:40])
    buffer.dumps(tmp_path)
    twins = [make_buffer(policy, seed=5), make_buffer(policy, seed=6)]
    for twin in twins:
        twin.loads(tmp_path)
        play(twin, stream[40:])
    fresh = make_buffer(policy, seed=7)
    fresh.loads(tmp_path)
    assert differences(complete_state(fresh), complete_state(buffer)) == []
    assert differences(complete_state(twins[0]), complete_state(twins[1])) == []


@for_each_kind_of_policy
def test_a_folder_that_torchrl_wrote_is_replaced_too(
    policy: str, tmp_path: Path
) -> None:
    plain = TensorDictReplayBuffer(
        storage=LazyTensorStorage(CAPACITY), batch_size=BATCH
    )
    plain.extend(make_stream(CAPACITY, seed=8))
    plain.dumps(tmp_path)
    buffer = make_buffer(policy)
    play(buffer, make_stream(40))
    for _ in range(2):
        buffer.dumps(tmp_path)
        twin = make_buffer(policy, seed=5)
        twin.loads(tmp_path)
        assert differences(complete_state(buffer), complete_state(twin)) == []


@for_each_kind_of_policy
def test_loading_needs_a_save(policy: str, tmp_path: Path) -> None:
    for folder in (tmp_path / "missing", tmp_path):
        with pytest.raises(FileNotFoundError, match="no replay buffer was saved") as it:
            make_buffer(policy).loads(folder)
        assert str(folder) in str(it.value)


@for_each_kind_of_policy
def test_a_buffer_without_items_says_that_there_is_nothing_to_save(
    policy: str, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="non-initialized"):
        make_buffer(policy).dumps(tmp_path)
    assert list(tmp_path.iterdir()) == []


#: Saves two contents in turn in a forked child, which is killed at random moments.
KILL = """
    import json, os, random, signal, sys, time
    from pathlib import Path

    import torch
    from tensordict import TensorDict

    from info_replay import make_replay_buffer

    torch.set_num_threads(1)
    folder, rows, width = Path(sys.argv[1]), 256, 2048
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
    while interrupted < 15 and len(found) < 60:
        child = start_saving()
        time.sleep(chance.uniform(0, 3) * duration)
        kill(child)
        interrupted += sum(path.is_dir() for path in folder.iterdir()) > 1
        found.append(which())
    buffers[2].dumps(folder)
    final, left = which(), sum(1 for _ in folder.iterdir())
    child, meanwhile = start_saving(), []
    try:
        for _ in range(25):
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


@pytest.fixture(scope="module")
def saving(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was found on disk after kills, and while another process saved."""
    done = run_script(KILL, tmp_path_factory.mktemp("kill"))
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["megabytes"] > 3
    return report


def test_a_save_that_is_killed_leaves_the_old_one_or_the_new_one(
    saving: dict[str, Any],
) -> None:
    assert saving["interrupted"] >= 15
    assert [found for found in saving["found"] if found not in ([1], [2])] == []


def test_the_next_save_cleans_up_what_killed_ones_left(saving: dict[str, Any]) -> None:
    assert saving["final"] == [2]
    assert saving["left"] == 2  # a snapshot and the file that names it


def test_a_save_can_be_loaded_while_the_next_one_is_written(
    saving: dict[str, Any],
) -> None:
    assert [found for found in saving["meanwhile"] if found not in ([1], [2])] == []


def test_leftovers_of_a_killed_save_do_not_matter_and_are_cleaned(
    tmp_path: Path,
) -> None:
    buffer = make_buffer("infors")
    play(buffer, make_stream(40))
    buffer.dumps(tmp_path)
    (current,) = (path for path in tmp_path.iterdir() if path.is_dir())
    torn = tmp_path / f"{current.name[:-4]}torn"
    (torn / "storage").mkdir(parents=True)
    (torn / "storage" / "meta.json").write_text("{")
    twin = make_buffer("infors", seed=5)
    twin.loads(tmp_path)
    assert differences(complete_state(buffer), complete_state(twin)) == []
    buffer.dumps(tmp_path)
    assert not torn.exists()
    assert len(os.listdir(tmp_path)) == 2
