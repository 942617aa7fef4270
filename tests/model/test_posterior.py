"""The posterior knows exactly the rows that it should, in either form, for ever."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tensordict import TensorDict
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from info_replay import (
    MIC,
    BayesianLinearPosterior,
    InfoReservoirReplayBuffer,
    InformationGain,
)
from info_replay.model.candidates import CandidateBatch
from tests.reference import Memory, leave_one_out, one_hot, sequential_fill

Array = NDArray[np.float64]
Form = Literal["primal", "kernel"]

laws = settings(deadline=None, derandomize=True, max_examples=40)
both_forms = pytest.mark.parametrize("form", ["primal", "kernel"])
seeds = st.integers(0, 2**32 - 1)

#: Outputs and feature widths: the smallest, a usual one, many of each.
SHAPES = [(1, 1), (3, 7), (100, 20), (2, 512)]
all_shapes = pytest.mark.parametrize(("target_dim", "feature_dim"), SHAPES)


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

    def points(self, count: int) -> tuple[Array, Array]:
        """Points to ask about."""
        return self.draw(count)

    # -- what can happen to a posterior, done to both ----------------------------------

    def observe(self, count: int) -> None:
        free = [row for row in range(self.max_rows) if row not in self.rows][:count]
        features, targets = self.draw(len(free))
        self.posterior.observe(tensor(features), tensor(targets), **self._at(free))
        self._store(free, features, targets)

    def forget(self, count: int) -> None:
        chosen = self._choose(count)
        self.posterior.forget(*self._values(chosen), **self._at(chosen))
        for row in chosen:
            del self.rows[row]

    def replace(self, count: int) -> None:
        chosen = self._choose(count)
        features, targets = self.draw(len(chosen))
        self.posterior.replace(
            *self._values(chosen),
            tensor(features),
            tensor(targets),
            **self._at(chosen),
        )
        self._store(chosen, features, targets)

    def refresh(self, count: int) -> None:
        chosen = self._choose(count)
        old, targets = self._values(chosen)
        features, _ = self.draw(len(chosen))
        self.posterior.refresh(old, tensor(features), targets, **self._at(chosen))
        self._store(chosen, features, targets.numpy())

    def rebuild(self, count: int) -> None:
        features, targets = self.draw(count)
        self.posterior.rebuild(tensor(features), tensor(targets))
        self.rows = {}
        self._store(list(range(count)), features, targets)

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

    def _at(self, rows: list[int]) -> dict[str, Any]:
        return {"rows": torch.tensor(rows)} if self.addressed else {}

    def _values(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        features, targets = zip(*(self.rows[row] for row in rows), strict=True)
        return tensor(np.array(features)), tensor(np.array(targets))

    def _store(self, rows: list[int], features: Array, targets: Array) -> None:
        self.rows.update(zip(rows, zip(features, targets, strict=True), strict=True))

    # -- and what it must then say -----------------------------------------------------

    def check(self) -> None:
        """Leverages, means and variances are those of the rows, and of no others."""
        features, _ = self.points(3)
        memory = self.memory
        assert_leverage(self.posterior.leverage(tensor(features)), memory, features)
        means, variances = self.posterior.predict(tensor(features))
        for mean, variance, feature in zip(means, variances, features, strict=True):
            expected_mean, expected_variance = memory.predict(feature)
            assert_close(mean, expected_mean)
            assert variance.item() == pytest.approx(expected_variance, rel=1e-9)


def tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def assert_close(actual: Tensor, expected: Array) -> None:
    """Equal to 1e-9 of the largest number."""
    scale = float(np.abs(expected).max(initial=0.0))
    torch.testing.assert_close(
        actual, tensor(np.asarray(expected)), rtol=0, atol=1e-9 * scale + 1e-12
    )


def assert_leverage(actual: Tensor, memory: Memory, features: Array) -> None:
    """Equal to 1e-9 of each one."""
    torch.testing.assert_close(
        actual, tensor(memory.leverages(features)), rtol=1e-9, atol=0
    )


# -- each operation --------------------------------------------------------------------


@both_forms
@all_shapes
@pytest.mark.parametrize("size", [0, 1, 12])
def test_it_predicts_as_the_paper_says(
    form: Form, target_dim: int, feature_dim: int, size: int
) -> None:
    Twin.make(form, target_dim, feature_dim, size=size).check()


@both_forms
def test_without_rows_it_is_the_prior(form: Form) -> None:
    posterior = BayesianLinearPosterior(
        3, 2, noise=0.5, jitter=0.2, max_rows=4, form=form
    )
    mean, variance = posterior.predict(torch.tensor([[1.0, 1.0, 1.0]]))
    assert mean.tolist() == [[0.0, 0.0]]
    assert variance.tolist() == pytest.approx([0.25 * (1 + 1 / 0.2)])


@both_forms
@all_shapes
@pytest.mark.parametrize("addressed", [True, False])
@pytest.mark.parametrize("operation", ["observe", "forget", "replace", "refresh"])
def test_rows_come_go_and_change(
    form: Form, target_dim: int, feature_dim: int, addressed: bool, operation: str
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, size=6, addressed=addressed)
    for count in (1, 3):
        getattr(twin, operation)(count)
        twin.check()


@both_forms
@all_shapes
def test_a_full_memory_can_be_replaced_and_emptied(
    form: Form, target_dim: int, feature_dim: int
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, size=12)
    twin.replace(12)
    twin.check()
    twin.forget(12)
    twin.check()


@both_forms
def test_rows_can_be_numbered_by_a_slice(form: Form) -> None:
    twin = Twin.make(form, size=12)
    features, targets = twin.draw(5)
    old = twin._values(list(range(3, 8)))
    twin.posterior.replace(*old, tensor(features), tensor(targets), rows=slice(3, 8))
    twin._store(list(range(3, 8)), features, targets)
    twin.check()


@both_forms
@pytest.mark.parametrize("addressed", [True, False])
def test_equal_rows_are_rows_of_their_own(form: Form, addressed: bool) -> None:
    twin = Twin.make(form, addressed=addressed)
    features, targets = twin.draw(1)
    thrice = np.repeat(features, 3, 0), np.repeat(targets, 3, 0)
    twin.posterior.observe(*map(tensor, thrice), **twin._at([4, 0, 7]))
    twin._store([4, 0, 7], *thrice)
    twin.check()
    twin.forget(1)
    twin.check()


@both_forms
def test_numbered_rows_can_be_forgotten_without_their_number(form: Form) -> None:
    twin = Twin.make(form, size=8, addressed=True)
    twin.addressed = False
    twin.forget(3)
    twin.check()
    twin.observe(3)
    twin.check()


@both_forms
@all_shapes
def test_rebuilding_leaves_exactly_the_given_rows(
    form: Form, target_dim: int, feature_dim: int
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, size=12)
    twin.rebuild(9)
    twin.check()
    twin.replace(2)  # rows are numbered from 0 then
    twin.check()
    twin.rebuild(0)
    twin.check()


@both_forms
@pytest.mark.parametrize("feature_dim", [2, 300])
def test_rebuilding_goes_block_by_block(form: Form, feature_dim: int) -> None:
    twin = Twin.make(form, 2, feature_dim, max_rows=700)
    twin.rebuild(700)
    twin.check()


@both_forms
def test_rebuilding_encodes_the_targets(form: Form) -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(600, 2)), rng.integers(4, size=600)
    posterior = BayesianLinearPosterior(2, 4, max_rows=600, form=form)
    posterior.rebuild(
        tensor(features), torch.from_numpy(labels), lambda y: torch.eye(4)[y]
    )
    memory = Memory(features, one_hot(labels.tolist(), 4))
    assert_close(
        posterior.predict(tensor(features[:1]))[0][0], memory.predict(features[0])[0]
    )


@both_forms
@all_shapes
def test_clearing_forgets_every_row(
    form: Form, target_dim: int, feature_dim: int
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, size=12)
    twin.clear()
    twin.check()
    twin.observe(12)  # there is room again
    twin.check()


@both_forms
@all_shapes
@pytest.mark.parametrize("jitter", [1e-2, 0.1, 10.0])
def test_leaving_one_out_is_really_leaving_it_out(
    form: Form, target_dim: int, feature_dim: int, jitter: float
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, size=8, jitter=jitter)
    memory = twin.memory
    leverage, residual = twin.posterior.leave_one_out(
        tensor(memory.features), tensor(memory.targets)
    )
    expected_leverage, expected_residual = leave_one_out(memory)
    torch.testing.assert_close(leverage, tensor(expected_leverage), rtol=1e-9, atol=0)
    assert_close(residual, expected_residual)


# -- any sequence of operations --------------------------------------------------------

OPERATIONS = [
    "observe",
    "forget",
    "replace",
    "refresh",
    "rebuild",
    "clear",
    "reload",
]


@both_forms
@laws
@given(
    target_dim=st.integers(1, 4) | st.integers(1, 100),
    feature_dim=st.integers(1, 20) | st.integers(1, 512),
    max_rows=st.integers(1, 40),
    noise=st.floats(0.05, 2.0),
    jitter=st.floats(1e-2, 10.0),
    addressed=st.booleans(),
    seed=seeds,
    steps=st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(1, 40)), max_size=15
    ),
)
def test_any_history_leaves_what_its_rows_say(
    form: Form,
    target_dim: int,
    feature_dim: int,
    max_rows: int,
    noise: float,
    jitter: float,
    addressed: bool,
    seed: int,
    steps: list[tuple[str, int]],
) -> None:
    twin = Twin.make(
        form,
        target_dim,
        feature_dim,
        seed=seed,
        addressed=addressed,
        max_rows=max_rows,
        noise=noise,
        jitter=jitter,
    )
    for operation, count in steps:
        if operation in ("clear", "reload"):
            getattr(twin, operation)()
        elif operation == "observe":
            if len(twin.rows) < max_rows:
                twin.observe(count)
        elif operation == "rebuild":
            twin.rebuild(min(count, max_rows))
        elif twin.rows:
            getattr(twin, operation)(count)
    twin.check()


# -- asking changes nothing ------------------------------------------------------------


@both_forms
def test_questions_leave_the_statistics_as_they_are(form: Form) -> None:
    twin = Twin.make(form, size=5)
    before = twin.posterior.state_dict()["tensors"]
    features, targets = map(tensor, twin.points(4))
    twin.posterior.predict(features)
    twin.posterior.leverage(features)
    twin.posterior.leave_one_out(features, targets)
    batch = twin.posterior.candidates(features, targets)
    batch.in_sequence()
    batch.change(batch.representation[:1], targets[:1], [1])
    after = twin.posterior.state_dict()["tensors"]
    assert all(after[name].equal(value) for name, value in before.items())
    twin.check()


@both_forms
def test_gradients_stay_outside(form: Form) -> None:
    posterior = BayesianLinearPosterior(3, 1, max_rows=5, form=form)
    features = torch.randn(5, 3, requires_grad=True)
    posterior.observe(features, features.sum(1))
    answers = [*posterior.predict(features), posterior.leverage(features)]
    assert not any(answer.requires_grad for answer in answers)


@both_forms
def test_one_output_needs_no_dimension(form: Form) -> None:
    features, targets = torch.randn(5, 3), torch.randn(5)
    flat, column = (
        BayesianLinearPosterior(3, 1, max_rows=5, form=form) for _ in range(2)
    )
    flat.observe(features, targets)
    column.observe(features, targets[:, None])
    assert flat.predict(features)[0].equal(column.predict(features)[0])


@both_forms
def test_single_precision_is_a_choice(form: Form) -> None:
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(20, 5)), rng.normal(size=(20, 2))
    posterior = BayesianLinearPosterior(
        5, 2, max_rows=20, form=form, dtype=torch.float32
    )
    posterior.observe(tensor(features), tensor(targets))
    mean, variance = posterior.predict(tensor(features))
    assert mean.dtype == variance.dtype == torch.float32
    expected = Memory(features, targets).predict(features[0])
    torch.testing.assert_close(
        mean[0].double(), tensor(expected[0]), rtol=1e-4, atol=1e-4
    )
    assert variance[0].item() == pytest.approx(expected[1], rel=1e-4)


# -- candidates ------------------------------------------------------------------------


@both_forms
@laws
@given(
    target_dim=st.integers(1, 4) | st.integers(1, 100),
    feature_dim=st.integers(1, 20) | st.integers(1, 512),
    size=st.integers(0, 12),
    count=st.integers(1, 20),
    jitter=st.floats(1e-2, 10.0),
    seed=seeds,
)
def test_in_sequence_each_candidate_meets_those_before_it(
    form: Form,
    target_dim: int,
    feature_dim: int,
    size: int,
    count: int,
    jitter: float,
    seed: int,
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, seed=seed, size=size, jitter=jitter)
    features, targets = twin.points(count)
    batch = twin.posterior.candidates(tensor(features), tensor(targets))
    leverage, residual = batch.in_sequence()
    expected_leverage, expected_residual = sequential_fill(
        twin.memory, features, targets
    )
    torch.testing.assert_close(leverage, tensor(expected_leverage), rtol=1e-9, atol=0)
    assert_close(residual, expected_residual)


@both_forms
@laws
@given(
    target_dim=st.integers(1, 4) | st.integers(1, 100),
    feature_dim=st.integers(1, 20) | st.integers(1, 512),
    size=st.integers(1, 12),
    jitter=st.floats(1e-2, 10.0),
    seed=seeds,
    steps=st.lists(st.sampled_from(["come", "go", "swap"]), min_size=1, max_size=25),
)
def test_candidates_follow_a_memory_that_changes(
    form: Form,
    target_dim: int,
    feature_dim: int,
    size: int,
    jitter: float,
    seed: int,
    steps: list[str],
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, seed=seed, size=size, jitter=jitter)
    posterior, memory = twin.posterior, twin.memory
    features, targets = twin.points(5)
    batch = posterior.candidates(tensor(features), tensor(targets))
    for step in steps:
        points: list[tuple[Array, Array]] = []
        signs: list[int] = []
        if step != "go":
            chosen = twin.rng.integers(5)
            points.append((features[chosen], targets[chosen]))
            signs.append(1)
        if step != "come" and len(memory.features):
            row = int(twin.rng.integers(len(memory.features)))
            points.append((memory.features[row], memory.targets[row]))
            signs.append(-1)
            memory = memory.without(row)
        if not points:
            continue
        if step != "go":
            memory = memory.with_point(*points[0])
        changed = tensor(np.array([feature for feature, _ in points]))
        batch.change(
            posterior.statistics.represent(posterior.join(changed)),
            tensor(np.array([target for _, target in points])),
            tuple(signs),
        )
    assert_leverage(batch.leverage, memory, features)
    residuals = memory.residuals(features, targets)
    assert_close(batch.residual, residuals)
    assert_close(batch.squared_error, (residuals**2).sum(axis=1))


@both_forms
@pytest.mark.parametrize("before", [0, 1, 3])
def test_asking_about_a_point_tells_what_adding_it_would_do(
    form: Form, before: int
) -> None:
    twin = Twin.make(form, size=6)
    features, targets = map(tensor, twin.points(4))
    batch = twin.posterior.candidates(features, targets)
    for row in range(before):
        batch.change(batch.representation[row : row + 1], targets[row : row + 1], (1,))
    leverage, residual = batch.leverage.clone(), batch.residual.clone()
    expected = batch.with_point(batch.representation[3:], targets[3:])
    assert batch.leverage.equal(leverage)
    assert batch.residual.equal(residual)
    batch.change(batch.representation[3:], targets[3:], (1,))
    torch.testing.assert_close(batch.leverage, expected[0])
    torch.testing.assert_close(batch.residual, expected[1])


@both_forms
def test_arrays_and_tensors_give_the_same_candidates(form: Form) -> None:
    twin = Twin.make(form, size=6)
    rows = twin.posterior.join(*map(tensor, twin.points(5)))
    statistics = twin.posterior.statistics
    tensors = CandidateBatch(statistics, rows)
    arrays = CandidateBatch(statistics, rows.numpy())
    old = twin.posterior.join(
        tensor(twin.memory.features[:1]), tensor(twin.memory.targets[:1])
    )
    swaps = [(1, old), (2, 1), (3, 0)]
    of_tensors = tensors.after_swaps(swaps, 1)
    of_arrays = arrays.after_swaps(
        [(row, held if isinstance(held, int) else held.numpy()) for row, held in swaps],
        1,
    )
    for found, expected in zip(of_arrays, of_tensors, strict=True):
        assert isinstance(found, np.ndarray)
        assert_close(expected, found)
    for name in ("leverage", "residual", "squared_error"):
        found = getattr(arrays, name)
        assert isinstance(found, np.ndarray)
        assert_close(getattr(tensors, name), found)


@both_forms
@all_shapes
@pytest.mark.parametrize("start", [0, 2, 5])
@pytest.mark.parametrize("rows", [[0], [3], [1, 2], [0, 2, 4, 7]])
def test_each_candidate_meets_the_swaps_before_it(
    form: Form, target_dim: int, feature_dim: int, rows: list[int], start: int
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, size=6)
    features, targets = twin.points(8)
    batch = twin.posterior.candidates(tensor(features), tensor(targets))
    memory = twin.memory
    kept, kept_targets = memory.features.copy(), memory.targets.copy()
    swaps: list[tuple[int, int | Tensor]] = []
    expected_leverage, expected_residual = [], []
    holders: dict[int, int] = {}
    for row in range(8):
        now = Memory(kept, kept_targets, memory.noise, memory.jitter)
        expected_leverage.append(now.leverages(features[row : row + 1]))
        expected_residual.append(
            now.residuals(features[row : row + 1], targets[row : row + 1])
        )
        if row in rows:
            # Slot 1 is taken twice: the second time, from a candidate.
            slot = 4 if row == 2 else 1
            old = twin.posterior.join(
                tensor(kept[slot : slot + 1]), tensor(kept_targets[slot : slot + 1])
            )
            swaps.append((row, holders.get(slot, old)))
            holders[slot] = row
            kept[slot], kept_targets[slot] = features[row], targets[row]
    leverage, residual = batch.after_swaps(swaps, start)
    assert_close(leverage, np.concatenate(expected_leverage)[start:])
    assert_close(residual, np.concatenate(expected_residual)[start:])


@both_forms
def test_a_candidate_can_become_a_copy_of_another(form: Form) -> None:
    twin = Twin.make(form, size=6)
    features, targets = twin.points(4)
    batch = twin.posterior.candidates(tensor(features), tensor(targets))
    batch.copy_row(3, 0)
    batch.change(batch.representation[1:2], tensor(targets[1:2]), (1,))
    after = twin.memory.with_point(features[1], targets[1])
    source = [3, 1, 2, 3]
    assert_leverage(batch.leverage, after, features[source])
    assert_close(batch.residual, after.residuals(features[source], targets[source]))


@both_forms
@all_shapes
def test_the_criteria_of_candidates_are_the_papers(
    form: Form, target_dim: int, feature_dim: int
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, size=10)
    features, targets = twin.points(4)
    batch = twin.posterior.candidates(tensor(features), tensor(targets))
    memory = twin.memory
    for criterion, reference in [
        (MIC, memory.mic),
        (InformationGain, memory.information_gain),
    ]:
        scores = criterion(0.7)(
            batch.leverage, batch.squared_error, noise=0.3, num_outputs=target_dim
        )
        points = zip(features, targets, strict=True)
        assert_close(scores, np.array([reference(*point, 0.7) for point in points]))


# -- copies ----------------------------------------------------------------------------


@both_forms
@all_shapes
def test_a_saved_state_is_restored_to_the_bit(
    form: Form, target_dim: int, feature_dim: int
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, size=12)
    twin.replace(5)
    saved = twin.posterior.state_dict()
    probe = tensor(twin.points(3)[0])
    expected = twin.posterior.predict(probe)
    twin.replace(5)
    twin.posterior.predict(probe)  # what it derives now must not outlive the load
    twin.posterior.load_state_dict(saved)
    for actual, value in zip(twin.posterior.predict(probe), expected, strict=True):
        assert actual.equal(value)


@both_forms
def test_a_saved_state_does_not_change_any_more(form: Form) -> None:
    twin = Twin.make(form, size=4)
    saved = twin.posterior.state_dict()
    before = copy.deepcopy(saved["tensors"])
    twin.observe(4)
    assert all(before[name].equal(value) for name, value in saved["tensors"].items())


@both_forms
@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda posterior: pickle.loads(pickle.dumps(posterior))],
)
def test_a_copy_goes_its_own_way(
    form: Form,
    duplicate: Callable[[BayesianLinearPosterior], BayesianLinearPosterior],
) -> None:
    twin = Twin.make(form, size=6)
    twin.check()
    other = copy.copy(twin)
    other.posterior, other.rows = duplicate(twin.posterior), dict(twin.rows)
    other.check()
    other.replace(3)
    other.check()
    twin.check()


# -- which form ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("feature_dim", "max_rows", "form"),
    [
        (99, None, "primal"),
        (99, 10_000, "primal"),
        (99, 67, "primal"),
        (99, 66, "kernel"),
        (99, 1, "kernel"),
        (2, 2, "kernel"),
        (2, 3, "primal"),
    ],
)
def test_the_kernel_form_is_taken_up_to_two_rows_for_three_features(
    feature_dim: int, max_rows: int | None, form: str
) -> None:
    assert BayesianLinearPosterior(feature_dim, max_rows=max_rows).form == form


@both_forms
def test_the_form_can_be_asked_for(form: Form) -> None:
    for feature_dim in (2, 100):
        posterior = BayesianLinearPosterior(feature_dim, max_rows=20, form=form)
        assert posterior.form == form


# -- errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_dim": 0}, "feature_dim must be at least 1, got 0"),
        ({"target_dim": 0}, "target_dim must be at least 1, got 0"),
        ({"noise": 0.0}, "noise must be a finite number > 0, got 0.0"),
        ({"noise": -1.0}, "noise must be a finite number > 0, got -1.0"),
        ({"noise": float("nan")}, "noise must be a finite number > 0, got nan"),
        ({"jitter": 0.0}, "jitter must be a finite number > 0, got 0.0"),
        ({"jitter": float("inf")}, "jitter must be a finite number > 0, got inf"),
        ({"form": "dual"}, "form must be 'auto', 'primal' or 'kernel', got 'dual'"),
        ({"form": "kernel"}, "the kernel form needs max_rows"),
    ],
)
def test_settings_must_make_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BayesianLinearPosterior(**{"feature_dim": 3, **options})


def test_it_computes_in_single_or_double_precision() -> None:
    with pytest.raises(TypeError, match=r"float32 or float64, got torch.float16"):
        BayesianLinearPosterior(3, dtype=torch.float16)


@both_forms
@pytest.mark.parametrize(
    ("features", "targets", "message"),
    [
        ((5, 4), (5, 2), r"features must have the shape \(n, 3\), got \(5, 4\)"),
        ((5, 1), (5, 2), r"features must have the shape \(n, 3\), got \(5, 1\)"),
        ((3,), (3, 2), r"features must have the shape \(n, 3\), got \(3,\)"),
        ((5, 3), (5, 3), r"targets must have the shape \(5, 2\), got \(5, 3\)"),
        ((5, 3), (4, 2), r"targets must have the shape \(5, 2\), got \(4, 2\)"),
        ((5, 3), (5,), r"targets must have the shape \(5, 2\), got \(5,\)"),
    ],
)
@pytest.mark.parametrize(
    "question", ["observe", "forget", "candidates", "leave_one_out"]
)
def test_rows_must_have_the_right_shape(
    form: Form,
    features: tuple[int, ...],
    targets: tuple[int, ...],
    message: str,
    question: str,
) -> None:
    posterior = BayesianLinearPosterior(3, 2, max_rows=9, form=form)
    with pytest.raises(ValueError, match=message):
        getattr(posterior, question)(torch.zeros(features), torch.zeros(targets))


@both_forms
@pytest.mark.parametrize("shape", [(5, 4), (5, 1), (3,)])
@pytest.mark.parametrize("question", ["predict", "leverage"])
def test_points_must_have_the_right_shape(
    form: Form, shape: tuple[int, ...], question: str
) -> None:
    posterior = BayesianLinearPosterior(3, 2, max_rows=9, form=form)
    with pytest.raises(ValueError, match="features must have the shape"):
        getattr(posterior, question)(torch.zeros(shape))


@both_forms
def test_no_rows_are_nothing_to_do(form: Form) -> None:
    twin = Twin.make(form, size=5)
    nothing = torch.zeros(0, 7), torch.zeros(0, 3)
    twin.posterior.observe(*nothing)
    twin.posterior.forget(*nothing)
    twin.posterior.replace(*nothing, *nothing)
    assert twin.posterior.leverage(nothing[0]).shape == (0,)
    twin.check()


def test_the_kernel_form_refuses_a_row_that_it_never_saw() -> None:
    twin = Twin.make("kernel", size=5, addressed=False)
    known, target = twin.rows[0]
    with pytest.raises(ValueError, match="cannot forget a row that was never observed"):
        twin.posterior.forget(tensor(known[None] + 1), tensor(target[None]))
    twin.check()


def test_the_kernel_form_refuses_more_rows_than_it_has() -> None:
    twin = Twin.make("kernel", size=10, addressed=False)
    features, targets = map(tensor, twin.draw(3))
    message = "at most max_rows=12 rows; 10 are in use and 3 more were given"
    with pytest.raises(ValueError, match=message):
        twin.posterior.observe(features, targets)
    twin.check()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("form", {"form": "primal"}),
        ("feature_dim", {"feature_dim": 4}),
        ("target_dim", {"target_dim": 5}),
        ("max_rows", {"max_rows": 1}),
    ],
)
def test_a_state_must_fit(name: str, other: dict[str, Any]) -> None:
    settings = {"feature_dim": 3, "target_dim": 2, "max_rows": 9, "form": "kernel"}
    saved = BayesianLinearPosterior(**{**settings, **other}).state_dict()
    with pytest.raises(ValueError, match=f"cannot restore a posterior with {name}="):
        BayesianLinearPosterior(**settings).load_state_dict(saved)


# -- no drift --------------------------------------------------------------------------


def assert_no_drift(
    posterior: BayesianLinearPosterior, features: Tensor, targets: Tensor
) -> None:
    """The running statistics agree with those of the rows as they are."""
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


@pytest.mark.parametrize(
    ("form", "capacity", "feature_dim", "batch", "write_backs"),
    [
        ("primal", 2000, 8, 200, 1_000_000),
        ("kernel", 60, 90, 50, 200_000),  # keeps the rows: nothing can add up
    ],
)
def test_replacements_and_write_backs_do_not_add_up_to_a_drift(
    form: Form, capacity: int, feature_dim: int, batch: int, write_backs: int
) -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(rows: int, width: int) -> Tensor:
        # Of a size that changes, as that of a network's features does.
        size = 10 ** (2 * torch.rand((), generator=generator, dtype=torch.float64) - 1)
        return size * torch.randn(rows, width, generator=generator, dtype=torch.float64)

    features, targets = draw(capacity, feature_dim), draw(capacity, 3)
    posterior = BayesianLinearPosterior(feature_dim, 3, max_rows=capacity, form=form)
    posterior.observe(features, targets, rows=torch.arange(capacity))
    for _ in range(0, 100_000, batch):
        rows = torch.randperm(capacity, generator=generator)[:batch]
        new = draw(batch, feature_dim), draw(batch, 3)
        posterior.replace(features[rows], targets[rows], *new, rows=rows)
        features[rows], targets[rows] = new
    for _ in range(0, write_backs, batch):
        rows = torch.randperm(capacity, generator=generator)[:batch]
        new_features = draw(batch, feature_dim)
        posterior.refresh(features[rows], new_features, targets[rows], rows=rows)
        features[rows] = new_features
    assert_no_drift(posterior, features, targets)


@pytest.mark.parametrize(
    ("replacements", "rebuilding"),
    [
        pytest.param(10_000, False),
        pytest.param(1_000, True),
        pytest.param(100_000, False, marks=pytest.mark.slow),
    ],
)
def test_a_buffer_that_lives_long_still_knows_its_memory(
    replacements: int, rebuilding: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilds = []
    original = BayesianLinearPosterior.restart

    def restart(self: BayesianLinearPosterior, *arguments: Any) -> None:
        rebuilds.append(arguments[0])
        original(self, *arguments)

    monkeypatch.setattr(BayesianLinearPosterior, "restart", restart)
    if not rebuilding:
        monkeypatch.setattr("info_replay.writers.knowledge._REBUILD_AFTER", 10**12)

    generator = torch.Generator().manual_seed(0)
    capacity = max(2 * replacements, 4000)
    buffer = InfoReservoirReplayBuffer(
        capacity, gamma=-1e6, generator=generator, batch_size=1000
    )

    def draw(rows: int) -> TensorDict:
        scale = 10 ** (2 * torch.rand((), generator=generator) - 1)
        return TensorDict(
            {
                "feature": scale * torch.randn(rows, 4, generator=generator),
                "target": torch.randn(rows, 2, generator=generator),
            },
            batch_size=[rows],
        )

    buffer.extend(draw(capacity))
    replaced = 0
    while replaced < replacements:
        replaced += int((buffer.extend(draw(32)) >= 0).sum())
    written_back = 0
    while written_back < 1_000_000:
        sample = buffer.sample()
        sample["feature"] = draw(1000)["feature"]
        buffer.update_features(sample)
        written_back += len(sample["index"].unique())
        buffer.posterior  # noqa: B018  asked now and then, it may rebuild
    posterior = buffer.posterior
    assert posterior is not None
    assert bool(rebuilds) == rebuilding
    content = buffer[:]
    assert_no_drift(posterior, content["feature"], content["target"])


# -- memory ----------------------------------------------------------------------------


class LargestTensor(TorchDispatchMode):
    """Remembers how many elements the largest new tensor had."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given = {
            leaf.untyped_storage()._cdata
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, Tensor)
        }
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                if storage._cdata not in given:
                    elements = storage.nbytes() // leaf.element_size()
                    self.elements = max(self.elements, elements)
        return result


def test_an_extend_needs_no_memory_that_grows_with_the_square_of_the_slots() -> None:
    capacity, width, outputs, batch = 20_000, 33, 3, 64
    buffer = InfoReservoirReplayBuffer(
        capacity,
        num_classes=outputs,
        gamma=-1e6,
        generator=torch.Generator().manual_seed(0),
    )

    def draw(rows: int) -> TensorDict:
        return TensorDict(
            {
                "feature": torch.randn(rows, width - 1),
                "target": torch.randint(outputs, (rows,)),
            },
            batch_size=[rows],
        )

    buffer.extend(draw(batch))  # allocates the storage
    largest = LargestTensor()
    items = draw(batch)
    with largest:
        buffer.extend(items)  # while there is room
    buffer.extend(draw(capacity))
    assert len(buffer) == capacity
    written = 0
    for step in range(5):
        items, sample = draw(batch), buffer.sample(batch)
        if step == 3:  # somebody else writes: the statistics are rebuilt
            buffer.storage.set(0, draw(1)[0])
        with largest:
            written += int((buffer.extend(items) >= 0).sum())
            buffer.update_features(sample)
    assert written > batch
    modest = width**2 + width * outputs + batch * width + capacity
    assert batch * width <= largest.elements <= 2 * modest


def test_rows_of_another_width_are_refused() -> None:
    twin = Twin.make("primal", 3, 7, size=4)
    with pytest.raises(ValueError, match="rows must be 11 wide, got 9"):
        twin.posterior.statistics.restart(torch.zeros(4, 9, dtype=torch.float64))
    twin.check()
