"""On a GPU nothing waits for the device but one small transfer per round.

Machines without a GPU run the same code on fake tensors: they have a device, shapes and
types but no values, so mixing devices or looking at a value is an error. What decisions
need comes through one function, ``to_host``. A run on the CPU that computes as a GPU
would (with tensors instead of arrays) records what passes there, and the run on fake
tensors is given the same arrays, so both decide alike.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from info_replay import SelectiveReplayBuffer, make_replay_buffer
from info_replay.model.sequential_scores import Assignment
from info_replay.testing import fake_device
from info_replay.transfer import to_host

from .helpers import (
    BATCH,
    CLASSES,
    HYBRID,
    INFORMATION,
    WIDTH,
    assert_full,
    for_each_policy,
    make_stream,
    name_of,
    policy_options,
)

CAPACITY = 24
GPU = fake_device()
aten = torch.ops.aten

#: Kernel statistics are used where features are wide for the capacity.
WIDTHS = {"primal": WIDTH, "kernel": 2 * CAPACITY}
in_both_forms = pytest.mark.parametrize("form", WIDTHS)


@pytest.fixture(scope="module", autouse=True)
def _no_collection() -> Iterator[None]:
    """Keep the collector from freeing other tests' tensors on the fake GPU.

    Torch aborts the process if that happens while the mode is active.
    """
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# -- watching -------------------------------------------------------------------------


class DeviceReads(TorchDispatchMode):
    """Logs operations that bring values from the GPU to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.allowed = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.allowed and self._reads(func, args, result):
            self.log.append(str(func))
        return result

    @staticmethod
    def _reads(func: Any, args: Any, result: Any) -> bool:
        if func is aten._to_copy.default:
            return on_gpu(args[0]) and not on_gpu(result)
        if func is aten.copy_.default:
            return on_gpu(args[1]) and not on_gpu(args[0])
        waiting = (aten._local_scalar_dense.default, aten.nonzero.default)
        return func in waiting and on_gpu(args[0])


@contextlib.contextmanager
def fake_gpu() -> Iterator[None]:
    """Let tensors have a device, a shape and a type but no values."""

    def refuse(tensor: FakeTensor, memo: object) -> None:
        raise NotImplementedError("a deep copy would read what a fake tensor lacks")

    with pytest.MonkeyPatch.context() as patch:
        # Torch would copy memory that is not there and break the interpreter.
        patch.setattr(FakeTensor, "__deepcopy__", refuse, raising=False)
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield


def on_gpu(tensor: Tensor) -> bool:
    return tensor.device.type == torch.device(GPU).type


@dataclass
class Gateway:
    """Stands in for ``to_host``, and either records what passes or replays it."""

    reads: DeviceReads | None = None
    recorded: list[list[NDArray[Any]]] = field(default_factory=list)
    replay: Iterator[list[NDArray[Any]]] | None = None
    calls: int = 0

    def __call__(self, *tensors: Tensor | NDArray[Any]) -> list[NDArray[Any]]:
        self.calls += 1
        if self.replay is not None:
            assert all(isinstance(tensor, FakeTensor) for tensor in tensors)
            arrays = next(self.replay)
            assert [tuple(tensor.shape) for tensor in tensors] == [
                array.shape for array in arrays
            ]
            return [array.copy() for array in arrays]
        if self.reads is not None:
            self.reads.allowed = True
        arrays = to_host(*tensors)
        if self.reads is not None:
            self.reads.allowed = False
        self.recorded.append([array.copy() for array in arrays])
        return arrays


@contextlib.contextmanager
def replaced(**stand_ins: Callable[..., Any]) -> Iterator[None]:
    """Let every module of the package use other functions of these names."""
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith("info_replay.")
    ]
    with pytest.MonkeyPatch.context() as patch:
        for name, stand_in in stand_ins.items():
            users = [module for module in modules if hasattr(module, name)]
            assert len(users) > 1
            for module in users:
                patch.setattr(module, name, stand_in)
        yield


def as_a_device() -> contextlib.AbstractContextManager[None]:
    """Let the host compute like a device: with tensors, and blind to their values."""
    return replaced(on_host=lambda tensor: False)


# -- what is run ----------------------------------------------------------------------


@dataclass
class Step:
    """One use of a buffer and what it cost."""

    name: str
    result: Any
    calls: int
    written: int
    entered: int


@dataclass
class Run:
    """A buffer after all steps, and what each of them cost."""

    buffer: SelectiveReplayBuffer
    steps: list[Step] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)

    def __getitem__(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)


def make_device_buffer(
    policy: str, device: str, *, form: str = "primal", **options: Any
) -> SelectiveReplayBuffer:
    """A buffer that keeps some items of a batch, neither all nor none."""
    settings = policy_options(policy)
    if policy in INFORMATION:
        settings["gamma"] = -0.5
    if policy.startswith("infogs"):
        settings["gamma"] = -1.0 if form == "primal" else -6.0
        settings["gamma_learnability"] = -5.0 if form == "primal" else -20.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        buffer = make_replay_buffer(
            name_of(policy),
            CAPACITY,
            device=device,
            batch_size=BATCH,
            **{**settings, **options},
        )
    buffer.writer.seed = 0
    return buffer


def write_back(buffer: SelectiveReplayBuffer) -> Tensor:
    sample = buffer.sample()
    assert all(entry.device == sample["feature"].device for entry in sample.values())
    sample["feature"] = sample["feature"] + 0.1
    buffer.update_tensordict_priority(sample)
    index: Tensor = sample["index"]
    return index


def use(
    buffer: SelectiveReplayBuffer, make: Callable[[int, int], TensorDict], gate: Gateway
) -> Run:
    """Fill a memory, go on with a full one and write features back.

    Args:
        buffer: a new one.
        make: gives a batch of so many items from such a seed.
        gate: what takes the place of ``to_host``.

    Returns:
        What each step cost.
    """
    steps: dict[str, Callable[[], Any]] = {
        "fill": lambda: buffer.extend(make(9, 1)),
        "write back while filling": lambda: write_back(buffer),
        "fill to the brim": lambda: buffer.extend(make(CAPACITY - 9, 2)),
        "extend": lambda: buffer.extend(make(8, 3)),
        "write back": lambda: write_back(buffer),
        "extend again": lambda: buffer.extend(make(8, 4)),
        "add": lambda: buffer.add(make(1, 5)[0]),
        "sample": buffer.sample,
    }
    run = Run(buffer)
    given = []
    give = Assignment.give

    def counting(assignment: Assignment, row: int, slot: int, old: Any) -> None:
        given.append(row)
        give(assignment, row, slot, old)

    def costs() -> tuple[int, int, int]:
        return gate.calls, len(given), buffer.reservoir_count

    with replaced(to_host=gate), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Assignment, "give", counting)
        for name, step in steps.items():
            before = costs()
            result = step()
            cost = (b - a for a, b in zip(before, costs(), strict=True))
            run.steps.append(Step(name, result, *cost))
    return run


def run_on(
    machine: str,
    policy: str,
    *,
    form: str = "primal",
    num_classes: int | None = CLASSES,
    device: str = GPU,
    data_device: str = GPU,
) -> Run:
    """Use a buffer on a machine; the result is kept for other tests.

    Args:
        machine: ``"real"`` or ``"fake"`` for a GPU, ``"host"`` for a CPU, ``"torch"``
            for a CPU that computes as a GPU does.
        policy: to use.
        form: of its statistics.
        num_classes: ``None`` for regression.
        device: of the memory, on a GPU.
        data_device: of the items, on a GPU.
    """
    if machine in ("host", "torch"):
        device = data_device = "cpu"
    return _run_on(machine, policy, form, num_classes, device, data_device)[0]


@functools.cache
def _run_on(
    machine: str,
    policy: str,
    form: str,
    num_classes: int | None,
    device: str,
    data_device: str,
) -> tuple[Run, Gateway]:
    options: dict[str, Any] = {"form": form}
    if policy in INFORMATION:
        options["num_classes"] = num_classes

    def make(count: int, seed: int) -> TensorDict:
        batch = make_stream(count, seed=seed, width=WIDTHS[form])
        if num_classes is None:
            batch["target"] = batch["observation"].clone()
        # Values do not survive the way to a fake device; shapes and types do.
        return batch.to(data_device)

    gateway = Gateway()
    buffer = make_device_buffer(policy, device, **options)
    if machine == "host":
        return use(buffer, make, gateway), gateway
    if machine == "torch":
        with as_a_device():
            return use(buffer, make, gateway), gateway
    reads = DeviceReads()
    if machine == "real":
        gateway.reads = reads
        with reads:
            run = use(buffer, make, gateway)
    else:
        recorded = _run_on("torch", policy, form, num_classes, "cpu", "cpu")[1].recorded
        gateway.replay = iter(recorded)
        with fake_gpu(), reads:
            run = use(buffer, make, gateway)
            if policy in INFORMATION:
                _ = buffer.posterior  # brings in what waits, here where a GPU is
        assert gateway.calls == len(recorded)
    run.reads = reads.log
    return run, gateway


# -- the watchers themselves ----------------------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        lambda tensor: tensor.sum().item(),
        lambda tensor: tensor.cpu(),
        lambda tensor: torch.empty(3).copy_(tensor),
        lambda tensor: tensor[tensor > 0],
        lambda tensor: tensor + torch.ones(3),
    ],
    ids=["item", "copy", "copy into", "mask", "mixed devices"],
)
def test_a_fake_gpu_does_not_let_values_through_unseen(
    read: Callable[[Tensor], object],
) -> None:
    with fake_gpu(), DeviceReads() as reads:
        tensor = torch.ones(3, device=GPU)
        try:
            read(tensor)
        except Exception:
            return
    assert reads.log


def test_writing_to_the_device_is_not_reading_from_it() -> None:
    with fake_gpu(), DeviceReads() as reads:
        tensor = torch.ones(3, device=GPU)
        tensor.copy_(torch.ones(3))
        torch.from_numpy(np.ones(3)).to(GPU)
    assert reads.log == []


# -- the laws -------------------------------------------------------------------------


@in_both_forms
@pytest.mark.parametrize("num_classes", [CLASSES, None], ids=["labels", "regression"])
@pytest.mark.parametrize("policy", INFORMATION)
def test_tensors_decide_as_arrays_do(
    policy: str, num_classes: int | None, form: str
) -> None:
    """What a GPU runs, with values that can be compared."""
    host, torch_ = (
        run_on(machine, policy, form=form, num_classes=num_classes)
        for machine in ("host", "torch")
    )
    for here, there in zip(host.steps[:-1], torch_.steps[:-1], strict=True):
        assert torch.equal(torch.as_tensor(here.result), torch.as_tensor(there.result))
    torch.testing.assert_close(host.buffer[:], torch_.buffer[:])
    assert host.buffer.reservoir_count == torch_.buffer.reservoir_count


def assert_all_on(run: Run, device: str, data_device: str) -> None:
    leaves = run.buffer.storage._storage.values(True, True)
    assert {str(leaf.device) for leaf in leaves} == {device}
    assert str(run["extend"].result.device) == data_device
    assert_full(run.buffer)


#: Transfers of each step of :func:`use`. A full memory takes part in a batch of GSS, or
#: overflows with one of FSS-Clust, now and then: that is one more. A third part of a
#: coreset makes two of them merge.
TRANSFERS = {
    "rs": "00000000",
    "recent-rs": "00000000",
    "wrs": "10110110",
    "cbrs": "10110110",
    "gss": "10110210",
    "fss-clust": "11121110",
    "coreset": "10120220",
}


@pytest.mark.parametrize("policy", TRANSFERS)
def test_a_policy_stays_on_the_device(policy: str) -> None:
    run = run_on("fake", policy)
    assert_all_on(run, GPU, GPU)
    assert run.reads == []  # but through the gateway
    assert "".join(str(step.calls) for step in run.steps) == TRANSFERS[policy]


@pytest.mark.parametrize(
    ("policy", "device", "data_device"),
    [
        *itertools.product(
            ["wrs", "cbrs", "gss", "coreset", "fss-clust", "infors", "recent-infors"],
            [GPU],
            ["cpu"],
        ),
        *itertools.product(["gss", "infors", "recent-infors"], ["cpu"], [GPU]),
    ],
)
def test_items_may_live_elsewhere_than_the_memory(
    policy: str, device: str, data_device: str
) -> None:
    run = run_on("fake", policy, device=device, data_device=data_device)
    assert_all_on(run, device, data_device)


@pytest.mark.parametrize(
    ("policy", "targets", "form"),
    [
        ("infors", "labels", "primal"),
        ("infors", "labels", "kernel"),
        ("infors", "regression", "primal"),
        ("infors", "regression", "kernel"),
        ("infogs", "labels", "primal"),
        ("infogs", "regression", "kernel"),
        ("infogs-rs", "labels", "primal"),
        ("recent-infors", "labels", "primal"),
        ("recent-infors", "regression", "kernel"),
    ],
)
def test_an_information_policy_stays_on_the_device(
    policy: str, targets: str, form: str
) -> None:
    """With one transfer per batch, and one per round where the memory is full."""
    num_classes = CLASSES if targets == "labels" else None
    run = run_on("fake", policy, form=form, num_classes=num_classes)
    assert_all_on(run, GPU, GPU)
    assert run.reads == []
    posterior = run.buffer.writer.policy.memory.posterior
    assert posterior.form == form
    tensors = posterior.statistics.tensors().values()
    assert {str(tensor.device) for tensor in tensors} == {GPU}
    # A ring needs one more for what comes, which is checked at once.
    more = int(policy in HYBRID)
    once = ("write back while filling", "write back")
    assert [run[name].calls for name in once] == [1, 1]
    fills = ("fill", "fill to the brim")
    assert [run[name].calls for name in fills] == [1 + more, 1 + more]
    assert run["sample"].calls == 0
    written = 0
    for name in ("extend", "extend again", "add"):
        step = run[name]
        # Scores change when an item is written; InfoGS-RS also looks again when the
        # reservoir turned its best item away. The numbers that come from this device
        # look like points far from all others, which InfoRS notices with one more.
        rounds = step.entered if policy == "infogs-rs" else step.written
        assert 1 + more <= step.calls <= rounds + 2 + more, step
        written += step.written
    assert 1 < written <= 8 + 8 + 1
    assert written < 17 or num_classes is None  # neither all nor none


@pytest.mark.parametrize("policy", ["infogs", "infors"])
def test_a_batch_in_parts_needs_one_transfer_each_and_one_for_the_whole(
    policy: str,
) -> None:
    """A batch that is decided in parts is checked as a whole before the first."""
    capacity, parts = 600, 3  # of 256 items at the most while the memory fills

    def fill(device: str, gateway: Gateway) -> None:
        buffer = make_replay_buffer(
            policy, capacity, device=device, **policy_options(policy)
        )
        buffer.writer.seed = 0
        with replaced(to_host=gateway):
            buffer.extend(make_stream(capacity).to(device))

    recorder = Gateway()
    with as_a_device():
        fill("cpu", recorder)
    gateway = Gateway(replay=iter(recorder.recorded))
    with fake_gpu():
        fill(GPU, gateway)
    assert gateway.calls == parts + 1


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@in_both_forms
@for_each_policy
def test_a_real_gpu_is_used_like_a_fake_one(policy: str, form: str) -> None:
    run, fake = (run_on(machine, policy, form=form) for machine in ("real", "fake"))
    assert_all_on(run, GPU, GPU)
    assert run.reads == []
    assert [step.calls for step in run.steps] == [step.calls for step in fake.steps]
    if policy in ("infogs", "infors"):
        stream = make_stream(30, seed=8, width=WIDTHS[form])
        rebuilt = make_device_buffer(policy, "cpu", form=form)
        rebuilt.extend(run.buffer[:].to("cpu"))
        scores = run.buffer.score(stream.to(GPU)).cpu()
        torch.testing.assert_close(scores, rebuilt.score(stream), rtol=1e-6, atol=1e-6)
