"""What the tests of the buffers share: small streams, buffers and exact comparison.

The module imports nothing from its own package, so that a script in another process can
use it, too.
"""

from __future__ import annotations

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
from info_replay.writers import HybridWriter, SelectionWriter

#: Those with a ring of recent items, named after what selects behind it.
HYBRID = ("recent-rs", "recent-infors")
RECENT = 3

POLICIES = (
    "rs",
    "wrs",
    "cbrs",
    "gss",
    "infogs",
    "infogs-rs",
    "infors",
    "fss-clust",
    "coreset",
    *HYBRID,
)
#: Those that keep a posterior, moments and features.
INFORMATION = ("infogs", "infogs-rs", "infors", "recent-infors")
#: Those that look at stored features, which replay should bring back.
FEATURES = (
    *INFORMATION,
    "fss-clust",
)
#: Those whose memory may shrink: priorities can't follow, and it need not be full.
REGROUPING = ("fss-clust", "coreset")
#: Those whose memory, once full, is full.
FIXED = tuple(policy for policy in POLICIES if policy not in REGROUPING)
#: Those of them that select among all items, without a ring.
PURE = tuple(policy for policy in FIXED if policy not in HYBRID)
#: All but those of which another one tells as much.
KINDS = tuple(policy for policy in POLICIES if policy != "recent-rs")
#: Those that look at labels.
LABELLED = ("cbrs", *INFORMATION, "coreset")

CAPACITY, WIDTH, CLASSES, BATCH = 16, 5, 4, 6

for_each_policy = pytest.mark.parametrize("policy", POLICIES)
for_each_kind_of_policy = pytest.mark.parametrize("policy", KINDS)
for_each_information_policy = pytest.mark.parametrize("policy", INFORMATION)
for_each_feature_policy = pytest.mark.parametrize("policy", FEATURES)
for_each_fixed_policy = pytest.mark.parametrize("policy", FIXED)
for_each_pure_policy = pytest.mark.parametrize("policy", PURE)


def make_stream(count: int, *, seed: int = 0, width: int = WIDTH) -> TensorDict:
    """Items that every policy can read: clusters of features, one a class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    centres = 2 * torch.nn.functional.one_hot(labels, width)
    return TensorDict(
        {
            "id": torch.arange(count),
            "observation": torch.randn(count, 3, generator=generator),
            "feature": centres + torch.randn(count, width, generator=generator),
            "target": labels,
            "logits": torch.randn(count, CLASSES, generator=generator),
        },
        batch_size=[count],
    )


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
    if policy in LABELLED:
        options["num_classes"] = CLASSES
    if policy in HYBRID:
        options["recent"] = RECENT
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


def name_of(policy: str) -> str:
    """What ``make_replay_buffer`` calls it."""
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


def rebuilt_posterior(buffer: SelectiveReplayBuffer) -> BayesianLinearPosterior:
    """The posterior that follows from what the storage holds."""
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
    writer = buffer.writer.policy
    ring = RECENT if isinstance(buffer.writer, HybridWriter) else 0
    if len(buffer) > ring:
        memory = buffer.storage[ring : len(buffer)]
        targets = memory.get(writer.target_key)
        if writer.num_classes is not None:
            targets = torch.nn.functional.one_hot(targets.flatten(), writer.num_classes)
        fresh.observe(
            memory.get(writer.feature_key),
            targets.double(),
            rows=torch.arange(len(memory)),
        )
    return fresh


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
    if not hasattr(buffer.writer.policy, "posterior"):
        return
    kept, fresh = buffer.posterior, rebuilt_posterior(buffer)
    assert kept is not None
    points = make_stream(7, seed=1, width=kept.feature_dim)["feature"]
    answers = [*kept.predict(points), kept.leverage(points)]
    expected = [*fresh.predict(points), fresh.leverage(points)]
    for found, right in zip(answers, expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)
