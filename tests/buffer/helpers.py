"""What the tests of the buffers share: small streams, buffers and exact comparison.

The module imports nothing from its own package, so that a script in another process can
use it, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay import SelectiveReplayBuffer, make_replay_buffer
from info_replay.model.posterior import BayesianLinearPosterior
from info_replay.registry import POLICIES as WRITERS
from info_replay.storage.slots import Slots
from info_replay.testing import make_items
from info_replay.writers import HybridWriter, SelectionWriter, TaskTimingWriter

#: Those with a ring of recent items, named after what selects behind it.
HYBRID = ("recent-rs", "recent-infors")
RECENT = 3

POLICIES = (
    "rs",
    "wrs",
    "cbrs",
    "auto",
    "clusters",
    "gss",
    "infogs",
    "infogs-rs",
    "infors",
    "fss-clust",
    "coreset",
    *HYBRID,
)
#: Those that keep a posterior, moments and features.
INFORMATION = ("auto", "clusters", "infogs", "infogs-rs", "infors", "recent-infors")
#: Those that look at stored features, which replay should bring back.
FEATURES = (*INFORMATION, "fss-clust")
#: Those whose memory may shrink: priorities can't follow, and it need not be full.
COMPACTING = ("fss-clust", "coreset")
#: Those that look at labels.
LABELED = ("cbrs", *INFORMATION, "coreset")
#: One of each kind that a buffer has to treat differently: without features, with
#: them, with items that move, and with a ring.
KINDS = ("rs", "infors", "fss-clust", "recent-infors")

CAPACITY, WIDTH, CLASSES, BATCH = 16, 5, 4, 6

for_each_policy = pytest.mark.parametrize("policy", POLICIES)
for_each_kind = pytest.mark.parametrize("policy", KINDS)
#: InfoGS-RS shares all but its decisions with InfoGS.
for_each_information_policy = pytest.mark.parametrize(
    "policy", ["auto", "clusters", "infogs", "infors", "recent-infors"]
)
for_each_feature_policy = pytest.mark.parametrize(
    "policy", ["auto", "infogs", "infors", "recent-infors", "fss-clust"]
)


def make_stream(count: int, *, seed: int = 0, width: int = WIDTH) -> TensorDict:
    """Items that every policy can read: clusters of features, one per class."""
    items = make_items(count, seed)
    if width != WIDTH:
        noise = torch.randn(count, width, generator=torch.Generator().manual_seed(seed))
        centers = 2 * torch.nn.functional.one_hot(items["target"], width)
        items["feature"] = centers + noise
    return items


def linear_gradients(
    items: TensorDictBase,
    feature_key: NestedKey = "feature",
    target_key: NestedKey = "target",
) -> Tensor:
    """Gradient of the mean squared error with which features predict the target.

    The weights are near the best ones for a small stream, where gradients disagree.
    """
    features, targets = items[feature_key], items[target_key]
    places = torch.arange(features.shape[-1], device=features.device)
    weights = places % CLASSES / 3
    errors = features @ weights - targets.reshape(features.shape[:-1])
    return 2 * (errors.unsqueeze(-1) * features).mean(1)


def policy_options(policy: str) -> dict[str, Any]:
    """Settings with which a policy writes now and then, neither always nor never."""
    options: dict[str, Any] = {}
    if policy in LABELED:
        options["num_classes"] = CLASSES
    if policy in HYBRID:
        options["recent"] = RECENT
    if policy == "clusters":
        options.update(groups="clusters", num_clusters=3)
    if policy == "gss":
        options.update(gradients=linear_gradients, group_size=3, groups=1)
    if policy == "coreset":
        options["parts"] = 2
    if policy.startswith("infogs"):
        options.update(gamma=-1.0, gamma_learnability=-2.0)
    return options


def make_writer(policy: str) -> SelectionWriter:
    """The writer of a policy, for a buffer of TorchRL's."""
    options = policy_options(policy)
    recent = options.pop("recent", None)
    writer = WRITERS.get(name_of(policy))(**options)
    return writer if recent is None else HybridWriter(writer, recent)


class OneTaskWriter(TaskTimingWriter):
    """Is told of one task, in every life."""

    def manage(self, slots: Slots) -> None:
        super().manage(slots)
        self.start_task()

    def clear_state(self) -> None:
        super().clear_state()
        self.start_task()


def name_of(policy: str) -> str:
    """What ``make_replay_buffer`` calls it."""
    if policy == "clusters":
        return "info_replay:BalancedInfoReservoirWriter"
    return policy.removeprefix("recent-")


def past_ring(policy: str, count: int) -> int:
    """How many of so many items have reached the policy."""
    return max(0, count - RECENT) if policy in HYBRID else count


def make_buffer(
    policy: str, capacity: int | None = CAPACITY, *, seed: int = 0, **options: Any
) -> SelectiveReplayBuffer:
    """A buffer with seeded draws; a storage brings its own capacity."""
    options = {"batch_size": BATCH, **policy_options(policy), **options}
    if options.get("storage") is not None:
        capacity = None
    generator = torch.Generator().manual_seed(seed)
    return make_replay_buffer(name_of(policy), capacity, generator=generator, **options)


def play(
    buffer: SelectiveReplayBuffer, stream: TensorDict, chunk: int = 5
) -> list[Tensor]:
    """Offer a stream, replay and write features back; gives all that was decided."""
    log = []
    for batch in stream.split(chunk):
        log.append(buffer.extend(batch.clone()))
        sample = buffer.sample()
        log += [sample["index"], sample["id"], sample["feature"].clone()]
        sample["feature"] = 0.9 * sample["feature"] + 0.1
        buffer.update_tensordict_priority(sample)
    return log


def sample_of(buffer: SelectiveReplayBuffer, index: list[int]) -> TensorDict:
    """What sampling these slots would give."""
    sample = buffer[torch.tensor(index)].clone()
    sample["index"] = torch.tensor(index)
    sample["index_generation"] = buffer.writer.generations_of(sample["index"])
    return sample


def complete_state(buffer: SelectiveReplayBuffer) -> dict[str, Any]:
    """All that a buffer saves, without slots that were never used.

    They hold whatever was in their memory before.
    """
    state = buffer.state_dict()
    used = state["_storage"].pop("_len")
    leaves = state["_storage"].pop("_storage")
    state["memory"] = {key: leaf[:used].clone() for key, leaf in _tensors(leaves)}
    state["size"] = used
    return state


def _tensors(tree: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Tensor):
        yield path, tree
    elif isinstance(tree, dict):
        for key, entry in tree.items():
            yield from _tensors(entry, f"{path}/{key}")


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two trees of plain values and tensors differ by as much as a bit."""
    if isinstance(left, TensorDictBase):
        left = left.to_dict()
    if isinstance(right, TensorDictBase):
        right = right.to_dict()
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        same = (
            left.dtype == right.dtype
            and left.shape == right.shape
            and _bits(left) == _bits(right)
        )
        return [] if same else [f"{path}: {left} is not {right}"]
    if isinstance(left, dict) and isinstance(right, dict):
        if left.keys() != right.keys():
            return [f"{path}: keys {sorted(left)} are not {sorted(right)}"]
        pairs = [(key, left[key], right[key]) for key in left]
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        if len(left) != len(right):
            return [f"{path}: length {len(left)} is not {len(right)}"]
        pairs = list(zip(range(len(left)), left, right, strict=True))
    else:
        same = type(left) is type(right) and left == right
        return [] if same else [f"{path}: {left!r} is not {right!r}"]
    return [
        difference
        for key, one, other in pairs
        for difference in differences(one, other, f"{path}/{key}")
    ]


def _bits(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()


@contextlib.contextmanager
def refused(
    buffer: SelectiveReplayBuffer, error: type[Exception], *words: str
) -> Iterator[None]:
    """What is done here raises and leaves the buffer as it was.

    Args:
        buffer: that refuses.
        error: of which type.
        words: what the message must contain: the bad value and what was expected.
    """
    buffer.writer.catch_up()  # what it would put off until it is asked
    before = complete_state(buffer)
    with pytest.raises(error) as caught:
        yield
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value)
    assert differences(before, complete_state(buffer)) == []


def assert_full(buffer: SelectiveReplayBuffer) -> None:
    """The memory uses all of its slots, or fewer if it may shrink."""
    if buffer.writer.compacts:
        assert 0 < len(buffer) <= buffer.capacity
    else:
        assert len(buffer) == buffer.capacity


def assert_in_step(buffer: SelectiveReplayBuffer) -> None:
    """The statistics say of random points what a rebuild from the storage says.

    Policies without statistics look at the storage itself.
    """
    policy = buffer.writer.policy
    if not hasattr(type(policy), "posterior"):
        return
    kept = buffer.posterior
    assert kept is not None
    fresh = BayesianLinearPosterior(
        kept.feature_dim,
        kept.target_dim,
        noise=kept.noise,
        jitter=kept.jitter,
        max_rows=buffer.capacity,
        form=kept.form,  # type: ignore[arg-type]
    )
    ring = RECENT if isinstance(buffer.writer, HybridWriter) else 0
    if len(buffer) > ring:
        memory = buffer.storage[ring : len(buffer)]
        targets = memory.get(policy.target_key)
        if policy.num_classes is not None:
            targets = torch.nn.functional.one_hot(targets.flatten(), policy.num_classes)
        elif policy.standardization is not None:
            mean = torch.from_numpy(policy.standardization.mean)
            deviation = torch.from_numpy(policy.standardization.deviation)
            varies = deviation > 1e-6 * mean.abs()
            distances = targets.double().reshape(len(memory), -1) - mean
            targets = torch.where(varies, distances / deviation, 0)
        fresh.observe(
            memory.get(policy.feature_key),
            targets.double(),
            rows=torch.arange(len(memory)),
        )
    points = make_stream(7, seed=1, width=kept.feature_dim)["feature"]
    answers = [*kept.predict(points), kept.leverage(points)]
    expected = [*fresh.predict(points), fresh.leverage(points)]
    for found, right in zip(answers, expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)
