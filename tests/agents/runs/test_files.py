"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.runs.files import (
    append_lines,
    cut_file,
    remove_partial_files,
    replace_file,
)


def full(*_: Any, **__: Any) -> None:
    """What a system call does on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_bytes(b"old\n")
    return file


def test_the_new_file_is_on_disk_before_the_old_one_goes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda f: (calls.append("sync"), sync(f)))
    monkeypatch.setattr(os, "replace", lambda *p: (calls.append("put"), replace(*p)))
    with replace_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old\n"
    assert calls == ["sync", "put"]
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("failure", [full, interrupted])
@pytest.mark.parametrize("place", ["write", "fsync", "replace"])
def test_a_failure_keeps_the_old_file_and_leaves_no_other(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    failure: Callable[..., None],
) -> None:
    def write() -> None:
        with replace_file(path) as file:
            file.write(b"half of it")
            if place == "write":
                failure()

    if place != "write":
        monkeypatch.setattr(os, place, failure)
    with pytest.raises((OSError, KeyboardInterrupt)):
        write()
    assert path.read_bytes() == b"old\n"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_a_device_that_is_really_full_is_an_error() -> None:
    with pytest.raises(OSError, match="No space left"):
        append_lines(Path("/dev/full"), ["new"])


def test_lines_are_appended_all_or_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert append_lines(path, ["one", "two"]) == len("old\none\ntwo\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            append_lines(path, ["three"])
    assert append_lines(path, []) == 12
    assert path.read_text() == "old\none\ntwo\n"


def test_what_a_killed_process_left_is_removed_and_nothing_else(path: Path) -> None:
    others = [".mine.partial", ".file-1.partial", "file.partial", ".gitignore"]
    for name in others:
        (path.parent / name).write_bytes(b"of the user")
    with replace_file(path):
        (left,) = path.parent.glob(f".file-{'?' * 32}.partial")
        killed = left.name.replace(left.name[6:10], "0123")
    (path.parent / killed).write_bytes(b"half of it")
    (path.parent / killed.replace("file", "link")).symlink_to(path)
    remove_partial_files(path.parent)
    kept = {path.name, killed.replace("file", "link"), *others}
    assert {each.name for each in path.parent.iterdir()} == kept


# -- planted links --------------------------------------------------------------------


def test_a_temporary_file_has_another_name_each_time_and_takes_nobodys(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    for _ in range(3):
        with replace_file(path) as file:
            file.write(b"old\n")
            names += [each.name for each in path.parent.glob(".*")]
    assert len({*names}) == 3
    # Even if the name were known, what is there would neither be written nor removed.
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    planted = path.parent / f".file-{'0' * 32}.partial"
    planted.symlink_to(path)
    with pytest.raises(FileExistsError), replace_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old\n"
    assert planted.is_symlink()


def test_no_file_is_written_through_a_planted_link(path: Path) -> None:
    link = path.parent / "link"
    link.symlink_to(path)
    for write in (lambda: append_lines(link, ["new"]), lambda: cut_file(link, 1)):
        with pytest.raises(OSError, match="symbolic link"):
            write()
    with replace_file(link) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old\n"
    assert link.read_bytes() == b"new"
    assert not link.is_symlink()
