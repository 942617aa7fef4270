"""Features of a network that does not learn are computed once, and are a data set."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from agents import make_features, train
from agents.cli import main
from agents.runs.checkpoint import CheckpointError
from continual_envs import Dataset, Part, load_dataset, make_dataset
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


def test_gray_images_stay_gray_for_a_network_that_wants_them() -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 8), nn.Flatten(), nn.Linear(4, 2))
    path = make_features("Digits", network)
    images = torch.from_numpy(load_dataset("Digits").test.inputs.copy()) / 255
    with torch.no_grad():
        expected = network[:-1](images)
    np.testing.assert_allclose(np.load(path)["X_test"], expected, rtol=1e-5, atol=1e-6)


class Unused(nn.Linear):
    """A network that does not use its linear layer."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.last = nn.Linear(2, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (nn.Sequential(nn.Conv2d(2, 4, 3), nn.Linear(4, 2)), r"\(1, 8, 8\): .*chan"),
        (nn.Sequential(nn.Conv2d(3, 4, 9), nn.Linear(4, 2)), r"\(3, 8, 8\): .*size"),
        (Unused(), "last linear layer is not used"),
    ],
)
def test_a_network_that_fails_on_the_images_is_told_in_one_line(
    network: nn.Module, expected: str
) -> None:
    with pytest.raises(ValueError, match=f"fails on images of .*{expected}") as told:
        make_features("Digits", network)
    assert "\n" not in str(told.value)


def test_the_users_network_stays_as_it_was() -> None:
    network = body().train()
    network[1].eval()
    modes = [each.training for each in network.modules()]
    before = {name: value.clone() for name, value in network.state_dict().items()}
    make_features("Digits", network)
    assert [each.training for each in network.modules()] == modes
    assert all(torch.equal(network.state_dict()[each], before[each]) for each in before)


def pictures(count: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Images, and what to tell of each: a price in dollars, say."""
    images = np.random.default_rng(0).integers(0, 256, (count, 3, 8, 8), np.uint8)
    return images, 250_000 + 30_000.5 * np.arange(count)


@pytest.mark.parametrize("standardized", [False, True])
def test_targets_keep_the_users_units(standardized: bool) -> None:
    images, prices = pictures(20)

    def made(rate: float) -> Path:
        data, test = (images, prices * rate), (images[:5], prices[:5] * rate)
        if not standardized:
            return make_features(data, body(), test=test)
        dataset = make_dataset(data, test=test)
        assert abs(dataset.train.targets.mean()) < 1e-3
        return make_features(dataset, body())

    dollars, euros = made(1.0), made(0.9)
    assert dollars != euros
    with np.load(euros) as found:
        np.testing.assert_allclose(found["y"], prices * 0.9, rtol=1e-7)
        np.testing.assert_allclose(found["y_test"], prices[:5] * 0.9, rtol=1e-7)


def test_features_keep_the_ids_of_tasks() -> None:
    images, _ = pictures(20)
    ids, labels = np.arange(20) // 5, np.arange(20) % 2
    options = {"test": (images, labels), "task_ids": ids, "test_task_ids": ids[::-1]}
    found = make_dataset(make_features((images, labels), body(), **options))
    np.testing.assert_array_equal(found.train.task_ids, ids)
    np.testing.assert_array_equal(found.test.task_ids, ids[::-1])


@pytest.mark.parametrize("size", [6, (6, 10)])
def test_photographs_of_different_sizes_are_resized(tmp_path: Path, size: Any) -> None:
    height, width = (6, 6) if size == 6 else size
    random = np.random.default_rng(0)
    expected = []
    for number in range(8):
        part, label = ("test", "train")[number > 1], f"class{number % 2}"
        file = tmp_path / "photos" / part / label / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (8 + number, 12, 3), np.uint8)
        Image.fromarray(pixels).save(file)
        small = Image.fromarray(pixels).resize(
            (width, height), Image.Resampling.BILINEAR
        )
        expected.append(np.asarray(small).transpose(2, 0, 1).flatten() / 255)
    folder = str(tmp_path / "photos")
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * height * width, 2))
    for data in (folder, lambda: folder):
        found = np.load(make_features(data, network, image_size=size))["X_test"]
        np.testing.assert_allclose(found, expected[:2], atol=1e-6)
    with pytest.raises(ValueError, match="have different sizes"):
        make_features(folder, network)


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


def test_a_file_that_is_not_of_features_is_never_replaced(tmp_path: Path) -> None:
    images, prices = pictures(20)
    mine = tmp_path / "mine.npz"
    np.savez(mine, X=images, y=prices)
    good = make_features("Digits", body(), out=tmp_path / "good.npz").read_bytes()
    for content in (mine.read_bytes(), good[:-50], b"", b"my notes"):
        mine.write_bytes(content)
        # Before anything is computed: these data do not exist.
        with pytest.raises(ValueError, match=r"mine\.npz exists and is no whole file"):
            make_features("gone.npz", body(), out=mine)
        assert mine.read_bytes() == content
    with pytest.raises(ValueError, match="is no whole file of features"):
        make_features("Digits", body(), out=tmp_path)
    mine.write_bytes(good)
    make_features("Digits", body(6), out=mine)  # one of features may be replaced
    assert np.load(mine)["X"].shape == (1500, 6)


def test_the_folder_of_the_data_sets_may_be_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    path = make_features("Digits", body(), data_dir=other)
    assert path.parent == other / "features"
    assert (
        main(
            ["features", "--data", "Digits", "--model", f"{__name__}:body"]
            + ["--data-dir", str(other)]
        )
        == 0
    )
    printed = Path(capsys.readouterr().out.strip())
    assert printed.parent == other / "features"
    assert np.array_equal(np.load(printed)["X"], np.load(path)["X"])


def test_the_command_tells_what_is_wrong_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("my notes")
    assert main(["features", "--data", "Digits", "--out", str(tmp_path / "mine")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("info-replay: error: ")


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


def test_weights_are_read_in_the_old_format_of_torch_too(tmp_path: Path) -> None:
    new, old = tmp_path / "new.pt", tmp_path / "old.pt"
    with torch.no_grad():
        state = {name: 2 * each for name, each in body().state_dict().items()}
    torch.save(state, new)
    torch.save({"state_dict": state}, old, _use_new_zipfile_serialization=False)
    model = f"{__name__}:body"
    paths = [make_features("Digits", model, weights=each) for each in (new, old)]
    assert paths[0] == paths[1] != make_features("Digits", model)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("content", [[1, 2], {"state_dict": 3}, {0: torch.zeros(1)}])
def test_a_file_without_weights_is_told_in_one_line(
    tmp_path: Path, content: Any, zipped: bool
) -> None:
    file = tmp_path / "weights.pt"
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match=r"weights\.pt must hold weights by") as told:
        make_features("Digits", f"{__name__}:body", weights=file)
    assert "\n" not in str(told.value)


def test_a_damaged_file_of_weights_is_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "weights.pt"
    for zipped in (True, False):
        torch.save(body().state_dict(), file, _use_new_zipfile_serialization=zipped)
        for content in (file.read_bytes()[:-50], b"", b"x" * 900):
            file.write_bytes(content)
            with pytest.raises(
                CheckpointError, match=r"weights\.pt is damaged"
            ) as told:
                make_features("Digits", f"{__name__}:body", weights=file)
            assert "\n" not in str(told.value)


def test_a_model_of_another_package_is_found_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = EntryPoint("resnet18", f"{__name__}:body", "info_replay.models")
    found = {point.group: [point]}
    monkeypatch.setattr(
        "info_replay.registry.installed_points", lambda group: found.get(group, [])
    )
    # Before torchvision's of the same name.
    assert np.load(make_features("Digits", "resnet18"))["X"].shape == (1500, 5)
    with pytest.raises(ValueError, match="must be resnet18, one of torchvision's"):
        make_features("Digits", "resnet19")


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
        ("Digits", "fcn_resnet50", {}, "torchvision's classifiers.*'fcn_resnet50'"),
        ("Digits", "r3d_18", {}, "torchvision's classifiers.*'r3d_18'"),
        ("Digits", nn.Linear, {}, "model must be a name or a network, got <class"),
        ("Digits", body(), {"image_size": 0}, "side of image_size must be .*got 0"),
        ("Digits", body(), {"batch_size": 0}, "batch_size must be .* got 0"),
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
