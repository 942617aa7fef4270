"""Features of a network that does not learn are computed once, and are a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from agents import make_features, train
from continual_envs import Dataset, Part, load_dataset
from continual_envs.datasets.files import data_root
from tests.continual_envs.helpers import require_data


def body(width: int = 5) -> nn.Module:
    """A network with batch normalization, whose features depend on its mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, width, 3),
            nn.BatchNorm2d(width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, 2),
        )


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTINUAL_ENVS_DATA", str(tmp_path / "data"))


def test_features_are_what_the_last_linear_layer_sees_in_evaluation() -> None:
    network = body()
    path = make_features("Digits", network, batch_size=100)
    digits = load_dataset("Digits")
    images = torch.from_numpy(digits.test.inputs.copy()).expand(-1, 3, -1, -1) / 255
    with torch.no_grad():
        expected = network.eval()[:-1](images)
    with np.load(path, allow_pickle=False) as found:
        np.testing.assert_allclose(found["X_test"], expected, rtol=1e-5, atol=1e-6)
        assert found["X"].shape == (1500, 5)
        np.testing.assert_array_equal(found["y"], digits.train.targets)
        np.testing.assert_array_equal(found["y_test"], digits.test.targets)


def test_another_layer_may_be_named() -> None:
    path = make_features("Digits", body(), layer="2")
    assert np.load(path)["X"].shape == (1500, 5)
    with pytest.raises(ValueError, match="feature must name a submodule"):
        make_features("Digits", body(), layer="gone")


def test_what_was_made_is_used_again_unless_something_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save, made = np.savez, []

    def watched(file: Any, **arrays: Any) -> None:
        made.append(arrays["X"].shape)
        save(file, **arrays)

    monkeypatch.setattr(np, "savez", watched)
    first = make_features("Digits", body())
    assert make_features("Digits", body()) == first
    assert len(made) == 1
    others = [
        make_features("Digits", body(6)),
        make_features("Digits", body(), layer="2"),
        make_features("Digits", body(), image_size=12),
    ]
    assert len({first, *others}) == len(made) == 4


def test_a_damaged_file_is_made_anew() -> None:
    path = make_features("Digits", body())
    good = path.read_bytes()
    for bad in (good[:-50], good.replace(b"NUMPY", b"NUMPX"), b"", b"x" * 900):
        path.write_bytes(bad)
        assert make_features("Digits", body()).read_bytes() == good


def test_nothing_is_left_of_features_that_were_not_finished() -> None:
    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_features("Digits", body(), progress=stop)
    assert not list(data_root(None).rglob("*"))


def test_weights_come_from_a_file_that_runs_no_code(tmp_path: Path) -> None:
    from torchvision import models

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = models.squeezenet1_1()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    tiny = first_images("Digits", 8)
    options: dict[str, Any] = {"layer": "features", "image_size": 40}
    path = make_features(
        tiny, "squeezenet1_1", weights=tmp_path / "weights.pt", **options
    )
    images = torch.from_numpy(tiny.test.inputs.copy()).expand(-1, 3, -1, -1) / 255
    images = nn.functional.interpolate(
        images, (40, 40), mode="bilinear", antialias=True
    )
    # The usual mean and deviation of photographs, with which weights are trained.
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    deviation = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    with torch.no_grad():
        expected = model.eval().features((images - mean) / deviation).flatten(1)
    np.testing.assert_allclose(np.load(path)["X_test"], expected, rtol=1e-4, atol=1e-5)
    torch.save(body().state_dict(), tmp_path / "other.pt")
    with pytest.raises(ValueError, match="weights do not fit model 'squeezenet1_1'"):
        make_features(tiny, "squeezenet1_1", weights=tmp_path / "other.pt", **options)


def first_images(name: str, count: int) -> Dataset:
    whole = load_dataset(name)
    train, test = (
        Part(part.inputs[:count], np.arange(count) % 2)
        for part in (whole.train, whole.test)
    )
    return Dataset(name, train, test, 2)


@pytest.mark.parametrize(
    ("data", "model", "options", "expected"),
    [
        ("Diabetes", "resnet18", {}, "need images .*Diabetes has inputs of shape"),
        ("Digits", "resnet19", {}, "model must be one of torchvision's.*'resnet19'"),
        ("Digits", "gone:body", {}, "cannot import the model 'gone:body'"),
        ("Digits", "json:dumps", {}, "required positional argument"),
        ("Digits", "resnet18", {"weights": "BEST"}, "one of IMAGENET1K_V1.*'BEST'"),
        ("Digits", nn.Conv2d(3, 4, 3), {}, "Conv2d has no linear layer: name"),
        ("Digits", body(), {"weights": "DEFAULT"}, "weights must be None"),
    ],
)
def test_what_is_wrong_is_named(
    data: str, model: Any, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=expected) as told:
        make_features(data, model, **options)
    assert "\n" not in str(told.value)


def test_a_stream_of_features_is_learned_by_a_linear_head() -> None:
    path = make_features("Digits", body(12))
    run = train(path, tasks=5, network="linear", policy="infors", capacity=50)
    assert run.agent.memory is not None
    assert run.agent.memory[:]["feature"].shape == (50, 12)
    assert run.agent.memory.fixed_features


def test_features_of_real_photographs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    require_data("CIFAR10")
    small = first_images("CIFAR10", 64)
    features = np.load(make_features(small, out=tmp_path / "features.npz"))["X"]
    assert features.shape == (64, 512)
    assert (features >= 0).all()
    assert features.std(0).max() > 0
