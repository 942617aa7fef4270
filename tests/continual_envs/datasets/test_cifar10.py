"""CIFAR-10 is read as torchvision reads it; no pickle runs code."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import pickle
import shutil
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torchvision.datasets import CIFAR10

from continual_envs import DatasetError, load_dataset, make_stream
from continual_envs.datasets.cifar10 import load_cifar10
from tests.continual_envs.helpers import require_data, still

NAMES = [name for name, _ in (*CIFAR10.train_list, *CIFAR10.test_list)]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose ``archive.tar.gz`` is what is downloaded."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        url = f"http://127.0.0.1:{server.server_port}/archive.tar.gz"
        monkeypatch.setattr(CIFAR10, "url", url)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder
        server.shutdown()
        thread.join()


class Payload:
    """Pickled, it creates a file when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.marker,))


def test_the_payload_of_these_tests_does_run_if_it_is_loaded(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Payload(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("place", [0, 3, 5])
def test_a_pickle_that_would_run_code_is_refused_before_it_is_opened(
    tmp_path: Path, place: int
) -> None:
    folder = tmp_path / CIFAR10.base_folder
    folder.mkdir()
    if place:
        root = require_data("CIFAR10")
        assert root is not None
        for name in NAMES:
            (folder / name).symlink_to(root / CIFAR10.base_folder / name)
        (folder / NAMES[place]).unlink()
    marker = tmp_path / "ran"
    (folder / NAMES[place]).write_bytes(pickle.dumps(Payload(marker)))
    with pytest.raises(DatasetError, match=f"{NAMES[place]} is damaged.*Delete"):
        load_dataset("CIFAR10", tmp_path)
    assert not marker.exists()


def test_an_archive_that_is_not_the_published_one_is_never_unpacked(
    tmp_path: Path, served: Path
) -> None:
    marker = tmp_path / "ran"
    evil = pack({name: pickle.dumps(Payload(marker)) for name in NAMES})
    (served / "archive.tar.gz").write_bytes(evil)
    root = tmp_path / "root"
    with pytest.raises(DatasetError, match="cannot download.*by hand"):
        load_dataset("CIFAR10", root)
    assert not marker.exists()
    assert list(root.iterdir()) == []


def test_an_archive_that_is_nowhere_says_where_to_put_the_data(
    tmp_path: Path, served: Path
) -> None:
    root = tmp_path / "root"
    with pytest.raises(DatasetError, match=f"HTTP Error 404.*{root}.*by hand"):
        load_dataset("CIFAR10", root)
    assert list(root.iterdir()) == []


def pack(contents: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{CIFAR10.base_folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def test_a_published_archive_is_downloaded_checked_and_unpacked(
    tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {}
    for shade, name in ((3, "data_batch_1"), (7, "test_batch")):
        data = np.full((10_000, 3072), shade, dtype=np.uint8)
        contents[name] = pickle.dumps({"data": data, "labels": [shade] * 10_000})
    archive = pack(contents | {"readme.html": b"not needed"})
    (served / "archive.tar.gz").write_bytes(archive)
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5(archive))
    listed = [[name, md5(content)] for name, content in contents.items()]
    monkeypatch.setattr(CIFAR10, "train_list", listed[:1])
    monkeypatch.setattr(CIFAR10, "test_list", listed[1:])
    root = tmp_path / "root"
    data_set = load_cifar10(root)
    assert data_set.train.inputs.shape == (10_000, 3, 32, 32)
    assert (data_set.train.inputs == 3).all()
    assert (data_set.test.targets == 7).all()
    # The archive is gone, its files are there, and nothing else.
    assert [path.name for path in root.iterdir()] == [CIFAR10.base_folder]
    assert {path.name for path in (root / CIFAR10.base_folder).iterdir()} == {*contents}
    (served / "archive.tar.gz").unlink()
    assert len(load_cifar10(root).test) == 10_000


@pytest.mark.parametrize("name", ["data_batch_1", "test_batch"])
def test_a_batch_that_is_missing_or_truncated_is_named(
    tmp_path: Path, name: str
) -> None:
    root = require_data("CIFAR10")
    assert root is not None
    source, folder = root / CIFAR10.base_folder, tmp_path / CIFAR10.base_folder
    folder.mkdir()
    for other in NAMES:
        if other != name:
            (folder / other).symlink_to(source / other)
    with pytest.raises(DatasetError, match=f"{name} is missing. Delete .* or copy"):
        load_dataset("CIFAR10", tmp_path)
    shutil.copy(source / name, folder / name)
    with (folder / name).open("r+b") as file:
        file.truncate(1_000_000)
    with pytest.raises(DatasetError, match=f"{name} is damaged.*Delete the folder"):
        load_dataset("CIFAR10", tmp_path)


def test_real_cifar10_is_what_torchvision_reads() -> None:
    root = require_data("CIFAR10")
    data = load_dataset("CIFAR10", root)
    assert data.num_classes == 10
    for part, is_train, size in (
        (data.train, True, 50_000),
        (data.test, False, 10_000),
    ):
        expected = CIFAR10(root, train=is_train)
        assert part.inputs.shape == (size, 3, 32, 32)
        assert part.inputs.dtype == np.uint8
        assert part.targets.dtype == np.int64
        assert part.targets.tolist() == expected.targets
        assert np.bincount(part.targets).tolist() == [size // 10] * 10
        for row in range(0, size, 97):
            image, label = expected[row]
            shown = part.inputs[row].transpose(1, 2, 0)
            np.testing.assert_array_equal(shown, np.asarray(image))
            assert part.targets[row] == label


@pytest.mark.parametrize("benchmark", ["SplitCIFAR10", "DriftCIFAR10"])
def test_real_cifar10_streams_from_its_beginning_to_its_end(benchmark: str) -> None:
    require_data("CIFAR10")
    env = make_stream(benchmark, batch_size=512)
    env.reset(seed=1)
    labels = []
    over = False
    while not over:
        _, _, over, _, info = env.step(still(env))
        labels.append(info["label"])
    found = np.concatenate(labels)[:50_000]
    assert len(labels) == 98
    assert (labels[-1][50_000 - 97 * 512 :] == -1).all()
    assert np.bincount(found).tolist() == [5000] * 10
    if benchmark == "SplitCIFAR10":
        assert (np.diff(found // 2) >= 0).all()
