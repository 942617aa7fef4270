"""Data sets lie where the user says, and get there whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import threading
import urllib.error
from pathlib import Path

import numpy as np
import pytest

from continual_envs import DatasetError, datasets, load_dataset, make_stream
from continual_envs.datasets import Part
from continual_envs.datasets.files import check_file, data_root, download, staging


def everything(folder: Path) -> list[str]:
    """All files below a folder, and all folders that hold or held some."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() or path.name.startswith(".")
    )


def test_the_users_choice_beats_the_variable_which_beats_the_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTINUAL_ENVS_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert data_root(tmp_path / "mine") == tmp_path / "mine"
    assert data_root(str(tmp_path / "mine")) == tmp_path / "mine"
    assert data_root(None) == tmp_path / "variable"
    monkeypatch.setenv("CONTINUAL_ENVS_DATA", "")
    assert data_root(None) == tmp_path / "cache" / "continual_envs"
    monkeypatch.delenv("CONTINUAL_ENVS_DATA")
    assert data_root(None) == tmp_path / "cache" / "continual_envs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root(None) == tmp_path / "home" / ".cache" / "continual_envs"


def test_the_users_folder_may_be_short_for_home_or_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert data_root("~/data") == tmp_path / "home" / "data"
    assert data_root("data") == tmp_path / "data"
    monkeypatch.setenv("CONTINUAL_ENVS_DATA", "~/data")
    assert data_root(None) == tmp_path / "home" / "data"


def test_streams_look_for_data_in_that_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTINUAL_ENVS_DATA", str(tmp_path / "variable"))
    with pytest.raises(DatasetError, match=str(tmp_path / "mine")):
        make_stream("SplitMiniImageNet", data_dir=tmp_path / "mine")
    with pytest.raises(DatasetError, match=str(tmp_path / "variable")):
        make_stream("SplitMiniImageNet")


def test_a_file_with_its_published_checksum_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert check_file(path, hashlib.md5(b"content").hexdigest()) == b"content"


@pytest.mark.parametrize("content", [b"", b"conten", b"Content", b"content "])
def test_a_damaged_file_is_refused_and_the_user_told_what_to_do(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    md5 = hashlib.md5(b"content").hexdigest()
    with pytest.raises(DatasetError) as caught:
        check_file(path, md5)
    message = str(caught.value)
    assert str(path) in message
    assert md5 in message
    assert hashlib.md5(content).hexdigest() in message
    assert "Delete the folder" in message
    assert path.read_bytes() == content


def test_a_folder_takes_its_place_when_it_is_complete(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "place"
    with staging(place) as folder:
        (folder / "file").write_text("whole")
        assert not place.exists()
        assert folder.parent == place.parent  # a rename within one file system
    assert (place / "file").read_text() == "whole"
    assert place.stat().st_mode & 0o777 == 0o755
    assert os.listdir(place.parent) == ["place"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_folder_that_was_not_completed_is_gone(
    tmp_path: Path, error: type[BaseException]
) -> None:
    place = tmp_path / "place"

    def fill() -> None:
        with staging(place) as folder:
            (folder / "file").write_text("half")
            raise error

    with pytest.raises(error):
        fill()
    assert os.listdir(tmp_path) == []


def test_who_was_faster_stays(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with staging(place) as folder:
        (folder / "file").write_text("slow")
        with staging(place) as other:
            (other / "file").write_text("fast")
    assert (place / "file").read_text() == "fast"
    assert os.listdir(tmp_path) == ["place"]


def test_a_download_goes_on_with_the_next_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fetch(url: str, root: Path, name: str, md5: str) -> None:
        asked.append(url)
        if url == "first":
            raise urllib.error.URLError("no route")
        (Path(root) / name).write_text(f"from {url}")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", fetch)
    download(["first", "second", "third"], tmp_path, "file", "md5", tmp_path / "there")
    assert asked == ["first", "second"]
    assert (tmp_path / "file").read_text() == "from second"


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("no route to host"),
        ConnectionResetError("reset by peer"),
        TimeoutError("timed out"),
        RuntimeError("File not found or corrupted."),
        http.client.IncompleteRead(b"half"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("dataset", ["MNIST", "CIFAR10"])
def test_a_download_that_fails_half_way_leaves_nothing_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, error: Exception
) -> None:
    calls = []

    def fetch(url: str, root: Path, name: str, md5: str) -> None:
        calls.append(url)
        (Path(root) / name).write_bytes(b"half")
        if dataset == "CIFAR10" or len(calls) > 1:  # one file of MNIST arrives
            raise error

    monkeypatch.setattr("torchvision.datasets.utils.download_url", fetch)
    with pytest.raises(DatasetError) as caught:
        load_dataset(dataset, tmp_path)
    message = str(caught.value)
    assert "cannot download" in message
    assert str(error) in message
    assert "by hand" in message
    assert str(tmp_path) in message
    assert "data_dir" in message
    assert "CONTINUAL_ENVS_DATA" in message
    assert everything(tmp_path) == []
    assert len(calls) > 1 or dataset == "CIFAR10"


@pytest.mark.parametrize("dataset", ["MNIST", "CIFAR10"])
def test_a_download_that_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str
) -> None:
    def fetch(url: str, root: Path, name: str, md5: str) -> None:
        (Path(root) / name).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("torchvision.datasets.utils.download_url", fetch)
    with pytest.raises(KeyboardInterrupt):
        load_dataset(dataset, tmp_path)
    assert everything(tmp_path) == []


def test_a_data_set_that_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with pytest.raises(DatasetError, match="mini-ImageNet is not in"):
            load_dataset("MiniImageNet", tmp_path)
    repaired = object()
    monkeypatch.setitem(datasets.DATASETS, "MiniImageNet", lambda root: repaired)
    assert load_dataset("MiniImageNet", tmp_path) is repaired


def test_threads_that_load_at_once_get_one_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def slow(root: Path) -> object:
        calls.append(root)
        threading.Event().wait(0.05)
        return object()

    monkeypatch.setitem(datasets.DATASETS, "Slow", slow)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(load_dataset("Slow", tmp_path)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len({id(one) for one in found}) == 1


def test_all_streams_of_a_process_share_one_copy_that_nobody_can_change() -> None:
    one = make_stream("SplitDigits", batch_size=4, validation=True)
    other = make_stream("PermutedDigits", imbalance=2)
    assert one.dataset is other.dataset is load_dataset("Digits")
    for part in (one.dataset.train, one.dataset.test):
        for array in (part.inputs, part.targets):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


def test_inputs_and_targets_must_go_together() -> None:
    with pytest.raises(ValueError, match="3 inputs do not go with 2 targets"):
        Part(np.zeros((3, 1, 2, 2), np.uint8), np.zeros(2, np.int64))
