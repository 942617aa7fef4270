"""The policy to begin with: what it is follows from whether there are classes."""

from __future__ import annotations

import torch

from info_replay import (
    BalancedInfoReservoirWriter,
    InfoReservoirWriter,
    make_replay_buffer,
)

from .reference import make_stream


def test_with_classes_it_is_balanced_infors_as_it_is_by_default() -> None:
    writer = make_replay_buffer("auto", 10, num_classes=4).writer
    assert writer.settings() == BalancedInfoReservoirWriter(num_classes=4).settings()


def test_without_classes_it_is_infors_to_the_last_item() -> None:
    stream = make_stream(0, 300, num_outputs=2)
    memories = []
    for policy in ("auto", "infors"):
        generator = torch.Generator().manual_seed(0)
        buffer = make_replay_buffer(policy, 20, generator=generator)
        buffer.extend(stream)
        assert type(buffer.writer) is InfoReservoirWriter
        memories.append(buffer[:]["id"].tolist())
    assert memories[0] == memories[1]


def test_what_other_policies_are_tuned_with_makes_no_difference() -> None:
    plain = make_replay_buffer("auto", 10, num_classes=4)
    given = make_replay_buffer("auto", 10, num_classes=4, gamma=3.0, decay=0.5)
    assert given.writer.settings() == plain.writer.settings()
