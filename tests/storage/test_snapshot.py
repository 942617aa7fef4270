"""A save is the old one or the new one, never a mix, and stays while it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from info_replay.storage.snapshot import current_snapshot, new_snapshot


def save(folder: Path, text: str) -> None:
    with new_snapshot(folder) as snapshot:
        (snapshot / "deep").mkdir()
        (snapshot / "deep" / "data").write_text(text)


def load(folder: Path) -> str:
    with current_snapshot(folder) as snapshot:
        return (snapshot / "deep" / "data").read_text()


def snapshots(folder: Path) -> int:
    return len(list(folder.glob("snapshot-*")))


def test_a_save_that_fails_leaves_the_one_before_it(tmp_path: Path) -> None:
    save(tmp_path, "one")
    with pytest.raises(TypeError):
        save(tmp_path, None)  # type: ignore[arg-type]  # after the folder was made
    assert (load(tmp_path), snapshots(tmp_path)) == ("one", 1)


def test_what_is_being_read_stays_and_the_next_save_clears_it_away(
    tmp_path: Path,
) -> None:
    save(tmp_path, "one")
    with current_snapshot(tmp_path) as reading:
        save(tmp_path, "two")
        assert (reading / "deep" / "data").read_text() == "one"
        assert load(tmp_path) == "two"
    assert snapshots(tmp_path) == 2
    (tmp_path / ".CURRENT-killed").write_text("left by a save that was killed")
    save(tmp_path, "three")
    assert (load(tmp_path), snapshots(tmp_path)) == ("three", 1)
    assert not list(tmp_path.glob(".CURRENT-*"))


def test_loading_needs_a_save(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with (
            pytest.raises(FileNotFoundError, match="no replay buffer was saved in"),
            current_snapshot(folder),
        ):
            pass
