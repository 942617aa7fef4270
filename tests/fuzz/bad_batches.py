"""Batches that memories refuse, each with what is said of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict
from torch import Tensor

Change = Callable[[TensorDict], Any]

INFORMATION = ("infogs", "infors", "recent-infors")
FEATURES = (*INFORMATION, "fss-clust")


def replaced(key: Any, value: Callable[[TensorDict], Any]) -> Change:
    """A batch with one entry replaced or added."""
    return lambda items: items.set(key, value(items))


def spoiled(key: str, place: Any, value: float) -> Change:
    """A batch with one bad value."""

    def change(items: TensorDict) -> TensorDict:
        items[key][place] = value
        return items

    return change


def strings(items: TensorDict) -> NonTensorStack:
    return NonTensorStack(*[f"{number}.png" for number in range(len(items))])


def one_string(items: TensorDict) -> NonTensorData:
    return NonTensorData("one.png", batch_size=[len(items)])


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Change:
    return lambda items: torch.zeros(len(items), *shape, dtype=dtype)


def sparse(items: TensorDict) -> Tensor:
    return torch.zeros(len(items), 3).to_sparse()


def on_meta(items: TensorDict) -> Tensor:
    return torch.zeros(len(items), 3, device="meta")


#: Batches unlike what a memory holds, each made from twelve good items.
BAD_BATCHES: dict[str, tuple[Change, str]] = {
    "a list": (lambda items: [items], "TensorDict"),
    "a dictionary": (lambda items: items.to_dict(), "TensorDict"),
    "None": (lambda items: None, "TensorDict"),
    "a tensor": (lambda items: items["feature"], "TensorDict"),
    "text": (lambda items: "items", "TensorDict"),
    "a number": (lambda items: 3, "TensorDict"),
    "no items": (lambda items: items[:0], "at least one item, got an empty batch"),
    "one item": (lambda items: items[0], "batch_size=[]; use add() for one item"),
    "steps": (
        lambda items: items.reshape(3, 4),
        "per item, got (4",
    ),
    "no observation": (
        lambda items: items.exclude("observation"),
        "missing entry 'observation': every item of this memory has ['feature', 'half'",
    ),
    "no next.done": (
        lambda items: items.exclude(("next", "done")),
        "missing entry 'next.done': every item of this memory has",
    ),
    "no id": (lambda items: items.exclude("id"), "missing entry 'id'"),
    "nothing nested": (lambda items: items.exclude("next"), "missing entry 'next."),
    "wide features": (
        replaced("feature", zeros(7)),
        "entry 'feature' must have the shape (5,) per item, got (7,)",
    ),
    "features without columns": (
        replaced("feature", zeros(0)),
        "entry 'feature' must have the shape (5,) per item, got (0,)",
    ),
    "rows of features": (
        replaced("feature", zeros(3, 5)),
        "entry 'feature' must have the shape (5,) per item, got (3, 5)",
    ),
    "flat features": (
        replaced("feature", zeros()),
        "entry 'feature' must have the shape (5,) per item, got ()",
    ),
    "double features": (
        replaced("feature", lambda items: items["feature"].double()),
        "entry 'feature' must be of type torch.float32, got torch.float64",
    ),
    "whole features": (
        replaced("feature", lambda items: items["feature"].long()),
        "entry 'feature' must be of type torch.float32, got torch.int64",
    ),
    "fractional labels": (
        replaced("target", lambda items: items["target"].float()),
        "entry 'target' must be of type torch.int64, got torch.float32",
    ),
    "a column of labels": (
        replaced("target", lambda items: items["target"][:, None]),
        "entry 'target' must have the shape () per item, got (1,)",
    ),
    "whole halves": (
        replaced("half", zeros(dtype=torch.int32)),
        "entry 'half' must be of type torch.float16, got torch.int32",
    ),
    "wide pixels": (
        replaced("pixels", zeros(2, 3, dtype=torch.uint8)),
        "entry 'pixels' must have the shape (2, 2) per item, got (2, 3)",
    ),
    "numbers for next.done": (
        replaced(("next", "done"), zeros()),
        "entry 'next.done' must be of type torch.bool, got torch.float32",
    ),
    "a wide next.observation": (
        replaced(("next", "observation"), zeros(4, dtype=torch.float64)),
        "entry 'next.observation' must have the shape (3,) per item, got (4,)",
    ),
    "a tensor for what is nested": (
        lambda items: items.exclude("next").set("next", torch.zeros(len(items))),
        "entry 'next",
    ),
    "strings for half": (replaced("half", strings), "'half'"),
    "one string for half": (replaced("half", one_string), "'half'"),
    "strings for next.done": (replaced(("next", "done"), strings), "'next.done'"),
    "strings beside the rest": (replaced("file", strings), "'file'"),
    "one string beside the rest": (replaced("file", one_string), "'file'"),
}

#: What a memory cannot store, from the first batch on; each names its entry.
UNSTORABLE: dict[str, tuple[Change, str]] = {
    "strings": (replaced("file", strings), "'file'"),
    "one string": (replaced("file", one_string), "'file'"),
    "nested strings": (replaced(("next", "file"), strings), "'next.file'"),
    "uint16": (replaced("odd", zeros(3, dtype=torch.uint16)), "'odd'"),
    "uint32": (replaced("odd", zeros(3, dtype=torch.uint32)), "'odd'"),
    "uint64": (replaced("odd", zeros(3, dtype=torch.uint64)), "'odd'"),
    "nested uint16": (
        replaced(("next", "odd"), zeros(dtype=torch.uint16)),
        "'next.odd'",
    ),
    "sparse": (replaced("odd", sparse), "'odd'"),
    "meta": (replaced("odd", on_meta), "'odd'"),
}

#: Values that a policy cannot read, whatever the age of the memory.
VALUES: list[tuple[str, Change, str, tuple[str, ...]]] = [
    (
        "NaN in the first feature",
        spoiled("feature", (0, 2), math.nan),
        "entry 'feature' must be finite, got nan for item 0",
        FEATURES,
    ),
    (
        "infinity in the last feature",
        spoiled("feature", (11, 2), math.inf),
        "entry 'feature' must be finite, got inf for item 11",
        FEATURES,
    ),
    (
        "infinities that cancel",
        lambda items: spoiled("feature", (3, 0), math.inf)(
            spoiled("feature", (7, 0), -math.inf)(items)
        ),
        "entry 'feature' must be finite, got inf for item 3",
        FEATURES,
    ),
    (
        "features of 1e30",
        spoiled("feature", (4, 1), 1e30),
        "entry 'feature' has values up to 1e+30, too large to compute with",
        INFORMATION,
    ),
    (
        "a gradient that is not a number",
        spoiled("feature", (3, 1), math.nan),
        "the gradients function must give finite numbers",
        ("gss",),
    ),
    (
        "NaN in an observation",
        spoiled("observation", (3, 1), math.nan),
        "entry 'observation' must be finite, got nan for item 3",
        ("coreset",),
    ),
    (
        "a negative label",
        spoiled("target", 0, -1),
        "entry 'target' must hold labels from 0 to 3, got -1 for item 0",
        ("cbrs", "coreset", *INFORMATION),
    ),
    (
        "a label too many",
        spoiled("target", 11, 4),
        "entry 'target' must hold labels from 0 to 3, got 4 for item 11",
        ("cbrs", "coreset", *INFORMATION),
    ),
    (
        "the largest label that there is",
        spoiled("target", 5, 2**63 - 1),
        f"got {2**63 - 1} for item 5",
        ("cbrs", "coreset", *INFORMATION),
    ),
    (
        "NaN in the logits",
        spoiled("logits", (0, 0), math.nan),
        "weights must be finite and not negative, got nan for item 0",
        ("wrs",),
    ),
    (
        "infinity in the logits",
        spoiled("logits", (2, 1), math.inf),
        "weights must be finite and not negative, got nan for item 2",
        ("wrs",),
    ),
]

#: What a policy looks for in the first batch.
FIRST: list[tuple[str, Change, str, tuple[str, ...]]] = [
    (
        "no features",
        lambda items: items.exclude("feature"),
        "missing entry 'feature'",
        FEATURES,
    ),
    (
        "whole features",
        replaced("feature", zeros(5, dtype=torch.int64)),
        "entry 'feature' must hold floating-point features, got torch.int64",
        FEATURES,
    ),
    (
        "rows of features",
        replaced("feature", zeros(3, 5)),
        "entry 'feature' must have the shape (n, d), got (12, 3, 5)",
        FEATURES,
    ),
    (
        "features without columns",
        replaced("feature", zeros(0)),
        "entry 'feature' must have the shape (n, d), got (12, 0)",
        FEATURES,
    ),
    (
        "strings as features",
        replaced("feature", strings),
        "'feature'",
        FEATURES,
    ),
    (
        "no labels",
        lambda items: items.exclude("target"),
        "missing entry 'target': the class labels of the items",
        ("cbrs", "coreset", *INFORMATION),
    ),
    (
        "fractional labels",
        replaced("target", zeros()),
        "entry 'target' must hold class labels as whole numbers, got torch.float32",
        ("cbrs", "coreset", *INFORMATION),
    ),
    (
        "true or false as labels",
        replaced("target", zeros(dtype=torch.bool)),
        "entry 'target' must hold class labels as whole numbers, got torch.bool",
        ("cbrs", "coreset", *INFORMATION),
    ),
    (
        "two labels per item",
        replaced("target", zeros(2, dtype=torch.int64)),
        "entry 'target' must hold one label per item, shape (n,), got (12, 2)",
        ("cbrs", "coreset", *INFORMATION),
    ),
    (
        "no observations",
        lambda items: items.exclude("observation"),
        "missing entry 'observation': the inputs",
        ("coreset",),
    ),
    (
        "no logits",
        lambda items: items.exclude("logits"),
        "missing entry 'logits': OutputHessian weighs items by their logits",
        ("wrs",),
    ),
    (
        "flat logits",
        replaced("logits", zeros()),
        "entry 'logits' must hold logits of shape (n, K), got torch.float32",
        ("wrs",),
    ),
]
