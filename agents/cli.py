"""The command line: ``info-replay train``, ``dqn`` and ``show``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from agents.options import (
    add_settings,
    chosen_settings,
    first_lines,
    format_lists,
)
from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import SHORT_NAMES
from agents.q_learning.errors import EngineError
from agents.q_learning.experiment import DQNExperiment
from agents.q_learning.show import draw_q_pictures, format_q_result, is_q_learning
from agents.runs.checkpoint import CheckpointError
from agents.runs.folder import RunError, RunFolder
from agents.supervised.config import NO_REPLAY, ExperimentConfig
from agents.supervised.experiment import Experiment
from agents.supervised.learner import DivergenceError
from agents.supervised.presets import PRESETS
from agents.supervised.show import draw_pictures, format_result
from continual_envs import BENCHMARKS, DatasetError
from info_replay.registry import CRITERIA, POLICIES

__all__ = ["main"]

_DESCRIPTION = """Learn from an online stream with a small memory that chooses what to
keep, and see what came out."""
_TRAIN = """Run DER++ on a stream. Settings that are not given are those of the preset
that goes with the stream's data set. The run's files go to a folder; a run that was
interrupted goes on with --resume, as if nothing had happened."""
_DQN = """Deep Q-learning with a memory that chooses what to keep, in any environment
of gymnasium with discrete actions and vectors or images to look at. The default is a
sequence of CartPole variants that come one after the other: what is not kept in memory
is forgotten. The run's files go to a folder."""
_SHOW = """Print the result of a run and draw its pictures (PNG) into its folder: the
accuracy (or return) of every task and what the memory holds along the run, and images
in memory at its end."""


class WrongOption(Exception):
    """Settings that cannot be run; any other error is one of the program."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: of the command line, by default those of the process.

    Returns:
        The exit status: 0 if all went well, 2 after a wrong option, 130 after Ctrl-C.
    """
    parser = _make_parser()
    options = parser.parse_args(arguments)
    # TorchRL tells of every storage that it makes, on the standard output.
    logging.getLogger("torchrl").setLevel(logging.WARNING)
    try:
        status: int = options.run(options)
        return status
    except (
        WrongOption,
        DatasetError,
        RunError,
        CheckpointError,
        DivergenceError,
        EngineError,
    ) as error:
        print(f"info-replay: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("info-replay: interrupted", file=sys.stderr)
        return 130


# -- options --------------------------------------------------------------------------


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="info-replay", description=_DESCRIPTION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    train = _add_run_command(commands, "train", "run a learner on a stream", _TRAIN)
    train.epilog = format_lists(
        {
            "streams": {
                name: f"{entry.dataset}, {'drifting' if entry.drifts else 'in tasks'}"
                for name, entry in BENCHMARKS.items()
            },
            "policies": {
                **first_lines(POLICIES),
                NO_REPLAY: "No replay.",
                "module:Name": "A policy of your own.",
            },
            "criteria": {
                **first_lines(CRITERIA),
                "module:Name": "A criterion of your own.",
            },
            "presets": {
                name: ", ".join(f"{k}={v}" for k, v in values.items()) or "as above"
                for name, values in PRESETS.items()
            },
        }
    )
    train.add_argument("--preset", metavar="NAME", help=f"one of {', '.join(PRESETS)}")
    train.add_argument(
        "--resume", action="store_true", help="continue the run in the folder"
    )
    add_settings(train, ExperimentConfig)
    train.set_defaults(run=_train)
    dqn = _add_run_command(commands, "dqn", "run Q-learning in an environment", _DQN)
    dqn.epilog = format_lists(
        {
            "environments": {
                **SHORT_NAMES,
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
    add_settings(dqn, DQNConfig)
    dqn.set_defaults(run=_dqn)
    show = commands.add_parser(
        "show", help="print and draw a run's results", description=_SHOW
    )
    show.add_argument("folder", metavar="RUN", help="folder of a finished run")
    show.set_defaults(run=_show)
    return parser


def _add_run_command(
    commands: Any, name: str, help: str, description: str
) -> argparse.ArgumentParser:
    """A command that makes a run in a folder."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="of the run (default: runs/ENV-POLICY-...)"
    )
    return parser


def _default_folder(env: str, *parts: str) -> Path:
    """A folder named after what a run is about."""
    name = "-".join([env, *parts])
    return Path("runs") / name.replace("/", "-").replace(":", "-")


# -- commands -------------------------------------------------------------------------


def _train(options: argparse.Namespace) -> int:
    chosen = chosen_settings(options, ExperimentConfig)
    env = chosen.pop("env", ExperimentConfig.env)
    try:
        config = ExperimentConfig.preset(env, options.preset, **chosen)
        parts = (config.policy, f"r{config.imbalance}", f"seed{config.seed}")
        folder = RunFolder(options.out or _default_folder(config.env, *parts))
        experiment = Experiment(config, folder, resume=options.resume)
    except (ValueError, OSError) as error:
        raise WrongOption(str(error)) from error
    print(f"run folder: {folder.path}", file=sys.stderr)
    if not folder.is_finished and (changed := folder.changed_versions()):
        print(
            f"warning: {', '.join(changed)}; the run goes on, but what comes out may "
            "differ from that of an uninterrupted one",
            file=sys.stderr,
        )
    regression = experiment.env.dataset.num_classes is None
    name = "score" if regression else "accuracy"
    with tqdm(
        total=experiment.num_steps,
        initial=experiment.step,
        desc=f"{config.env} {config.policy}",
        unit="step",
    ) as bar:

        def progress(step: int, steps: int, so_far: float, recent: float) -> None:
            text = f"{name} so far {so_far:.3f}, recent {recent:.3f}"
            bar.set_postfix_str(text, refresh=False)
            bar.update(step - bar.n)

        try:
            experiment.run(progress)
        except KeyboardInterrupt:
            bar.close()
            print(
                f"interrupted at step {experiment.step}; add --resume to go on",
                file=sys.stderr,
            )
            return 130
    print(format_result(folder))
    return 0


def _dqn(options: argparse.Namespace) -> int:
    try:
        config = DQNConfig(**chosen_settings(options, DQNConfig))
        parts = ("dqn", config.policy, f"seed{config.seed}")
        folder = RunFolder(options.out or _default_folder(config.env, *parts))
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

        experiment.run(progress)
    print(format_q_result(folder))
    return 0


def _show(options: argparse.Namespace) -> int:
    folder = RunFolder(options.folder)
    q_learning = is_q_learning(folder)
    try:
        print((format_q_result if q_learning else format_result)(folder))
        paths = (draw_q_pictures if q_learning else draw_pictures)(folder)
    except OSError as error:
        raise RunError(f"cannot draw into {folder.path} ({error})") from error
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        text = " ".join(str(error).split())
        raise RunError(
            f"the files in {folder.path} are not those of a run: {text}"
        ) from error
    for path in paths:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
