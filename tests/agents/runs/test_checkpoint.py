"""A checkpoint that cannot be written or read is named; reading one runs no code."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import resource
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from tests.agents.runs.test_files import full

OLD = {"step": 1, "weights": torch.arange(3.0)}
NEW = {"step": 2, "weights": torch.ones(3)}


def broken(*_: Any, **__: Any) -> None:
    raise RuntimeError("unexpected pos 64 vs 0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.pt"


def test_what_is_written_is_read(path: Path) -> None:
    save_checkpoint(path, OLD)
    save_checkpoint(path, NEW)
    found = load_checkpoint(path)
    assert found["step"] == 2
    assert torch.equal(found["weights"], NEW["weights"])


@pytest.mark.parametrize(
    ("failure", "named"), [(full, "No space left on device"), (broken, "pos 64")]
)
def test_a_failure_is_named_and_keeps_the_last_one(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: Callable[..., None],
    named: str,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", failure)
        with pytest.raises(CheckpointError, match=rf"cannot .*{named}.*\)$"):
            save_checkpoint(path, NEW)
    save_checkpoint(path, OLD)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", failure)
        with pytest.raises(CheckpointError, match=f"{path}, is kept"):
            save_checkpoint(path, NEW)
    assert load_checkpoint(path)["step"] == 1


def test_a_disk_that_is_really_full_is_named_and_keeps_the_last_one(
    path: Path,
) -> None:
    save_checkpoint(path, OLD)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(CheckpointError, match="File too large.*is kept"):
            save_checkpoint(path, {"step": 2, "weights": torch.ones(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert load_checkpoint(path)["step"] == 1
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_file_or_folder_is_named(path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"there is no checkpoint {path}"):
        load_checkpoint(path)
    with pytest.raises(CheckpointError, match="No such file or directory"):
        save_checkpoint(path.parent / "gone" / path.name, NEW)


@pytest.mark.parametrize(
    "failure",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.EIO, "Input/output error"),
        MemoryError(),
    ],
)
def test_a_file_that_cannot_be_read_is_not_called_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise failure

    save_checkpoint(path, OLD)
    for owner, name in ((zipfile, "ZipFile"), (torch, "load")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            with pytest.raises(CheckpointError, match=f"cannot read {path}") as told:
                load_checkpoint(path)
        assert "Delete" not in str(told.value)
        assert "damaged" not in str(told.value)
    assert load_checkpoint(path)["step"] == 1


def test_a_folder_in_place_of_a_file_is_named(path: Path) -> None:
    path.mkdir()
    with pytest.raises(CheckpointError, match="cannot read .*directory"):
        load_checkpoint(path)


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def garbled(content: bytes) -> bytes:
    place = content.index(b"weights")
    return content[: place - 20] + b"\xff" * 40 + content[place + 20 :]


@pytest.mark.parametrize("damage", [cut, garbled, lambda _: b"", lambda _: b"{}"])
def test_a_damaged_file_says_what_to_do_and_is_kept(
    path: Path, damage: Callable[[bytes], bytes]
) -> None:
    save_checkpoint(path, OLD)
    content = damage(path.read_bytes())
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged") as told:
        load_checkpoint(path)
    assert str(path) in str(told.value)
    assert "Delete it to start the run anew" in str(told.value)
    assert "\n" not in str(told.value)
    assert path.read_bytes() == content


def test_one_flipped_bit_in_a_tensor_is_noticed(path: Path) -> None:
    save_checkpoint(path, {"weights": torch.arange(100_000.0)})
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)
    torch.load(path, weights_only=True)  # torch itself does not see it
    with pytest.raises(CheckpointError, match="damaged .the checksum of .* is wrong"):
        load_checkpoint(path)


def compressed(path: Path) -> None:
    """Ten megabytes in ten kilobytes."""
    torch.save({"weights": torch.zeros(2_500_000)}, path)
    with zipfile.ZipFile(path) as archive:
        parts = [(each, archive.read(each)) for each in archive.namelist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts:
            archive.writestr(name, part)


def overlapping(path: Path) -> None:
    """Many entries that share the same bytes, none of them compressed."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"0" * 1000)
        for number in range(50):
            copy_of_first = copy.copy(archive.filelist[0])
            copy_of_first.filename = f"archive/data/{number}"
            archive.filelist.append(copy_of_first)


@pytest.mark.parametrize(
    ("bomb", "named"), [(compressed, "is compressed"), (overlapping, "its parts have")]
)
def test_a_file_that_is_larger_unpacked_is_refused_before_it_is(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bomb: Callable[[Path], None],
    named: str,
) -> None:
    bomb(path)
    assert path.stat().st_size < 20_000
    for unpack in ("read", "open", "testzip"):
        monkeypatch.setattr(zipfile.ZipFile, unpack, broken)
    monkeypatch.setattr(torch, "load", broken)
    with pytest.raises(CheckpointError, match=f"is damaged .*{named}"):
        load_checkpoint(path)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


def pickled(state: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(state, protocol=2))


@pytest.mark.parametrize("way", [torch.save, pickled])
def test_code_in_a_file_is_not_run(
    tmp_path: Path, path: Path, way: Callable[[Any, Path], Any]
) -> None:
    mark = tmp_path / "run"
    way({"step": Trap(mark)}, path)
    with pytest.raises(CheckpointError, match="is damaged") as told:
        load_checkpoint(path)
    assert not mark.exists()
    assert "weights_only" not in str(told.value)  # torch's advice against safety
