"""``info-replay dqn``: deep Q-learning in an environment."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from agents.commands.run_folder import (
    add_folder_options,
    resumed_folder,
    run_in_folder,
)
from agents.options import add_settings, chosen_settings, format_lists
from agents.q_learning.config import DQNConfig

if TYPE_CHECKING:
    from agents.q_learning.experiment import DQNExperiment
    from agents.runs.folder import RunFolder

__all__ = ["DESCRIPTION", "HELP", "add_options", "run"]

HELP = "run Q-learning in an environment"
DESCRIPTION = """Deep Q-learning with a memory that chooses what to keep, in any
environment of gymnasium with discrete actions and vectors or images to look at. The
default is a sequence of CartPole variants that come one after the other: what is not
kept in memory is forgotten. The run's files go to a folder; a run that was interrupted
goes on with --resume FOLDER."""


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
    add_folder_options(parser)
    add_settings(parser, DQNConfig)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from agents.q_learning.experiment import DQNExperiment
    from agents.q_learning.show import format_q_result

    def make() -> DQNExperiment:
        return DQNExperiment(*_settings(options), resume=options.resume is not None)

    return run_in_folder("dqn", make, _run_with_progress, format_q_result)


def _settings(options: argparse.Namespace) -> tuple[DQNConfig, RunFolder]:
    """The settings of the run, and its folder."""
    from agents.runs.folder import RunFolder, default_folder

    chosen = chosen_settings(options, DQNConfig)
    if (folder := resumed_folder(options)) is not None:
        return DQNConfig(**{**folder.config(DQNConfig).as_dict(), **chosen}), folder
    config = DQNConfig(**chosen)
    if options.out is not None:
        return config, RunFolder(options.out)
    named = {"policy": config.policy, "seed": f"seed{config.seed}"}
    named = {"env": config.env, "": "dqn", **named}
    return config, RunFolder(default_folder(config, DQNConfig(), named))


def _run_with_progress(experiment: DQNExperiment, tqdm: Any) -> None:
    config = experiment.config
    with tqdm(
        total=experiment.num_frames,
        initial=experiment.frame,
        desc=f"{config.env} {config.policy}",
        unit="frame",
    ) as bar:

        def progress(frames: int, total: int, returns: list[float]) -> None:
            text = " ".join(f"{value:.0f}" for value in returns)
            bar.set_postfix_str(f"returns {text or '-'}", refresh=False)
            bar.update(min(frames, total) - bar.n)

        experiment.run(progress)
