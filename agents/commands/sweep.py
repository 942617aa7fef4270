"""``info-replay sweep``: many runs, from a grid of settings."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.commands.errors import WrongOption
from agents.options import add_values, chosen_settings
from agents.settings import check_choice
from agents.supervised.config import ExperimentConfig

if TYPE_CHECKING:
    from agents.sweeps import Job, SweepReport

__all__ = ["DESCRIPTION", "HELP", "add_options", "run"]

HELP = "do many runs, from a grid of settings, on all cores or on Ray"
DESCRIPTION = """Do a run for every combination of values, on all cores of this machine
or on a Ray cluster. Every option of 'info-replay train' is one here, with one value or
several: --policy rs,cbrs,infors --imbalance 1,10 --seed 0-9. A YAML file may say the
same, and give methods names of their own. Results are lines of FOLDER/results.jsonl;
what is there is not done again, so a sweep that was interrupted goes on with the same
command. agents.sweeps.load_results(FOLDER) is a pandas data frame."""
_ENGINES = ("local", "ray")
_PAPER = {
    path.stem: path
    for path in sorted((Path(__file__).parents[1] / "sweeps" / "paper").glob("*.yaml"))
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.usage = "%(prog)s [FILE] [OPTIONS]"
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="description of the sweep (YAML), or the name of one of the paper's: "
        f"{', '.join(_PAPER)}",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="of the sweep (default: sweeps/ and the name of the file or stream)",
    )
    parser.add_argument(
        "--engine", default="local", metavar="NAME", help="local or ray (local)"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="runs at a time (one for each core)"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the folder of each run, with its network and memory",
    )
    parser.add_argument(
        "--mixed",
        action="store_true",
        help="allow results of other versions of the code in the same folder",
    )
    parser.add_argument(
        "--tuned",
        metavar="FILE",
        help="settings of 'info-replay tune'; options that are given win",
    )
    grid = parser.add_argument_group("grid: values of the options of 'train'")
    add_values(grid, ExperimentConfig, metavar="VALUES")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    _find_file(options)
    try:
        check_choice("engine", options.engine, _ENGINES)
        if options.workers is not None and options.workers < 1:
            raise ValueError(f"workers must be at least 1, got {options.workers}")
        jobs = _jobs(options)
        folder = options.out or f"sweeps/{_name(options, jobs)}"
        _check_folder(folder)
    except (ValueError, TypeError, OSError) as error:
        raise WrongOption(str(error)) from error
    print(f"sweep folder: {folder}", file=sys.stderr)
    try:
        report = _run(jobs, folder, options)
    except KeyboardInterrupt:
        command = shlex.join(["info-replay", *sys.argv[1:]])
        print(f"interrupted; to go on: {command}", file=sys.stderr)
        raise
    for reason, log in report.failed.values():
        print(f"failed: {reason} ({log})", file=sys.stderr)
    print(f"{report.finished} of {report.total} runs finished: {folder}/results.jsonl")
    if report.finished:
        print(f"see it: {shlex.join(['info-replay', 'show', folder])}")
    return 1 if report.failed else 0


def _find_file(options: argparse.Namespace) -> None:
    """Take FILE of ``--validation FILE`` for the file: the option needs no value."""
    for field in dataclasses.fields(ExperimentConfig):
        value = getattr(options, field.name, None)
        if value is None or not str(field.type).startswith("bool"):
            continue
        if options.file is None and (
            value in _PAPER or Path(value).expanduser().is_file()
        ):
            options.file = value
            setattr(options, field.name, "true")


def _jobs(options: argparse.Namespace) -> list[Job]:
    """The runs; says which of them have no tuned settings though there is a file."""
    from agents.sweeps import make_jobs

    given = chosen_settings(options, ExperimentConfig)
    if options.file is None and not given:
        raise ValueError("give a file, or values of options: --policy rs,infors")
    description = {} if options.file is None else _read_description(options.file)
    if options.tuned is None:
        return make_jobs(description, given=given, tell=_tell)
    from agents.sweeps.tuning_file import load_tuned

    tuned = load_tuned(options.tuned)
    jobs = make_jobs(description, tuned, given=given, tell=_tell)
    configs = [job.config for job in jobs]
    keys = {(each.stream, each.policy, each.imbalance) for each in configs}
    if not keys & tuned.keys():
        known = "; ".join(f"{s}, {p}, imbalance {r}" for s, p, r in sorted(tuned))
        raise ValueError(
            f"{options.tuned} has no settings for this sweep, only for {known}"
        )
    for stream, policy, imbalance in sorted(keys - tuned.keys()):
        _tell(
            f"not tuned, so with its preset: {stream}, {policy}, imbalance {imbalance}"
        )
    return jobs


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _read_description(name: str) -> dict[str, Any]:
    """What a file says, or one of the paper's."""
    from agents.sweeps.values import did_you_mean
    from agents.sweeps.yaml_file import read_yaml

    path = _PAPER.get(name, Path(name).expanduser())
    if not path.exists():
        hint = did_you_mean(Path(name).stem, _PAPER)
        known = f"the paper's are {', '.join(_PAPER)}"
        raise ValueError(f"there is no file {name}; {known}{hint}")
    found = read_yaml(path)
    if not isinstance(found, dict):
        raise ValueError(f"{name} must have names and values, got {found!r:.80}")
    return found


def _check_folder(folder: str) -> None:
    """Refuse to add runs to those of a tuning."""
    from agents.sweeps.tuning_file import is_in_tuning

    if is_in_tuning(folder):
        raise ValueError(
            f"{folder} is in the folder of a tuning: give another one (--out)"
        )


def _name(options: argparse.Namespace, jobs: list[Job]) -> str:
    return Path(options.file).stem if options.file else jobs[0].config.stream


def _run(jobs: list[Job], folder: str, options: argparse.Namespace) -> SweepReport:
    from agents.sweeps.progress import run_with_progress

    make_pool: Any = None  # the cores of this machine
    if options.engine == "ray":
        from agents.sweeps.ray_pool import RayPool

        make_pool = RayPool
    return run_with_progress(
        jobs,
        folder,
        workers=options.workers,
        make_pool=make_pool,
        keep=options.keep,
        mixed=options.mixed,
    )
