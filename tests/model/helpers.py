"""A posterior beside the rows that it should know (:class:`Twin`), and slots.

:class:`Stored` stands in for the slots of a memory, as far as a posterior sees them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from info_replay import BayesianLinearPosterior
from info_replay.model.memory_posterior import MemoryPosterior
from tests.reference import Memory, one_hot

Array = NDArray[np.float64]
Form = Literal["primal", "kernel"]

both_forms = pytest.mark.parametrize("form", ["primal", "kernel"])


def tensor(array: Array) -> Tensor:
    """An array as a tensor."""
    return torch.from_numpy(np.ascontiguousarray(array))


def assert_close(actual: Any, expected: Array) -> None:
    """Equal to 1e-9 of the largest number."""
    scale = float(np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(
        np.asarray(actual), expected, rtol=0, atol=1e-9 * scale + 1e-12
    )


def assert_leverage(actual: Any, memory: Memory, features: Array) -> None:
    """Equal to 1e-9 of each one."""
    expected = memory.leverages(features)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-9)


def assert_no_drift(
    posterior: BayesianLinearPosterior, features: Tensor, targets: Tensor
) -> None:
    """The running statistics agree to 1e-6 with those of the rows as they are."""
    fresh = BayesianLinearPosterior(
        posterior.feature_dim,
        posterior.target_dim,
        noise=posterior.noise,
        jitter=posterior.jitter,
        max_rows=len(features),
        form=posterior.form,
    )
    fresh.rebuild(features, targets)
    saved = posterior.state_dict()["tensors"]
    for name, expected in fresh.state_dict()["tensors"].items():
        if expected.is_floating_point():
            found = saved[name]
            if name == "moments":  # nothing below the diagonal is ever looked at
                found, expected = found.triu(), expected.triu()
            scale = expected.abs().max().item()
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6 * scale)
    probe = features[:50]
    torch.testing.assert_close(
        posterior.leverage(probe), fresh.leverage(probe), rtol=1e-6, atol=0
    )
    mean = fresh.predict(probe)[0]
    torch.testing.assert_close(
        posterior.predict(probe)[0], mean, rtol=0, atol=1e-6 * mean.abs().max().item()
    )


@dataclass
class Twin:
    """A posterior and, beside it, the numbered rows that it should know."""

    posterior: BayesianLinearPosterior
    rng: np.random.Generator
    addressed: bool = True
    max_rows: int = 12
    rows: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        form: Form,
        target_dim: int = 3,
        feature_dim: int = 7,
        *,
        seed: int = 0,
        size: int = 0,
        addressed: bool = True,
        max_rows: int = 12,
        noise: float = 0.3,
        jitter: float = 0.1,
    ) -> Twin:
        """A twin with some random rows."""
        posterior = BayesianLinearPosterior(
            feature_dim,
            target_dim,
            noise=noise,
            jitter=jitter,
            max_rows=max_rows,
            form=form,
        )
        twin = cls(posterior, np.random.default_rng(seed), addressed, max_rows)
        if size:
            twin.observe(size)
        return twin

    @property
    def memory(self) -> Memory:
        """The reference that holds the same rows."""
        posterior = self.posterior
        memory = Memory.empty(
            posterior.feature_dim,
            posterior.target_dim,
            posterior.noise,
            posterior.jitter,
        )
        for feature, target in self.rows.values():
            memory = memory.with_point(feature, target)
        return memory

    def draw(self, count: int) -> tuple[Array, Array]:
        """New rows; one in three repeats a row that is there."""
        features = self.rng.normal(size=(count, self.posterior.feature_dim))
        targets = self.rng.normal(size=(count, self.posterior.target_dim))
        known = list(self.rows.values())
        for row in range(count):
            if known and self.rng.random() < 1 / 3:
                features[row], targets[row] = known[self.rng.integers(len(known))]
        return features, targets

    # -- what can happen to a posterior, done to both ----------------------------------

    def observe(self, count: int) -> None:
        free = [row for row in range(self.max_rows) if row not in self.rows][:count]
        features, targets = self.draw(len(free))
        self.posterior.observe(tensor(features), tensor(targets), **self.at(free))
        self.store(free, features, targets)

    def forget(self, count: int) -> None:
        chosen = self._choose(count)
        self.posterior.forget(*self.values(chosen), **self.at(chosen))
        for row in chosen:
            del self.rows[row]

    def replace(self, count: int) -> None:
        chosen = self._choose(count)
        features, targets = self.draw(len(chosen))
        new = tensor(features), tensor(targets)
        self.posterior.replace(*self.values(chosen), *new, **self.at(chosen))
        self.store(chosen, features, targets)

    def refresh(self, count: int) -> None:
        chosen = self._choose(count)
        old, targets = self.values(chosen)
        features, _ = self.draw(len(chosen))
        self.posterior.refresh(old, tensor(features), targets, **self.at(chosen))
        self.store(chosen, features, targets.numpy())

    def rebuild(self, count: int) -> None:
        features, targets = self.draw(count)
        self.posterior.rebuild(tensor(features), tensor(targets))
        self.rows = {}
        self.store(list(range(count)), features, targets)

    def clear(self) -> None:
        self.posterior.clear()
        self.rows = {}

    def reload(self) -> None:
        """Continue in another posterior from the saved state."""
        posterior = self.posterior
        self.posterior = BayesianLinearPosterior(
            posterior.feature_dim,
            posterior.target_dim,
            noise=posterior.noise,
            jitter=posterior.jitter,
            max_rows=self.max_rows,
            form=posterior.form,
        )
        self.posterior.load_state_dict(posterior.state_dict())
        posterior.clear()

    def _choose(self, count: int) -> list[int]:
        return self.rng.permutation(list(self.rows))[:count].tolist()

    def at(self, rows: list[int]) -> dict[str, Any]:
        """The numbers of rows as an option, if they are told."""
        return {"rows": torch.tensor(rows)} if self.addressed else {}

    def values(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        """Features and targets of some rows."""
        features, targets = zip(*(self.rows[row] for row in rows), strict=True)
        return tensor(np.array(features)), tensor(np.array(targets))

    def store(self, rows: list[int], features: Array, targets: Array) -> None:
        """Note what rows are now."""
        self.rows.update(zip(rows, zip(features, targets, strict=True), strict=True))

    # -- and what it must then say -----------------------------------------------------

    def check(self) -> None:
        """Leverages, means and variances are those of the rows, and of no others."""
        features, _ = self.draw(3)
        memory = self.memory
        assert_leverage(self.posterior.leverage(tensor(features)), memory, features)
        means, variances = self.posterior.predict(tensor(features))
        for mean, variance, feature in zip(means, variances, features, strict=True):
            expected_mean, expected_variance = memory.predict(feature)
            assert_close(mean, expected_mean)
            assert variance.item() == pytest.approx(expected_variance, rel=1e-9)


class Stored:
    """The slots of a memory as a posterior sees them: features and targets.

    Args:
        features: of the items, shape ``(n, d0)``.
        targets: of the items.
        capacity: number of slots, by default as many as items.
    """

    def __init__(
        self, features: Tensor, targets: Tensor, capacity: int | None = None
    ) -> None:
        self.size = len(features)
        self.capacity = self.size if capacity is None else capacity
        self.device = torch.device("cpu")
        self.leaves = {
            key: torch.zeros(self.capacity, *values.shape[1:], dtype=values.dtype)
            for key, values in (("feature", features), ("target", targets))
        }
        self.write(slice(0, self.size), features, targets)

    def __len__(self) -> int:
        """Number of slots in use."""
        return self.size

    def leaf(self, key: str) -> Tensor:
        """An entry, one row per slot."""
        return self.leaves[key]

    def write(self, where: Any, features: Tensor, targets: Tensor) -> None:
        """Store items in some slots."""
        self.leaves["feature"][where] = features
        self.leaves["target"][where] = targets

    def memory(self, num_classes: int | None = None) -> Memory:
        """The reference that holds the same items."""
        targets = self.leaves["target"][: self.size].double().numpy()
        if num_classes is not None:
            targets = one_hot(targets.astype(int).tolist(), num_classes)
        return Memory(self.leaves["feature"][: self.size].double().numpy(), targets)


def make_memory(
    stored: Stored, num_classes: int | None = None, **options: Any
) -> MemoryPosterior:
    """The posterior of what is stored."""
    settings = {"noise": 0.3, "jitter": 0.1, "dtype": torch.float64, **options}
    memory = MemoryPosterior("feature", "target", num_classes=num_classes, **settings)
    memory.attach(stored)
    targets = memory.encode(stored.leaf("target"))
    memory.keep(memory.for_shapes(stored.leaf("feature").shape[1], targets.shape[1]))
    memory.rebuild()
    return memory
