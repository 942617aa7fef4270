"""The command line: ``info-replay train``, ``dqn`` and ``show``."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from agents.checkpoint import CheckpointError
from agents.config import PRESETS, ExperimentConfig
from agents.derpp import DivergenceError
from agents.experiment import Experiment
from agents.q_learning.config import DQNConfig
from agents.q_learning.engine import EngineError
from agents.q_learning.environment import SHORT_NAMES
from agents.q_learning.experiment import DQNExperiment
from agents.q_learning.show import draw_q_pictures, format_q_result, is_q_learning
from agents.run_folder import RunError, RunFolder
from agents.show import draw_pictures, format_result
from continual_envs import BENCHMARKS, DatasetError

__all__ = ["main"]

_DESCRIPTION = """Learn from an online stream with a small memory that chooses what to
keep, and see what came out."""
_TRAIN = """Run DER++ on a stream. Settings that are not given are those of the paper
for the stream's data set. The run's files go to a folder; a run that was interrupted
goes on with --resume, as if nothing had happened."""
_DQN = """Deep Q-learning with a memory that chooses what to keep, in any environment
of gymnasium with discrete actions and vectors or images to look at. The default is a
sequence of CartPole variants that come one after the other: what is not kept in memory
is forgotten. The run's files go to a folder."""
_SHOW = """Print the result of a run and draw its pictures (PNG) into its folder: the
accuracy (or return) of every task and what the memory holds along the run, and images
in memory at its end."""


_POLICIES = """infors (what is informative, then at random), infogs (the most
informative), infogs-rs (both), rs (at random), wrs (at random, uncertain ones more
often), cbrs (each class alike), gss (gradients that disagree), fss-clust (features that
are far apart), coreset (what a model learns most from), none (no replay)"""


def _presets() -> str:
    """Every preset with what it changes, in one line."""
    return "; ".join(
        f"{name}: " + (", ".join(f"{k}={v}" for k, v in values.items()) or "as above")
        for name, values in PRESETS.items()
    )


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
        _WrongOption,
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


class _WrongOption(Exception):
    """Settings that make no run; anything else that goes wrong is a program error."""


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="info-replay", description=_DESCRIPTION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    train = commands.add_parser(
        "train",
        help="run a learner on a stream",
        description=_TRAIN,
        epilog=f"Streams: {', '.join(BENCHMARKS)}. Policies: {_POLICIES}. Unless "
        f"given, settings are those of the preset that goes with the stream's data "
        f"set: {_presets()}.",
    )
    train.add_argument("--preset", metavar="NAME", help=f"one of {', '.join(PRESETS)}")
    train.add_argument(
        "--out", metavar="FOLDER", help="of the run (default: runs/ENV-POLICY-...)"
    )
    train.add_argument(
        "--resume", action="store_true", help="continue the run in the folder"
    )
    _add_settings(train, ExperimentConfig)
    train.set_defaults(run=_train)
    dqn = commands.add_parser(
        "dqn",
        help="run Q-learning in an environment",
        description=_DQN,
        epilog=f"Environments: {', '.join(SHORT_NAMES)} or any id of gymnasium, "
        "module:id for one that a module registers. Policies: infors (what is "
        "informative, then at random), rs (at random), fifo (the most recent), "
        "prioritized (the most recent, sampled by error); with --recent a part of the "
        "memory of infors and rs is for the most recent.",
    )
    dqn.add_argument(
        "--out", metavar="FOLDER", help="of the run (default: runs/ENV-POLICY-...)"
    )
    _add_settings(dqn, DQNConfig)
    dqn.set_defaults(run=_dqn)
    show = commands.add_parser(
        "show", help="print and draw a run's results", description=_SHOW
    )
    show.add_argument("folder", metavar="RUN", help="folder of a finished run")
    show.set_defaults(run=_show)
    return parser


def _add_settings(parser: argparse.ArgumentParser, settings: type) -> None:
    """An option for every field of typed settings."""
    hints = typing.get_type_hints(settings)
    for field in dataclasses.fields(settings):
        text = field.metadata["help"]
        if field.default is not None:
            text = f"{text} ({field.default})"
        _add_option(parser, field.name, hints[field.name], text)


def _chosen(options: argparse.Namespace, settings: type) -> dict[str, Any]:
    """The settings that were given."""
    names = {field.name for field in dataclasses.fields(settings)}
    return {name: value for name, value in vars(options).items() if name in names}


def _add_option(
    parser: argparse.ArgumentParser, name: str, kind: Any, text: str
) -> None:
    """An option for a field of the settings; unless given, it is not there at all."""
    flag = f"--{name.replace('_', '-')}"
    if kind is bool:
        parser.add_argument(
            flag,
            action=argparse.BooleanOptionalAction,
            default=argparse.SUPPRESS,
            help=text,
        )
        return
    if isinstance(kind, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    parser.add_argument(
        flag,
        type=kind,
        default=argparse.SUPPRESS,
        metavar={int: "N", float: "X", str: "NAME"}[kind],
        help=text,
    )


def _train(options: argparse.Namespace) -> int:
    chosen = _chosen(options, ExperimentConfig)
    env = chosen.pop("env", ExperimentConfig.env)
    try:
        config = ExperimentConfig.preset(env, options.preset, **chosen)
        folder = RunFolder(options.out or default_folder(config))
        experiment = Experiment(config, folder, resume=options.resume)
    except (ValueError, OSError) as error:
        raise _WrongOption(str(error)) from error
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
        config = DQNConfig(**_chosen(options, DQNConfig))
        name = config.env.replace("/", "-").replace(":", "-")
        default = Path("runs") / f"{name}-dqn-{config.policy}-seed{config.seed}"
        folder = RunFolder(options.out or default)
        experiment = DQNExperiment(config, folder)
    except (ValueError, OSError) as error:
        raise _WrongOption(str(error)) from error
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


def default_folder(config: ExperimentConfig) -> Path:
    """A folder named after what a run is about."""
    name = f"{config.env}-{config.policy}-r{config.imbalance}-seed{config.seed}"
    return Path("runs") / name


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
