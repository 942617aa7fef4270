"""``info-replay features``: features of a data set from a frozen network."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from agents.commands.errors import WrongOption
from agents.options import add_settings, chosen_settings
from agents.runs.machine import check_device
from agents.settings import Settings, option

__all__ = ["DESCRIPTION", "HELP", "FeatureSettings", "add_options", "run"]

HELP = "features of a data set from a frozen network, as a data set"
DESCRIPTION = """Run a network over the images of a data set once, and keep what its
last layer sees. The file is a data set like any other:

  info-replay features --data CIFAR10 --model resnet18 --weights DEFAULT
  info-replay train --data FILE --network linear --tasks 5

A file that was made before from the same data, weights and choices is used again."""


@dataclass(frozen=True)
class FeatureSettings(Settings):
    """Every field is an option of ``info-replay features``."""

    data: str | None = option(
        None,
        "a folder of images, an .npz file, the name of a data set, or module:function",
    )
    data_dir: str | None = option(
        None, "folder of the data sets; CONTINUAL_ENVS_DATA or a cache without it"
    )
    model: str = option(
        "resnet18", "one of torchvision's classifiers or of yours, or module:function"
    )
    weights: str | None = option(
        None,
        "a file, or torchvision's name such as DEFAULT; untrained without",
    )
    layer: str | None = option(
        None, "whose output is the feature; what the last linear layer sees without"
    )
    image_size: int | None = option(
        None, "pixels to which images are resized; as the weights want without", min=1
    )
    batch_size: int = option(256, "images at a time", min=1)
    seed: int = option(0, "of the first weights", min=0, max=2**63 - 1)
    device: str = option(
        "auto", "cpu, cuda, ... or the best there is", check=check_device
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.usage = "%(prog)s --data DATA [OPTIONS]"
    parser.add_argument(
        "--out", metavar="FILE", help="(default: in the folder of the data sets)"
    )
    add_settings(parser, FeatureSettings)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from tqdm import tqdm

    from agents.supervised.assembly import find_data
    from agents.supervised.frozen_features import make_features

    try:
        chosen = FeatureSettings(**chosen_settings(options, FeatureSettings)).as_dict()
        data, data_dir = chosen.pop("data"), chosen.pop("data_dir")
        if data is None:
            raise ValueError("--data must be given")
        others = {} if data_dir is None else {"data_dir": data_dir}
        # Not shown before the first batch: an error may come first.
        with tqdm(desc=f"{data} {chosen['model']}", unit="batch", delay=0.1) as bar:

            def progress(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            path = make_features(
                find_data(data), out=options.out, progress=progress, **chosen, **others
            )
    except (ValueError, TypeError, OSError) as error:
        raise WrongOption(str(error)) from error
    print(path)
    return 0
