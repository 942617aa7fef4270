"""A run keeps what was in its memory at each evaluation, if it is asked to."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agents import load_run, train
from agents.cli import main
from agents.runs.folder import RunError, RunFolder
from agents.supervised.callbacks import Callback, Run
from agents.supervised.experiment import Experiment
from agents.supervised.snapshots import read_snapshots
from tests.agents.supervised.helpers import finish, outcome, small
from tests.agents.supervised.test_resume import go_on, interrupt
from tests.agents.test_cli import told

CONFIG = small(policy="infors", steps=20, checkpoint_every=1e-6, snapshots=True)


class Watch(Callback):
    """Remembers what is in memory at each evaluation."""

    def __init__(self) -> None:
        self.seen: dict[int, dict[str, NDArray[Any]]] = {}

    def on_evaluation(self, experiment: Run, scores: list[float]) -> None:
        memory = experiment.agent.memory
        if memory is not None and len(memory):
            items = memory[:].clone()
            self.seen[experiment.step] = {
                key: items[key].numpy() for key in ("observation", "target")
            }


class Saves(Callback):
    """Writes a checkpoint in each evaluation, and is killed in that of a step."""

    def __init__(self, last: int) -> None:
        self.last = last

    def on_evaluation(self, experiment: Run, scores: list[float]) -> None:
        experiment.save()
        if experiment.step == self.last:
            raise KeyboardInterrupt


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    path = tmp_path_factory.mktemp("whole") / "run"
    finish(CONFIG, path)
    return path


def kept(path: Path) -> dict[str, bytes]:
    """The files, hidden ones too."""
    return {each.name: each.read_bytes() for each in (path / "memories").iterdir()}


# -- what is kept ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"policy": "rs", "augmented": True},
        {"env": "SplitDiabetes", "batch_size": 8},
    ],
    ids=["images", "augmented images", "vectors and numbers"],
)
def test_each_evaluation_leaves_what_was_in_memory_then(
    chosen: dict[str, Any], folder: RunFolder
) -> None:
    watch = Watch()
    config = small(**{"policy": "infors", "snapshots": True, **chosen})
    experiment = Experiment(config, folder, callbacks=[watch])
    experiment.run()
    assert [*watch.seen] == sorted(experiment.evaluation_steps)
    found = read_snapshots(folder.path)
    assert [*found] == [*watch.seen]  # in order; the memory is empty before step 1
    for step, items in found.items():
        for key, expected in watch.seen[step].items():
            assert items[key].dtype == expected.dtype
            assert np.array_equal(items[key], expected)
    memory = load_run(folder.path).memory
    assert memory is not None
    assert np.array_equal(
        found[experiment.step]["observation"], memory[:]["observation"].numpy()
    )


def test_the_option_of_the_command_turns_it_on(tmp_path: Path) -> None:
    command = "train --env SplitDigits --policy rs --steps 4 --evaluations 2".split()
    for option, steps in (("--snapshots", [2, 4]), ("--no-snapshots", [])):
        out = tmp_path / option
        assert main([*command, option, "--out", str(out)]) == 0
        assert [*read_snapshots(out)] == steps


def test_results_do_not_depend_on_it(whole: Path, tmp_path: Path) -> None:
    finish(small(**{**CONFIG.as_dict(), "snapshots": False}), tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(whole)
    assert not (tmp_path / "run" / "memories").exists()
    assert read_snapshots(tmp_path / "run") == {}


def test_without_a_folder_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = train("SplitDigits", policy="rs", steps=2, evaluations=1, snapshots=True)
    assert run.step == 2
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("chosen", [{"learner": "finetune"}, {"policy": "none"}])
def test_without_a_memory_nothing_is_kept(
    chosen: dict[str, Any], folder: RunFolder
) -> None:
    finish(small(steps=4, snapshots=True, **chosen), folder.path)
    assert not (folder.path / "memories").exists()
    assert read_snapshots(folder.path) == {}


# -- interrupted runs -----------------------------------------------------------------


def leave_half_a_file(folder: RunFolder) -> None:
    name = f".15.npz-{32 * 'a'}.partial"
    (folder.path / "memories" / name).write_bytes(b"half of it")


def change_a_later_file(folder: RunFolder) -> None:
    """A process that was killed after its last checkpoint was further already."""
    (folder.path / "memories" / "15.npz").write_bytes(b"something")


def lose_the_checkpoint(folder: RunFolder) -> None:
    folder.checkpoint.unlink()


@pytest.mark.parametrize(
    "change",
    [None, leave_half_a_file, change_a_later_file, lose_the_checkpoint],
)
def test_a_killed_and_resumed_run_leaves_the_same_files(
    change: Callable[[RunFolder], None] | None, folder: RunFolder, whole: Path
) -> None:
    for stop in (3, 12):
        interrupt(CONFIG, folder, stop)
    if change is not None:
        change(folder)
    go_on(folder, CONFIG)
    assert kept(folder.path) == kept(whole)
    assert outcome(folder.path) == outcome(whole)


def test_a_run_that_a_callback_saved_in_an_evaluation_leaves_the_same_files(
    folder: RunFolder, whole: Path
) -> None:
    experiment = Experiment(CONFIG, folder, callbacks=[Saves(10)])
    assert 10 in experiment.evaluation_steps
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    go_on(folder, CONFIG)
    assert kept(folder.path) == kept(whole)


def test_a_run_may_begin_to_keep_them_when_it_is_resumed(folder: RunFolder) -> None:
    plain = small(**{**CONFIG.as_dict(), "snapshots": False})
    interrupt(plain, folder, 12)
    go_on(folder, CONFIG)
    steps = Experiment(plain).evaluation_steps
    assert [*read_snapshots(folder.path)] == sorted(s for s in steps if s > 12)


# -- bad input ------------------------------------------------------------------------


def test_a_new_run_is_refused_where_memories_of_another_are(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    old = folder.path / "memories" / "5.npz"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"precious")
    with pytest.raises(RunError, match="memories is of another run"):
        Experiment(CONFIG, folder)
    line = told(["train", "--env", "SplitDigits", "--out", str(folder.path)], capsys)
    assert "memories is of another run: give another folder" in line
    assert [*folder.path.iterdir()] == [old.parent]
    assert old.read_bytes() == b"precious"


def as_npz(**arrays: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def as_npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


GOOD = as_npz(observation=np.zeros((4, 2)), target=np.arange(4))
ENTRY = b"PK\1\2-\3-\0\0\0\0\0"  # of the list of files; it ends in how they are packed
DAMAGED = {
    "empty": b"",
    "no archive": b"precious words",
    "cut": GOOD[: len(GOOD) // 2],
    "without its beginning": GOOD[40:],
    "another byte": GOOD.replace(np.arange(4).tobytes(), np.arange(1, 5).tobytes()),
    "another compression": GOOD.replace(ENTRY, ENTRY[:-2] + b"c\0"),
    "an array of its own": as_npy(),
    "without targets": as_npz(observation=np.zeros(4)),
    "with objects": as_npz(observation=np.array([None]), target=np.zeros(1)),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_gets_one_line_that_names_it(
    damage: str, tmp_path: Path
) -> None:
    assert DAMAGED[damage] != GOOD
    (tmp_path / "memories").mkdir()
    (tmp_path / "memories" / "5.npz").write_bytes(GOOD)
    assert [*read_snapshots(tmp_path)] == [5]
    (tmp_path / "memories" / "7.npz").write_bytes(DAMAGED[damage])
    with pytest.raises(RunError, match=r"^\S+7\.npz is damaged: delete it to go with"):
        read_snapshots(tmp_path)


def test_a_file_of_another_name_is_not_taken_for_a_step(tmp_path: Path) -> None:
    (tmp_path / "memories").mkdir()
    (tmp_path / "memories" / "mine.npz").write_bytes(GOOD)
    with pytest.raises(RunError, match=r"mine\.npz is damaged"):
        read_snapshots(tmp_path)


def test_the_home_folder_is_known_and_that_of_nobody_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "memories").mkdir()
    (tmp_path / "memories" / "5.npz").write_bytes(GOOD)
    assert [*read_snapshots("~")] == [5]
    with pytest.raises(RunError, match="home folder of a user who does not exist"):
        read_snapshots("~nobody123/x")


def test_a_folder_that_cannot_be_written_stops_the_run_which_can_go_on(
    folder: RunFolder, whole: Path
) -> None:
    interrupt(CONFIG, folder, 3)
    (folder.path / "memories").write_text("a file in its place")
    with pytest.raises(RunError, match=r"cannot write \S+5\.npz"):
        go_on(folder, CONFIG)
    (folder.path / "memories").unlink()
    go_on(folder, CONFIG)
    assert kept(folder.path) == kept(whole)
