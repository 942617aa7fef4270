"""``info-replay dqn``: deep Q-learning in an environment."""

from __future__ import annotations

import argparse
import sys

from agents.commands.errors import WrongOption
from agents.options import add_settings, chosen_settings, format_lists
from agents.q_learning.config import DQNConfig

__all__ = ["DESCRIPTION", "HELP", "add_options", "run"]

HELP = "run Q-learning in an environment"
DESCRIPTION = """Deep Q-learning with a memory that chooses what to keep, in any
environment of gymnasium with discrete actions and vectors or images to look at. The
default is a sequence of CartPole variants that come one after the other: what is not
kept in memory is forgotten. The run's files go to a folder."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.usage = "%(prog)s [OPTIONS]"
    parser.epilog = format_lists(
        {
            "environments": {
                "ContinualCartPole": "variants of CartPole with other inputs",
                "ContinualCartPolePhysics": "variants of CartPole with other physics",
                "ID": "any other id of gymnasium",
                "module:ID": "one that a module registers",
            },
            "policies": {
                "infors": "what is informative, then at random",
                "rs": "at random",
                "fifo": "the most recent",
                "prioritized": "the most recent, sampled by error",
                "module:Name": "a policy of your own",
            },
        }
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="of the run (default: runs/ and a name made of the settings)",
    )
    add_settings(parser, DQNConfig)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from tqdm import tqdm

    from agents.q_learning.experiment import DQNExperiment
    from agents.q_learning.show import format_q_result
    from agents.runs.folder import RunFolder, default_folder
    from agents.runs.interrupts import Interrupted

    try:
        config = DQNConfig(**chosen_settings(options, DQNConfig))
        named = {"policy": config.policy, "seed": f"seed{config.seed}"}
        named = {"env": config.env, "": "dqn", **named}
        folder = RunFolder(options.out or default_folder(config, DQNConfig(), named))
        experiment = DQNExperiment(config, folder)
    except (ValueError, OSError) as error:
        raise WrongOption(str(error)) from error
    print(f"run folder: {folder.path}", file=sys.stderr)
    with tqdm(
        total=experiment.num_frames, desc=f"{config.env} {config.policy}", unit="frame"
    ) as bar:

        def progress(frames: int, total: int, returns: list[float]) -> None:
            text = " ".join(f"{value:.0f}" for value in returns)
            bar.set_postfix_str(f"returns {text or '-'}", refresh=False)
            bar.update(min(frames, total) - bar.n)

        try:
            experiment.run(progress)
        except Interrupted as interrupt:
            bar.close()
            print("info-replay: interrupted", file=sys.stderr)
            return 128 + interrupt.number
    print(format_q_result(folder))
    return 0
