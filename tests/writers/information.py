"""InfoRS and InfoGS beside their algorithms written out: :class:`Case`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from info_replay import (
    MIC,
    Criterion,
    EntropyReduction,
    InfoGreedyWriter,
    InfoReservoirWriter,
    InformationGain,
    SelectiveReplayBuffer,
)
from tests import reference as formulas

from . import reference
from .reference import as_items, extend_all, kept_ids

#: Each criterion of the package and its definition.
CRITERIA: list[tuple[Criterion, formulas.Criterion]] = [
    (MIC(eta=1.0), formulas.mic(1.0)),
    (MIC(eta=0.0), formulas.mic(0.0)),
    (MIC(eta=3.0), formulas.mic(3.0)),
    (InformationGain(eta=0.0), formulas.information_gain(0.0)),
    (InformationGain(eta=1.0), formulas.information_gain(1.0)),
    (EntropyReduction(), formulas.Memory.entropy_reduction),
]


@dataclass(frozen=True)
class Case:
    """A memory of InfoRS or, if it is greedy, of InfoGS."""

    capacity: int
    criterion: tuple[Criterion, formulas.Criterion] = CRITERIA[0]
    gamma: float = 0.0
    decay: float | None = None
    noise: float = 0.3
    jitter: float = 0.1
    num_classes: int | None = None
    seed: int = 0
    greedy: bool = False
    gamma_learnability: float = 0.0
    reservoir: bool = False
    scale_targets: bool = True

    def buffer(self) -> SelectiveReplayBuffer:
        options: dict[str, Any] = {
            "criterion": self.criterion[0],
            "gamma": self.gamma,
            "decay": self.decay,
            "noise": self.noise,
            "jitter": self.jitter,
            "num_classes": self.num_classes,
            "scale_targets": self.scale_targets,
        }
        if self.greedy:
            writer: InfoReservoirWriter = InfoGreedyWriter(
                gamma_learnability=self.gamma_learnability,
                reservoir=self.reservoir,
                **options,
            )
        else:
            writer = InfoReservoirWriter(**options)
        generator = torch.Generator().manual_seed(self.seed)
        return SelectiveReplayBuffer(self.capacity, writer=writer, generator=generator)

    def settings(self) -> reference.Settings:
        return reference.Settings(
            capacity=self.capacity,
            criterion=self.criterion[1],
            gamma=self.gamma,
            decay=self.decay,
            noise=self.noise,
            jitter=self.jitter,
        )

    def run(self, stream: TensorDict, sizes: Sequence[int], seed: int) -> reference.Run:
        """What the algorithm does."""
        items = as_items(stream, self.num_classes, self.scale_targets)
        draws = reference.random_numbers(seed, len(stream))
        if self.greedy:
            return reference.info_greedy(
                items,
                sizes,
                self.settings(),
                draws,
                gamma_learnability=self.gamma_learnability,
                reservoir=self.reservoir,
            )
        return reference.info_reservoir(items, self.settings(), draws)

    def check(
        self, stream: TensorDict, sizes: Sequence[int], tolerance: float = 1e-9
    ) -> tuple[SelectiveReplayBuffer, reference.Run]:
        """Offer a stream in chunks and compare all that is decided and known.

        Decisions must be the same; scores and moments may differ by the tolerance.
        """

        def close(values: Any) -> Any:
            return pytest.approx(values, rel=tolerance, abs=tolerance)

        buffer = self.buffer()
        slots = extend_all(buffer, stream, sizes)
        run = self.run(stream, sizes, buffer.writer.seed)
        expected = run.slots if self.greedy else reference.settled(run.slots, sizes)
        assert slots == expected
        assert kept_ids(buffer) == run.memory
        for key in ("feature", "target"):
            assert torch.equal(buffer[:][key], stream[key][run.memory])
        assert buffer.reservoir_count == run.reservoir_count
        assert buffer.write_count == len(stream)
        moments = [(buffer.moments, run.scores)]
        if run.learnabilities:
            moments.append((buffer.writer.learnability_moments, run.learnabilities))
        for found, values in moments:
            state = found.weight, found.mean, found.deviation
            assert state == close(formulas.moments(values, self.decay))
        items = as_items(stream, self.num_classes, self.scale_targets)
        items = items.after(len(stream))
        memory = items.memory(run.memory, self.settings())
        probe = range(min(5, len(stream)))
        scores = [self.criterion[1](memory, *items.point(item)) for item in probe]
        assert buffer.score(stream[:5]).tolist() == close(scores)
        return buffer, run
