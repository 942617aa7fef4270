"""The posterior knows exactly the rows that it should, in either form."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from info_replay import BayesianLinearPosterior
from tests.reference import Memory, leave_one_out

from .helpers import Form, Twin, assert_close, both_forms, tensor

#: Outputs and features: the smallest, a usual one, many of each.
all_shapes = pytest.mark.parametrize(
    ("target_dim", "feature_dim"), [(1, 1), (3, 7), (20, 50)]
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
def test_rows_can_be_numbered_by_a_slice(form: Form) -> None:
    twin = Twin.make(form, size=12)
    features, targets = twin.draw(5)
    old = twin.values(list(range(3, 8)))
    twin.posterior.replace(*old, tensor(features), tensor(targets), rows=slice(3, 8))
    twin.store(list(range(3, 8)), features, targets)
    twin.check()


@both_forms
@pytest.mark.parametrize("feature_dim", [2, 300])
def test_rebuilding_goes_block_by_block(form: Form, feature_dim: int) -> None:
    twin = Twin.make(form, 2, feature_dim, max_rows=700)
    twin.rebuild(700)
    twin.check()


@both_forms
@all_shapes
@pytest.mark.parametrize("jitter", [1e-2, 10.0])
def test_leaving_one_out_is_really_leaving_it_out(
    form: Form, target_dim: int, feature_dim: int, jitter: float
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, size=8, jitter=jitter)
    memory = twin.memory
    leverage, residual = twin.posterior.leave_one_out(
        tensor(memory.features), tensor(memory.targets)
    )
    expected_leverage, expected_residual = leave_one_out(memory)
    np.testing.assert_allclose(leverage, expected_leverage, rtol=1e-9)
    assert_close(residual, expected_residual)


# -- any sequence of operations --------------------------------------------------------

OPERATIONS = "observe", "forget", "replace", "refresh", "rebuild", "clear", "reload"


@both_forms
@given(
    target_dim=st.integers(1, 4),
    feature_dim=st.integers(1, 60),
    max_rows=st.integers(1, 40),
    noise=st.floats(0.05, 2.0),
    jitter=st.floats(1e-2, 10.0),
    addressed=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    steps=st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(1, 40)), max_size=10
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
            twin.rebuild(min(count - 1, max_rows))
        elif twin.rows:
            getattr(twin, operation)(count)
    twin.check()


# -- asking changes nothing ------------------------------------------------------------


@both_forms
def test_questions_leave_the_statistics_as_they_are(form: Form) -> None:
    twin = Twin.make(form, size=5)
    before = twin.posterior.state_dict()["tensors"]
    features, targets = map(tensor, twin.draw(4))
    twin.posterior.predict(features)
    twin.posterior.leverage(features)
    twin.posterior.leave_one_out(features, targets)
    batch = twin.posterior.candidates(features, targets)
    batch.in_sequence()
    batch.change(batch.representation[:1], targets[:1], (1,))
    after = twin.posterior.state_dict()["tensors"]
    assert all(after[name].equal(value) for name, value in before.items())
    twin.check()


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


# -- copies ----------------------------------------------------------------------------


@both_forms
def test_a_saved_state_is_restored_bit_for_bit(form: Form) -> None:
    twin = Twin.make(form, size=12)
    twin.replace(5)
    saved = twin.posterior.state_dict()
    probe = tensor(twin.draw(3)[0])
    expected = twin.posterior.predict(probe)
    twin.replace(5)
    twin.posterior.predict(probe)  # what it derives now must not outlive the load
    twin.posterior.load_state_dict(saved)
    for actual, value in zip(twin.posterior.predict(probe), expected, strict=True):
        assert actual.equal(value)


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


# -- errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_dim": 0}, "feature_dim must be at least 1, got 0"),
        ({"target_dim": 0}, "target_dim must be at least 1, got 0"),
        ({"noise": 0.0}, "noise must be a finite number > 0, got 0.0"),
        ({"jitter": float("inf")}, "jitter must be a finite number > 0, got inf"),
        ({"form": "dual"}, "form must be 'auto', 'primal' or 'kernel', got 'dual'"),
        ({"form": "kernel"}, "the kernel form needs max_rows"),
        ({"max_rows": 0}, "max_rows must be at least 1, got 0"),
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
        ((3,), (3, 2), r"features must have the shape \(n, 3\), got \(3,\)"),
        ((5, 3), (5, 3), r"targets must have the shape \(5, 2\), got \(5, 3\)"),
        ((5, 3), (4, 2), r"targets must have the shape \(5, 2\), got \(4, 2\)"),
        ((5, 3), (5,), r"targets must have the shape \(5, 2\), got \(5,\)"),
    ],
)
def test_rows_must_have_the_right_shape(
    form: Form, features: tuple[int, ...], targets: tuple[int, ...], message: str
) -> None:
    posterior = BayesianLinearPosterior(3, 2, max_rows=9, form=form)
    for question in (posterior.observe, posterior.candidates):
        with pytest.raises(ValueError, match=message):
            question(torch.zeros(features), torch.zeros(targets))


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


def test_a_state_of_other_tensors_is_refused() -> None:
    twin = Twin.make("primal", size=4)
    for tensors in ({}, {"moments": torch.zeros(8, 8)}):
        saved = {**twin.posterior.state_dict(), "tensors": tensors}
        with pytest.raises(
            ValueError,
            match=r"'moments' must be a tensor of",
        ):
            twin.posterior.load_state_dict(saved)
    twin.check()


def test_replacing_needs_as_many_rows_as_leave() -> None:
    twin = Twin.make("primal", size=4)
    with pytest.raises(ValueError, match="2 rows can be replaced by as many, got 3"):
        twin.posterior.replace(
            *twin.values([0, 1]), torch.zeros(3, 7), torch.zeros(3, 3)
        )
    twin.check()


def test_rows_of_another_width_are_refused() -> None:
    twin = Twin.make("primal", 3, 7, size=4)
    with pytest.raises(ValueError, match="rows must be 11 wide, got 9"):
        twin.posterior.statistics.restart(torch.zeros(4, 9, dtype=torch.float64))
    twin.check()
