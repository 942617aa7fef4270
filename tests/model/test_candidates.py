"""Candidates are held against the memory as it is, as it was, or as it would be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from info_replay import MIC, InformationGain
from info_replay.model.candidates import MOST_POINTS, CandidateBatch
from tests.reference import Memory, sequential_fill

from .helpers import (
    Array,
    Form,
    Twin,
    assert_close,
    assert_leverage,
    both_forms,
    tensor,
)

seeds = st.integers(0, 2**32 - 1)
jitters = st.floats(1e-2, 10.0)
widths = st.integers(1, 30)
outputs = st.integers(1, 4)


def squares(residuals: Array) -> Array:
    return (residuals**2).sum(axis=1)


@both_forms
@given(
    target_dim=outputs,
    feature_dim=widths,
    size=st.integers(0, 12),
    count=st.integers(1, 20),
    jitter=jitters,
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
    features, targets = twin.draw(count)
    batch = twin.posterior.candidates(tensor(features), tensor(targets))
    leverages, found = batch.in_sequence()
    expected_leverages, residuals = sequential_fill(twin.memory, features, targets)
    np.testing.assert_allclose(leverages, expected_leverages, rtol=1e-9)
    assert_close(found, residuals)


@both_forms
@given(
    target_dim=outputs,
    feature_dim=widths,
    size=st.integers(1, 12),
    jitter=jitters,
    seed=seeds,
    steps=st.lists(st.sampled_from(["come", "go", "swap"]), min_size=1, max_size=20),
    as_arrays=st.booleans(),
)
def test_candidates_follow_a_memory_that_changes(
    form: Form,
    target_dim: int,
    feature_dim: int,
    size: int,
    jitter: float,
    seed: int,
    steps: list[str],
    as_arrays: bool,
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, seed=seed, size=size, jitter=jitter)
    posterior, memory = twin.posterior, twin.memory
    features, targets = twin.draw(5)
    kind = np.asarray if as_arrays else tensor
    rows = posterior.join(tensor(features), tensor(targets))
    batch = CandidateBatch(posterior.statistics, kind(rows.numpy()))
    changes = 0
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
        changed = posterior.join(tensor(np.array([feature for feature, _ in points])))
        batch.change(
            posterior.statistics.represent(kind(changed.numpy())),
            kind(np.array([target for _, target in points])),
            tuple(signs),
        )
        changes += len(points)
    assert batch.needs_refresh == (changes >= MOST_POINTS)
    assert_leverage(batch.leverage, memory, features)
    residuals = memory.residuals(features, targets)
    assert_close(batch.residual, residuals)
    assert_close(batch.squared_error, squares(residuals))


@both_forms
@given(
    target_dim=outputs,
    feature_dim=widths,
    swaps=st.dictionaries(st.integers(0, 7), st.integers(0, 3), min_size=1, max_size=5),
    start=st.integers(0, 7),
    as_arrays=st.booleans(),
    seed=seeds,
)
def test_each_candidate_meets_the_swaps_before_it(
    form: Form,
    target_dim: int,
    feature_dim: int,
    swaps: dict[int, int],
    start: int,
    as_arrays: bool,
    seed: int,
) -> None:
    twin = Twin.make(form, target_dim, feature_dim, size=4, seed=seed)
    features, targets = twin.draw(8)
    now = twin.memory
    kept, kept_targets = now.features.copy(), now.targets.copy()
    leverages, errors, leaving = [], [], []
    for row in range(8):
        now = Memory(kept.copy(), kept_targets.copy(), now.noise, now.jitter)
        point = features[row : row + 1], targets[row : row + 1]
        leverages.append(now.leverages(point[0]))
        errors.append(squares(now.residuals(*point)))
        if row in swaps:  # a slot may be taken again: then a candidate leaves it
            slot = swaps[row]
            leaving.append(np.concatenate([kept[slot], [1.0], kept_targets[slot]]))
            kept[slot], kept_targets[slot] = features[row], targets[row]
    rows = twin.posterior.join(tensor(features), tensor(targets))
    gone = np.array(leaving)
    batch = CandidateBatch(
        twin.posterior.statistics, rows.numpy() if as_arrays else rows
    )
    before = np.asarray(batch.leverage).copy(), np.asarray(batch.residual).copy()
    found = batch.after_swaps(sorted(swaps), gone if as_arrays else tensor(gone), start)
    assert isinstance(found[0], np.ndarray) == as_arrays
    assert_close(found[0], np.concatenate(leverages)[start:])
    assert_close(squares(np.asarray(found[1])), np.concatenate(errors)[start:])
    np.testing.assert_array_equal(batch.leverage, before[0])
    np.testing.assert_array_equal(batch.residual, before[1])


@both_forms
@pytest.mark.parametrize("before", [0, 1, 3])
def test_asking_about_a_point_tells_what_adding_it_would_do(
    form: Form, before: int
) -> None:
    twin = Twin.make(form, size=6)
    features, targets = map(tensor, twin.draw(4))
    batch = twin.posterior.candidates(features, targets)
    for row in range(before):
        batch.change(batch.representation[row : row + 1], targets[row : row + 1], (1,))
    leverage, residual = batch.leverage.clone(), batch.residual.clone()
    expected = batch.with_point(batch.representation[3:], targets[3:])
    assert batch.leverage.equal(leverage)
    assert batch.residual.equal(residual)
    batch.change(batch.representation[3:], targets[3:], (1,))
    assert_close(batch.leverage, expected[0].numpy())
    assert_close(batch.residual, expected[1].numpy())


@both_forms
@pytest.mark.parametrize("changed", [False, True])
def test_a_candidate_can_become_a_copy_of_another(form: Form, changed: bool) -> None:
    twin = Twin.make(form, size=6)
    features, targets = twin.draw(4)
    batch = twin.posterior.candidates(tensor(features), tensor(targets))
    after = twin.memory
    if changed:
        batch.change(batch.representation[2:3], tensor(targets[2:3]), (1,))
        after = after.with_point(features[2], targets[2])
    batch.copy_row(3, 0)
    batch.change(batch.representation[1:2], tensor(targets[1:2]), (1,))
    after = after.with_point(features[1], targets[1])
    source = [3, 1, 2, 3]
    assert_leverage(batch.leverage, after, features[source])
    assert_close(batch.residual, after.residuals(features[source], targets[source]))


@both_forms
def test_the_criteria_of_candidates_are_the_papers(form: Form) -> None:
    twin = Twin.make(form, size=10)
    features, targets = twin.draw(4)
    batch = twin.posterior.candidates(tensor(features), tensor(targets))
    memory = twin.memory
    for criterion, reference in [
        (MIC, memory.mic),
        (InformationGain, memory.information_gain),
    ]:
        scores = criterion(0.7)(
            batch.leverage, batch.squared_error, noise=0.3, num_outputs=3
        )
        points = zip(features, targets, strict=True)
        assert_close(scores, np.array([reference(*point, 0.7) for point in points]))
