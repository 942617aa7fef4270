"""One's own problem on the command line, and runs that others may stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents import load_run
from agents.cli import main
from agents.runs.folder import RunFolder
from agents.supervised.derpp import DERPlusPlusAgent
from tests.agents.supervised.helpers import outcome
from tests.agents.test_cli import TRAIN, interrupted_at, told

REPOSITORY = Path(__file__).parents[2]
#: What a user has in a folder.
MINE = """
import itertools
import numpy as np
from torch import nn
from agents import Callback

def arrays():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 4
    return rng.normal(size=(200, 6)) + 3 * np.eye(4, 6)[y], y

def live():
    X, y = arrays()
    return itertools.cycle(zip(X, y))

def network(input_shape, num_outputs):
    first, last = nn.Linear(*input_shape, 9), nn.Linear(9, num_outputs)
    return nn.Sequential(first, nn.ReLU(), last)

def misses(targets, predictions):
    return (targets != predictions).mean()

class Count(Callback):
    def on_evaluation(self, experiment, scores):
        print("evaluated at", experiment.step)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's module and data."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    rng = np.random.default_rng(0)
    y = np.arange(300) % 6
    np.savez("blobs.npz", X=rng.normal(size=(300, 5)) + 3 * np.eye(6, 5)[y], y=y)
    return tmp_path


def command(text: str) -> list[str]:
    return f"train {text} --threads 1 --capacity 20 --out run".split()


def result_of(folder: Path) -> dict[str, Any]:
    return RunFolder(folder / "run").read("result.json")


# -- own data, network, metric, callback ----------------------------------------------


def test_a_file_is_one_line(folder: Path) -> None:
    assert main(command("--data blobs.npz --tasks 3 --longtail 2 --blur 0.1")) == 0
    result = result_of(folder)
    assert (result["stream"], result["tasks"], result["env"]) == ("blobs", 3, None)
    assert (result["longtail"], result["blur"]) == (2.0, 0.1)


def test_everything_of_ones_own_is_found_in_the_current_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "--data mine:arrays --network mine:network --feature 1 --learner er-ace "
        "--metrics mine:misses,sklearn.metrics:balanced_accuracy_score "
        "--callback mine:Count --tasks 2 --steps 4 --evaluations 2"
    )
    assert main(command(words)) == 0
    captured = capsys.readouterr()
    assert "evaluated at 0\nevaluated at 2\n" in captured.out
    result = result_of(folder)
    assert list(result["metrics"]) == ["misses", "balanced_accuracy_score"]
    misses = np.array(result["metrics"]["misses"]["matrix"])
    np.testing.assert_allclose(misses, 1 - np.array(result["matrix"]))
    assert re.search(r"misses +0\.\d{4}", captured.out)
    with pytest.raises(ValueError, match="mine:network: load_run.*own_code=True"):
        load_run("run")
    assert load_run("run", own_code=True).network.feature_dim == 9


def test_a_live_stream_runs_for_as_many_steps_as_it_is_told(folder: Path) -> None:
    words = "--data mine:live --num-classes 4 --steps 7 --policy rs"
    assert main(command(words)) == 0
    assert result_of(folder)["steps_done"] == 7


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--data gone.npz", "'gone.npz' does not exist"),
        ("--data mine:gone", "cannot import the data 'mine:gone'"),
        ("--data blobs.npz --env SplitDigits", "either a benchmark or data"),
        ("--data blobs.npz --tasks 4", "6 classes"),
        ("--data blobs.npz --cut slices", "cut must be .*got 'slices'"),
        ("--data blobs.npz --class-order 1,x", "whole numbers .*got '1,x'"),
        ("--data blobs.npz --network mine:network", "feature"),
        ("--data blobs.npz --network mine:network --feature 7", "got '7'"),
        ("--data blobs.npz --learner dqn", "learner must be 'der\\+\\+', "),
        ("--data blobs.npz --metrics mine:gone", "cannot import the metric"),
        ("--data blobs.npz --callback mine:gone", "cannot import the callback"),
        ("--data blobs.npz --logger paper", "logger must be one of csv, "),
        ("--data blobs.npz --learner finetune --policy rs", "has no memory, got"),
        ("--data blobs.npz --tensorboard --logger csv", "logger must be None or"),
        ("--seed x", "--seed: must be a whole number, got 'x'"),
        ("--gamma high", "--gamma: must be a number, got 'high'"),
        ("--polic rs", "unrecognized arguments: --polic"),
        ("--data-d here", "unrecognized arguments: --data-d"),
    ],
)
def test_what_is_wrong_gets_one_line_and_leaves_no_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], words: str, expected: str
) -> None:
    capsys.readouterr()
    try:
        status = main(command(words))
    except SystemExit as over:
        status = int(str(over.code))
    assert status == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(expected, line)
    assert not (folder / "run").exists()


def test_runs_with_other_settings_have_other_folders(folder: Path) -> None:
    words = "train --data blobs.npz --policy infors --steps 2 --threads 1".split()
    for more in ([], ["--gamma", "0.5"], ["--gamma", "-0.5"], ["--no-standardize"]):
        assert main([*words, *more]) == 0
    names = {path.name for path in (folder / "runs").iterdir()}
    # A hash of the path tells files of one name apart.
    assert {re.sub("^blobs-[0-9a-f]{6}-", "", name) for name in names} == {
        "infors-r1-seed0-steps2-threads1",
        "infors-r1-seed0-gamma0.5-steps2-threads1",
        "infors-r1-seed0-gamma-0.5-steps2-threads1",
        "infors-r1-seed0-no-standardize-steps2-threads1",
    }


def test_data_of_one_name_in_two_places_has_two_folders(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "blobs.npz").write_bytes((folder / "blobs.npz").read_bytes())
    for data in ("blobs.npz", "other/blobs.npz"):
        assert main(["train", "--data", data, "--steps", "1"]) == 0
    assert len([*(folder / "runs").iterdir()]) == 2


def test_features_of_images_are_a_data_set(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "model.py").write_text(
        "from torch import nn\n"
        "def body():\n"
        "    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1),\n"
        "                         nn.Flatten(), nn.Linear(5, 2))\n"
    )
    words = "features --data Digits --model model:body --out digits.npz"
    assert main(words.split()) == 0
    assert capsys.readouterr().out == "digits.npz\n"
    assert main(command("--data digits.npz --network linear --tasks 5")) == 0
    assert len(result_of(folder)["matrix"]) == 5


# -- stopping and going on ------------------------------------------------------------


def test_a_run_goes_on_with_nothing_but_its_folder_from_anywhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command("--data blobs.npz --policy infors --gamma 0.2 --epochs 2")
    assert main([*words[:-1], "whole"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(DERPlusPlusAgent, "act", interrupted_at(4))
        assert main(words) == 130
    assert "info-replay train --resume run" in capsys.readouterr().err
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    line = told(["train", "--resume", "../run", "--gamma", "0.3"], capsys)
    assert "gamma=0.2 as one with gamma=0.3" in line
    line = told(["train", "--resume", "../run", "--env", "SplitDigits"], capsys)
    assert "env=None as one with env='SplitDigits'" in line
    line = told(["train", "--resume", "../run", "--preset", "paper"], capsys)
    assert "preset must be one of mnist" in line
    line = told(["train", "--resume", "../run", "--out", "other"], capsys)
    assert "must be the same folder" in line
    assert main(["train", "--resume", "../run", "--gamma", "0.2"]) == 0
    assert outcome(folder / "run") == outcome(folder / "whole")


def test_a_run_with_objects_of_python_cannot_go_on_without_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from agents import train

    X, y = np.load("blobs.npz").values()
    train((X, y), steps=2, policy="rs", folder="run")
    (folder / "run" / "result.json").unlink()
    line = told(["train", "--resume", "run"], capsys)
    assert "data <arrays> was an object in Python" in line


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A run in a process of its own, once it has begun to learn."""
    process = subprocess.Popen(
        [sys.executable, "-m", "agents.cli", *words],
        cwd=folder,
        env={"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "PATH": ""},
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(600):
        if (folder / "run" / "checkpoint.pt").exists():
            return process
        time.sleep(0.05)
    process.kill()
    raise AssertionError(process.communicate()[1])


LONG = command("--data blobs.npz --policy rs --epochs 5000 --checkpoint-every 0.2")


def test_sigterm_saves_and_a_second_process_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = start(folder, *LONG)
    line = told(["train", "--resume", "run"], capsys)
    assert "another process runs in run" in line
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    stopped = re.search(r"interrupted at step (\d+);", error)
    assert stopped is not None
    assert "Traceback" not in error
    from agents.runs.checkpoint import load_checkpoint

    saved = load_checkpoint(folder / "run" / "checkpoint.pt")
    assert saved["step"] == int(stopped[1])


def test_a_killed_process_keeps_nobody_out(folder: Path) -> None:
    process = start(folder, *LONG)
    process.kill()
    process.communicate()
    RunFolder("run").acquire()


def test_what_is_found_wrong_on_the_way_gets_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "odd.py").write_text(
        "import numpy as np\n"
        "def live():\n"
        "    for number in range(100):\n"
        "        yield np.zeros(3), 9 if number == 70 else number % 4\n"
    )
    assert main(command("--data odd:live --num-classes 4 --steps 9")) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    last = error.splitlines()[-1]
    assert re.search("info-replay: error: .*70.*9", last)


def test_an_error_in_ones_own_code_keeps_its_traceback(folder: Path) -> None:
    (folder / "bad.py").write_text(
        "from agents import Callback\n"
        "class Bad(Callback):\n"
        "    def on_step(self, experiment, reward):\n"
        "        int('seventeen')\n"
    )
    with pytest.raises(ValueError, match="seventeen"):
        main(command("--data blobs.npz --callback bad:Bad"))


def test_a_reader_that_has_seen_enough_gets_no_traceback(folder: Path) -> None:
    script = f"{sys.executable} -m agents.cli list | head -1"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "streams:\n"
    assert done.stderr == ""


def test_only_the_result_is_on_the_standard_output(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agents.cli", *command("--data blobs.npz --steps 1")],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("blobs, infors, imbalance 1, seed 0: 1 steps")


# -- quick answers --------------------------------------------------------------------


@pytest.mark.parametrize("words", ["--help", "train --help", "dqn --help", "--version"])
def test_help_and_version_import_nothing_that_takes_long(words: str) -> None:
    code = (
        "import sys\n"
        "from agents.cli import main\n"
        "try:\n"
        f"    main({words.split()!r})\n"
        "except SystemExit as over:\n"
        "    assert not over.code\n"
        "heavy = {'torch', 'numpy', 'gymnasium', 'sklearn', 'matplotlib', 'tqdm'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version_is_that_of_the_package(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as over:
        main(["--version"])
    assert over.value.code == 0
    assert re.fullmatch(r"info-replay \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_a_package_that_is_missing_is_named_with_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    line = told([*TRAIN, "--out", "nowhere"], capsys)
    assert (
        "needs tqdm, which is not installed: pip install 'info-replay[train]'" in line
    )
    assert not Path("nowhere").exists()
