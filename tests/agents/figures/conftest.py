"""Small features: the pixels of scikit-learn's digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits


@pytest.fixture(scope="session")
def digits_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pixels, labels = load_digits(return_X_y=True)
    pixels = (pixels / 4).astype(np.float16)
    path = tmp_path_factory.mktemp("features") / "digits.npz"
    np.savez(
        path,
        X=pixels[:600],
        y=labels[:600],
        X_test=pixels[600:900],
        y_test=labels[600:900],
    )
    return path
