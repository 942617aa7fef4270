"""``info-replay train``: run a learner on a stream."""

from __future__ import annotations

import argparse
import hashlib
import os
from typing import TYPE_CHECKING, Any

from agents.commands.run_folder import (
    add_folder_options,
    resumed_folder,
    run_in_folder,
)
from agents.options import add_settings, chosen_settings, format_lists
from agents.settings import check_choice
from agents.supervised.config import ExperimentConfig
from agents.supervised.presets import OF_POLICY, PRESETS, preset_settings

if TYPE_CHECKING:
    from agents.runs.folder import RunFolder
    from agents.supervised.experiment import Experiment

__all__ = ["DESCRIPTION", "HELP", "add_options", "run"]

HELP = "run a learner on a stream, of a benchmark or of your own data"
DESCRIPTION = """Run a learner on a stream: a benchmark (--env), or your own data
(--data). Settings that are not given are those of the preset that goes with the data.
The run's files go to a folder; a run that was interrupted goes on with --resume FOLDER,
as if nothing had happened. 'info-replay list' tells more about streams, policies,
criteria, networks and learners, those of other packages included."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.usage = "%(prog)s [OPTIONS]"
    parser.epilog = format_lists(
        {
            "presets": {name: _words(values) for name, values in PRESETS.items()},
            **{
                f"with preset {name}": {each: _words(own) for each, own in more.items()}
                for name, more in OF_POLICY.items()
            },
        }
    )
    add_folder_options(parser)
    parser.add_argument("--preset", metavar="NAME", help=f"one of {', '.join(PRESETS)}")
    add_settings(parser, ExperimentConfig)


def _words(settings: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in settings.items()) or "as above"


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from agents.supervised.experiment import Experiment
    from agents.supervised.show import format_result

    def make() -> Experiment:
        return Experiment(*_settings(options), resume=options.resume is not None)

    return run_in_folder("train", make, _run_with_progress, format_result)


def _settings(options: argparse.Namespace) -> tuple[ExperimentConfig, RunFolder]:
    """The settings of the run, and its folder."""
    from agents.runs.folder import RunFolder, default_folder
    from agents.supervised.assembly import absolute_data

    chosen = chosen_settings(options, ExperimentConfig)
    for name in ("data", "test"):
        if name in chosen:
            # A run can be resumed from another folder than it was started in.
            chosen[name] = absolute_data(chosen[name])
    if (folder := resumed_folder(options)) is not None:
        return _resumed(folder, options.preset, chosen)
    env = chosen.pop("env", None)
    config = ExperimentConfig.preset(env, options.preset, **chosen)
    if options.out is not None:
        return config, RunFolder(options.out)
    usual = ExperimentConfig.preset(config.env, data=config.data, policy=config.policy)
    named = {
        "policy": config.policy,
        "imbalance": f"r{config.imbalance}",
        "seed": f"seed{config.seed}",
    }
    named = {"env": _stream_name(config), "data": "", "test": "", **named}
    return config, RunFolder(default_folder(config, usual, named))


def _stream_name(config: ExperimentConfig) -> str:
    """What a folder is called after: the benchmark or the data."""
    if config.data is None:
        return str(config.env)
    if not os.path.isabs(config.data) and config.test is None:
        return config.data
    # A file; others may have the same name.
    told = f"{config.data} {config.test}"
    digest = hashlib.sha256(told.encode()).hexdigest()[:6]
    return f"{config.stream}-{digest}"


def _resumed(
    folder: RunFolder, preset: str | None, chosen: dict[str, Any]
) -> tuple[ExperimentConfig, RunFolder]:
    """The settings of a run that goes on; those given again must be the same."""
    saved = folder.config(ExperimentConfig).as_dict()
    if preset is not None:
        check_choice("preset", preset, PRESETS)
        chosen = {**preset_settings(preset, saved["policy"]), **chosen}
    for name in ("env", "data"):
        if name in chosen and chosen[name] != saved[name]:
            raise ValueError(
                f"cannot resume a run with {name}={saved[name]!r} as one with "
                f"{name}={chosen[name]!r}"
            )
    return ExperimentConfig(**{**saved, **chosen}), folder


def _run_with_progress(experiment: Experiment, tqdm: Any) -> None:
    config = experiment.config
    regression = experiment.env.dataset.num_classes is None
    name = "score" if regression else "accuracy"
    with tqdm(
        total=experiment.num_steps,
        initial=experiment.step,
        desc=f"{config.stream} {config.policy}",
        unit="step",
    ) as bar:

        def progress(
            step: int, steps: int | None, so_far: float, recent: float
        ) -> None:
            text = f"{name} so far {so_far:.3f}, recent {recent:.3f}"
            bar.set_postfix_str(text, refresh=False)
            bar.update(step - bar.n)

        experiment.run(progress)
