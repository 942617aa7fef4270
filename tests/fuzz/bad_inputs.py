"""Bad input of every kind: the call, whose memory it is, and what it must say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict

from info_replay import SelectiveReplayBuffer

from .bad_batches import (
    BAD_BATCHES,
    FEATURES,
    FIRST,
    INFORMATION,
    UNSTORABLE,
    VALUES,
    Change,
    replaced,
    spoiled,
    strings,
    zeros,
)
from .buffers import REFUSALS
from .items import make_items

#: Items that a memory of 16 slots has been offered; an emptied one holds none of them.
AGES = {"new": 0, "filling": 8, "full": 40, "emptied": 40}
USED = ("full", "emptied")
EVERY = ("rs", "infors", "recent-infors")


@dataclass(frozen=True)
class Case:
    """A call that is refused.

    Attributes:
        name: what is bad.
        call: makes it, of a buffer.
        words: that the message must contain.
        policies: that refuse it.
        ages: at which they do; see :data:`AGES`.
        sampler: of the buffer; see ``tests.fuzz.buffers.SAMPLERS``.
        errors: that it may raise.
    """

    name: str
    call: Callable[[SelectiveReplayBuffer], Any]
    words: str
    policies: tuple[str, ...] = EVERY
    ages: tuple[str, ...] = ("filling", "full")
    sampler: str = "uniform"
    errors: tuple[type[Exception], ...] = REFUSALS


def fresh(count: int = 12) -> TensorDict:
    return make_items(range(500, 500 + count))


def changed(change: Change, count: int = 12) -> Callable[[SelectiveReplayBuffer], Any]:
    """Offer a batch with something done to it."""
    return lambda buffer: buffer.extend(change(fresh(count)))


def all_cases() -> Iterator[Case]:
    """Every bad input."""
    yield from _batches()
    yield from _values()
    yield from _single_items()
    yield from _write_backs()
    yield from _set_items()
    yield from _questions()
    yield from _states()


# -- extend and add -------------------------------------------------------------------


def _batches() -> Iterator[Case]:
    for name, (change, words) in BAD_BATCHES.items():
        yield Case(f"extend: {name}", changed(change), words, ages=USED)
    # Memory maps drop it instead, as TorchRL does.
    unknown = changed(replaced("reward", zeros()))
    yield Case("extend: an unknown entry", unknown, "unknown entry 'reward'", ages=USED)
    for name, (change, words) in UNSTORABLE.items():
        yield Case(f"extend first: {name}", changed(change), words, ages=("new",))
        yield Case(f"extend later: {name}", changed(change), words, ages=USED)


def _values() -> Iterator[Case]:
    ages = ("new", "filling", "full")
    for name, change, words, policies in VALUES:
        yield Case(f"extend: {name}", changed(change), words, policies, ages)
    for name, change, words, policies in FIRST:
        yield Case(f"extend first: {name}", changed(change), words, policies, ("new",))


def _single_items() -> Iterator[Case]:
    def adding(change: Change) -> Callable[[SelectiveReplayBuffer], Any]:
        return lambda buffer: buffer.add(change(fresh(1)))

    for name, change, words in (
        ("a list", lambda items: [items[0]], "an item as a TensorDict, got list"),
        ("None", lambda items: None, "an item as a TensorDict, got NoneType"),
        ("a dictionary", lambda items: items[0].to_dict(), "TensorDict, got dict"),
        ("a batch", lambda items: items, "entry 'id' must have the shape () per item"),
        ("no id", lambda items: items[0].exclude("id"), "missing entry 'id'"),
    ):
        yield Case(f"add: {name}", adding(change), words, ages=USED)
    for name, change, words in (
        ("NaN in the feature", spoiled("feature", (0, 0), math.nan), "got nan for ite"),
        ("wide features", replaced("feature", zeros(7)), "(5,) per item, got (7,)"),
    ):
        call = adding(lambda items, change=change: change(items)[0])
        yield Case(f"add: {name}", call, words, FEATURES)
    for name, (change, words) in UNSTORABLE.items():
        call = adding(lambda items, change=change: change(items)[0])
        yield Case(f"add first: {name}", call, words, ages=("new",))
        yield Case(f"add later: {name}", call, words, ages=USED)


# -- write-backs ----------------------------------------------------------------------


def writing_back(change: Change) -> Callable[[SelectiveReplayBuffer], Any]:
    """Write four slots back after something was done to their sample."""

    def call(buffer: SelectiveReplayBuffer) -> None:
        rows = buffer[:][torch.arange(4) % max(1, len(buffer))].clone()
        rows["index"] = torch.arange(4)
        rows["index_generation"] = buffer.writer.generations_of(rows["index"])
        rows["feature"] = rows["feature"] + 1
        rows["td_error"] = torch.ones(4)
        buffer.update_tensordict_priority(change(rows))

    return call


WRITE_BACKS: list[tuple[str, Change, str]] = [
    ("NaN", spoiled("feature", (3, 1), math.nan), "'feature' must be finite, got nan"),
    ("infinity", spoiled("feature", (2, 1), -math.inf), "finite, got -inf for item 2"),
    ("a slot of -1", spoiled("index", 2, -1), "from 0 to 7, got -1 for item 2"),
    ("a slot of 16", spoiled("index", 2, 16), "from 0 to 7, got 16 for item 2"),
    ("a slot of 2**62", spoiled("index", 2, 2**62), f"got {2**62} for item 2"),
    ("an unused slot", spoiled("index", 1, 8), "from 0 to 7, got 8 for item 1"),
    (
        "fractional slots",
        replaced("index", lambda rows: rows["index"] + 0.5),
        "entry 'index' must hold slots as whole numbers, got torch.float32",
    ),
    (
        "true or false as slots",
        replaced("index", lambda rows: rows["index"] > 1),
        "entry 'index' must hold slots as whole numbers, got torch.bool",
    ),
    (
        "complex slots",
        replaced("index", lambda rows: rows["index"].to(torch.complex64)),
        "entry 'index' must hold slots as whole numbers, got torch.complex64",
    ),
    ("no slots", lambda rows: rows.exclude("index"), "missing entry 'index'"),
    ("no features", lambda rows: rows.exclude("feature"), "missing entry 'feature'"),
    (
        "wide features",
        replaced("feature", zeros(6)),
        "entry 'feature' must have the shape (4, 5), got (4, 6)",
    ),
    (
        "double features",
        replaced("feature", zeros(5, dtype=torch.float64)),
        "entry 'feature' must be of type torch.float32, got torch.float64",
    ),
    ("None", lambda rows: None, "None"),
    ("a list", lambda rows: [rows], "list"),
    ("a dictionary", lambda rows: {}, "dict"),
    ("a tensor", lambda rows: rows["feature"], "Tensor"),
]
#: A sampler that draws by priority is asked for less, but by no policy for nothing.
PRIORITIES: list[tuple[str, Change, str]] = [
    ("None", lambda rows: None, "None"),
    ("a slot of 99", spoiled("index", 2, 99), "99"),
    ("a slot of -99", spoiled("index", 2, -99), "-99"),
    ("a priority of NaN", spoiled("td_error", 1, math.nan), "nan"),
    ("a negative priority", spoiled("td_error", 1, -1.0), "-1"),
]


def _write_backs() -> Iterator[Case]:
    for name, change, words in WRITE_BACKS:
        call = writing_back(change)
        yield Case(f"write-back: {name}", call, words, FEATURES, ("filling",))
    too_large = writing_back(spoiled("feature", (3, 1), 1e30))
    yield Case("write-back: 1e30", too_large, "1e+30, too large", INFORMATION)
    unsampled = fresh(3).set("index", torch.arange(3))
    yield Case(
        "write-back: nothing is stored",
        lambda buffer: buffer.update_features(unsampled),
        "the memory is empty: there is nothing to write back to",
        FEATURES,
        ("new", "emptied"),
    )
    for name, change, words in PRIORITIES:
        call = writing_back(change)
        policies = ("rs", "infors")
        yield Case(f"priorities: {name}", call, words, policies, sampler="prioritized")


# -- writes by number -----------------------------------------------------------------


def _set_items() -> Iterator[Case]:
    def setting(where: Any, change: Change) -> Callable[[SelectiveReplayBuffer], Any]:
        return lambda buffer: buffer.__setitem__(where, change(fresh(2)))

    for name, where, change, words in (
        ("a slot of 99", 99, lambda items: items[0], "99"),
        ("a slot of -99", -99, lambda items: items[0], "-99"),
        ("None", 0, lambda items: None, "None"),
        ("a list", 0, lambda items: [1], "list"),
        ("three items for two", slice(0, 2), lambda items: fresh(3), "3"),
        ("no half", 0, lambda items: items[0].exclude("half"), "'half'"),
        ("an unknown entry", 0, lambda items: items[0].set("new", 1.0), "'new'"),
        (
            "wide features",
            0,
            lambda items: replaced("feature", zeros(7))(items)[0],
            "7",
        ),
        ("strings", slice(0, 2), replaced("file", strings), "'file'"),
        ("text for half", 0, lambda items: items[0].set("half", "x"), "'half'"),
    ):
        call = setting(where, change)
        yield Case(f"set: {name}", call, words, ("rs", "infors", "fss-clust"))
    not_a_number = spoiled("feature", (0, 1), math.nan)
    call = setting(0, lambda items: not_a_number(items)[0])
    yield Case("set: NaN", call, "entry 'feature' must be finite, got nan", FEATURES)


# -- questions and states -------------------------------------------------------------


def _questions() -> Iterator[Case]:
    def scoring(change: Change) -> Callable[[SelectiveReplayBuffer], Any]:
        return lambda buffer: buffer.score(change(fresh()))

    for name, change, words in (
        ("infinity", spoiled("feature", (4, 0), math.inf), "got inf for item 4"),
        ("wide features", replaced("feature", zeros(7)), "must be 5 wide, got 7"),
        ("no features", lambda items: items.exclude("feature"), "entry 'feature'"),
        ("no labels", lambda items: items.exclude("target"), "missing entry 'target'"),
        ("a bad label", spoiled("target", 1, 9), "from 0 to 3, got 9 for item 1"),
        ("one item", lambda items: items[0], "(n, d), got (5,)"),
        ("no items", lambda items: items[:0], "at least one item"),
        ("None", lambda items: None, "None"),
        ("a list", lambda items: [items], "list"),
    ):
        yield Case(f"score: {name}", scoring(change), words, INFORMATION)
    yield Case(
        "sample: nothing is stored",
        lambda buffer: buffer.sample(),
        "empty",
        ages=("new", "emptied"),
        errors=(RuntimeError,),
    )
    for seed in (-1, 2**63):
        yield Case(
            f"seed: {seed}",
            lambda buffer, seed=seed: setattr(buffer.writer, "seed", seed),
            f"seed must be a number from 0 to 2**63 - 1, got {seed}",
        )


def _states() -> Iterator[Case]:
    def loading(bad: Any) -> Callable[[SelectiveReplayBuffer], Any]:
        return lambda buffer: buffer.load_state_dict(bad)

    for name, bad in (
        ("None", None),
        ("a dictionary without entries", {}),
        ("a list", []),
        ("text", "state"),
        ("a tensor", torch.zeros(3)),
        ("parts that are None", dict.fromkeys(["_storage", "_sampler", "_writer"])),
    ):
        yield Case(f"load: {name}", loading(bad), "state of", errors=(ValueError,))
    yield Case(
        "loads: a folder that is not there",
        lambda buffer: buffer.loads("/nowhere/at/all"),
        "/nowhere/at/all",
        errors=(FileNotFoundError,),
    )


# -- settings -------------------------------------------------------------------------

#: Name, value, and the policies that refuse it; the message has both.
SETTINGS: list[tuple[str, Any, tuple[str, ...]]] = [
    *(("capacity", bad, ("rs", "infors")) for bad in (0, -3, 2.5, True, "8", math.nan)),
    ("gamma", math.nan, ("infors", "infogs")),
    ("gamma", math.inf, ("infors", "infogs")),
    ("gamma_learnability", math.nan, ("infogs", "infogs-rs")),
    ("noise", 0, ("infors", "infogs")),
    ("noise", -0.3, ("infors", "infogs")),
    ("noise", math.inf, ("infors", "infogs")),
    ("noise", 1e-200, ("infors", "infogs")),
    ("noise", None, ("infors", "infogs")),
    ("jitter", "0.1", ("infors", "infogs")),
    ("jitter", 0, ("infors", "infogs")),
    ("jitter", -0.1, ("infors", "infogs")),
    ("jitter", math.nan, ("infors", "infogs")),
    ("jitter", 1e-300, ("infors", "infogs")),
    ("decay", 1.5, ("infors", "infogs")),
    ("decay", 0.0, ("infors", "infogs")),
    ("num_classes", 0, ("cbrs", "infors", "coreset")),
    ("num_classes", 2.5, ("cbrs", "infors", "coreset")),
    ("criterion", "MIC", ("infors", "infogs")),
    ("dtype", torch.int64, ("infors", "infogs")),
    ("dtype", torch.float16, ("infors", "infogs")),
    ("parts", 0, ("coreset",)),
    ("regularization", -1.0, ("coreset",)),
    ("kernel", 3, ("coreset",)),
    ("gradients", 3, ("gss",)),
    ("group_size", 0, ("gss",)),
    ("groups", 1.5, ("gss",)),
    ("recent", 0, ("rs", "infors")),
    ("recent", 16, ("rs", "infors")),
    ("recent", 1.0, ("rs", "infors")),
    ("recent", "3", ("rs", "infors")),
]
