"""What must hold where the wheel is installed without extras; `.ci/wheel` runs this."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from tensordict import TensorDict

import info_replay

EXTRAS = "gymnasium sklearn PIL torchvision tqdm matplotlib tensorboard ray datasets"


def check_environment() -> None:
    """The installed package is the one in use, and no extra came with it."""
    assert Path(info_replay.__file__).is_relative_to(sys.prefix), info_replay.__file__
    installed = [name for name in EXTRAS.split() if find_spec(name)]
    assert not installed, f"{installed} came with the core"
    assert Path(info_replay.__file__).with_name("py.typed").exists()


def check_memory() -> None:
    """Extend, sample, write features back: the whole round of a memory."""
    memory = info_replay.InfoReservoirReplayBuffer(8, num_classes=2, batch_size=4)
    labels = torch.arange(32) % 2
    features = torch.nn.functional.one_hot(labels, 2) + 0.1 * torch.rand(32, 2)
    items = TensorDict(feature=features, target=labels, batch_size=32)
    slots = memory.extend(items)
    assert (slots >= 0).any(), "nothing was kept"
    sample = memory.sample()
    sample["feature"] = sample["feature"] + 1.0
    memory.update_tensordict_priority(sample)
    stored = memory[:]["feature"][sample["index"]]
    torch.testing.assert_close(stored, sample["feature"])


def check_error(extra: str, *command: str) -> str:
    """A command fails, and the last line that it prints names the missing extra."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0, f"{command} needs no {extra}?"
    wanted = f"pip install 'info-replay[{extra}]'"
    assert wanted in done.stderr.strip().splitlines()[-1], (
        f"{command} must say {wanted!r} in its last line, says {done.stderr}"
    )
    return done.stderr


def main() -> None:
    """Check all."""
    check_environment()
    check_memory()
    check_error("streams", sys.executable, "-I", "-c", "import continual_envs")
    entry = str(Path(sys.executable).with_name("info-replay"))
    said = check_error("train", entry, "train", "--data", "Digits")
    assert said.count("\n") == 1, f"info-replay must say one line, says {said}"
    print(f"info_replay works without extras (torch {torch.__version__})")


if __name__ == "__main__":
    main()
