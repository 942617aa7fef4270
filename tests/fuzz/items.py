"""Items all of whose entries follow from their id, so that a torn row shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase
from torch import Tensor

CLASSES, WIDTH = 4, 5


def make_items(ids: Iterable[int]) -> TensorDict:
    """One item per id; ``feature`` is the only entry that later changes."""
    number = torch.tensor([*ids], dtype=torch.int64)
    waves = torch.sin(number.double()[:, None] * torch.arange(1, 12) * 0.7)
    target = number * 7919 % 101 % CLASSES
    centers = 2 * torch.nn.functional.one_hot(target, WIDTH)
    return TensorDict(
        {
            "id": number,
            "observation": waves[:, :3].float(),
            "feature": (centers + waves[:, 3:8]).float(),
            "target": target,
            "logits": waves[:, 4:8].float(),
            "half": waves[:, 8].half(),
            "pixels": (number[:, None, None] % 251 + torch.zeros(2, 2)).byte(),
            "next": {
                "observation": waves[:, 8:],
                "done": number % 3 == 0,
                "step": (number % 1000).int(),
            },
        },
        batch_size=[len(number)],
    )


def fixed_entries(rows: TensorDictBase) -> dict[str, Tensor]:
    """All entries but the features, by name."""
    return {
        key if isinstance(key, str) else ".".join(key): value
        for key, value in rows.items(include_nested=True, leaves_only=True)
        if key not in ("feature", "index", "index_generation", "priority_weight")
    }


def assert_whole(rows: TensorDictBase) -> None:
    """Every row is an item, whatever its features: nothing torn, nothing mixed up."""
    found = fixed_entries(rows)
    expected = fixed_entries(make_items(rows["id"].tolist()))
    assert found.keys() == expected.keys(), f"entries {[*found]}, not {[*expected]}"
    for name, value in found.items():
        assert value.dtype == expected[name].dtype, f"{name} is of type {value.dtype}"
        assert torch.equal(value, expected[name]), f"{name} is of another item"


# -- the same items, in other forms ---------------------------------------------------


def _lazy_stack(items: TensorDict) -> TensorDictBase:
    return LazyStackedTensorDict(*items.unbind(0), stack_dim=0)


def _with_gradients(items: TensorDict) -> TensorDict:
    items["feature"] = items["feature"].requires_grad_() * 1
    return items


def _strided(items: TensorDict) -> TensorDictBase:
    def stride(value: Tensor) -> Tensor:
        return torch.stack([value, value.logical_not().to(value.dtype)], -1)[..., 0]

    return items.apply(stride)


def _negated_view(items: TensorDict) -> TensorDict:
    """Tensors whose sign torch has not applied yet, as of ``z.conj().imag``."""
    for key in ("feature", "observation"):
        items[key] = torch._neg_view(-items[key])
    return items


def _sampled_before(items: TensorDict) -> TensorDict:
    """With the bookkeeping of a sample of another buffer, which is not stored."""
    items["index"] = torch.full([len(items)], 99)
    items["index_generation"] = torch.full([len(items)], 99)
    return items


#: What a user may hand to ``extend``.
FORMS: dict[str, Callable[[TensorDict], TensorDictBase]] = {
    "plain": lambda items: items,
    "on a device": lambda items: items.to("cpu"),
    "lazy stack": _lazy_stack,
    "with gradients": _with_gradients,
    "strided": _strided,
    "negated view": _negated_view,
    "locked": lambda items: items.lock_(),
    "sampled before": _sampled_before,
}
