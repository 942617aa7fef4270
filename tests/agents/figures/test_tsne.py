"""Memories over a t-SNE of the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agents.figures.feature_files import read_features
from agents.figures.memories import select_memory
from agents.figures.settings import TsneSettings
from agents.figures.tsne import embed, make
from agents.runs.folder import RunError


@pytest.fixture
def settings(digits_file: Path) -> TsneSettings:
    return TsneSettings(
        features=str(digits_file), sizes="30,12", points=150, perplexity=10.0
    )


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_every_memory_has_a_panel_and_a_line(
    settings: TsneSettings, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"tsne.{suffix}"
    lines = make(settings, out)
    assert out.stat().st_size > 10_000
    counts = [sum(map(int, line.split()[-10:])) for line in lines[1:]]
    assert counts == [30, 30, 30, 12, 12, 12]
    features = read_features(settings.features)
    memory = select_memory(features, "rs", 30, settings.seed, settings)
    expected = np.bincount(features.train_labels[memory], minlength=10)
    assert lines[3].split()[-10:] == [str(count) for count in expected]


def test_places_are_the_same_for_a_seed_and_keep_classes_together() -> None:
    generator = np.random.default_rng(0)
    centers = np.repeat(np.eye(3) * 30, 20, axis=0)
    points = (centers + generator.normal(size=(60, 3))).astype(np.float32)
    places = embed(points, perplexity=5, seed=0)
    np.testing.assert_array_equal(places, embed(points, perplexity=5, seed=0))
    distances = np.linalg.norm(places[:, None] - places, axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(1)
    assert (nearest // 20 == np.arange(60) // 20).all()


def test_too_few_points_for_the_perplexity_are_refused(
    digits_file: Path, tmp_path: Path
) -> None:
    wrong = TsneSettings(
        features=str(digits_file), sizes="12", points=20, perplexity=20.0
    )
    with pytest.raises(RunError, match="perplexity must be less than .* 20, got 20"):
        make(wrong, tmp_path / "tsne.png")
