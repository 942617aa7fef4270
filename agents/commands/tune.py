"""``info-replay tune``: choose settings on held-out data, as the paper does."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.commands.errors import WrongOption
from agents.options import add_values
from agents.settings import check_choice
from agents.supervised.config import ExperimentConfig

if TYPE_CHECKING:
    from agents.sweeps import SweepReport
    from agents.sweeps.tuning import TuneReport
    from agents.sweeps.tuning_cases import Case

__all__ = ["DESCRIPTION", "HELP", "add_options", "run"]

HELP = "choose the settings of policies on held-out data, as the paper does"
DESCRIPTION = """Choose the settings of each policy at each imbalance: a tenth of the
training data is held out, every setting of the paper's grid learns from the rest with
five seeds, and the best has the best average on what was held out. With --test SEEDS,
the chosen settings then learn from the whole training set. Choices, and why, are in
FOLDER/tuned.json, for 'info-replay sweep --tuned FOLDER/tuned.json'. A tuning that was
interrupted goes on with the same command.

  info-replay tune --env SplitMNIST --policy rs,infors --imbalance 1,10 --test 0-9
  info-replay tune --policy infogs --method optuna --trials 30

Optuna tries a part of the grid that looks good, and stops bad settings early; it runs
on this machine only, not on Ray."""
_ENGINES, _METHODS = ("local", "ray"), ("grid", "optuna")
# Options of a tuning, or what it decides itself; "--test" means seeds here.
_NOT_FIXED = ("env", "data", "policy", "imbalance", "seed", "validation", "test")
_DEFAULT_TRIALS = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.usage = "%(prog)s [OPTIONS]"
    add = parser.add_argument
    add("--env", default=argparse.SUPPRESS, metavar="VALUES", help="benchmarks")
    add("--data", default=argparse.SUPPRESS, metavar="DATA", help="own data instead")
    add(
        "--test-data",
        default=argparse.SUPPRESS,
        metavar="DATA",
        help="own data to test on, as --test of 'train'",
    )
    add(
        "--policy",
        default="infors",
        metavar="VALUES",
        help="what to tune: rs,infors, say (infors)",
    )
    add("--imbalance", default="1", metavar="VALUES", help="1,3,10,30, say (1)")
    add("--seeds", default="100-104", metavar="VALUES", help="of tuning (100-104)")
    add("--test", metavar="SEEDS", help="then test the choices with these seeds: 0-9")
    add(
        "--grid",
        metavar="FILE",
        help="values by setting, or by policy and setting (YAML); or mnist or cifar10, "
        "a part of the paper's table (default: the part that the stream is in)",
    )
    add("--method", default="grid", metavar="NAME", help="grid or optuna (grid)")
    add(
        "--trials",
        type=int,
        metavar="N",
        help=f"different settings that Optuna tries ({_DEFAULT_TRIALS})",
    )
    add("--sampler", metavar="NAME", help="of Optuna: tpe, random or grid (tpe)")
    add("--pruner", metavar="NAME", help="of Optuna: median or none (median)")
    add(
        "--out",
        metavar="FOLDER",
        help="of the tuning (default: tuning/ and the name of the stream)",
    )
    add("--engine", default="local", metavar="NAME", help="local or ray (local)")
    add("--workers", type=int, metavar="N", help="runs at a time (one for each core)")
    add(
        "--mixed",
        action="store_true",
        help="allow results of other versions of the code in the same folder",
    )
    fixed = parser.add_argument_group("fixed: one value of an option of 'train'")
    add_values(fixed, ExperimentConfig, metavar="VALUE", without=_NOT_FIXED)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from agents.sweeps.tuning import check_test_seeds

    try:
        _check(options)
        cases, test_seeds = _cases(options)
    except (ValueError, TypeError, OSError) as error:
        raise WrongOption(str(error)) from error
    check_test_seeds(cases, test_seeds)
    streams = "-".join(dict.fromkeys(case.stream for case in cases))
    folder = options.out or f"tuning/{streams}"
    if options.engine == "ray" and not Path(folder).expanduser().exists():
        _pool(options)(Path(folder)).check()  # before a folder is made
    print(f"tuning folder: {folder}", file=sys.stderr)
    command = shlex.join(["info-replay", *sys.argv[1:]])
    try:
        report = _tune(cases, folder, options, command)
        _tell(report)
        if report.chosen:
            print(f"use them: {_sweep_command(cases, report, folder, test_seeds)}")
        failed = dict(report.failed)
        if test_seeds and report.chosen:
            tested = _test(cases, folder, test_seeds, options)
            failed.update(tested.failed)
            done = f"{tested.finished} of {tested.total} test runs finished"
            print(f"{done}: {folder}/test/results.jsonl")
            if tested.finished:
                show = shlex.join(["info-replay", "show", f"{folder}/test"])
                print(f"see it: {show}")
    except KeyboardInterrupt:
        print(f"interrupted; to go on: {command}", file=sys.stderr)
        raise
    for reason, log in failed.values():
        print(f"failed: {reason} ({log})", file=sys.stderr)
    return 1 if failed else 0


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    from agents.sweeps.tuning_optuna import PRUNERS, SAMPLERS

    check_choice("method", options.method, _METHODS)
    check_choice("engine", options.engine, _ENGINES)
    for name in ("workers", "trials"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    for name, choices in (("sampler", SAMPLERS), ("pruner", PRUNERS)):
        if getattr(options, name) is not None:
            check_choice(name, getattr(options, name), choices)
    if options.method == "grid":
        for name in ("trials", "sampler", "pruner"):
            if getattr(options, name) is not None:
                raise ValueError(f"{name} is an option of --method optuna")
    elif options.engine == "ray":
        raise ValueError("--method optuna runs on this machine only, got engine='ray'")
    else:
        import optuna  # noqa: F401  # raises before a folder is made


def _cases(options: argparse.Namespace) -> tuple[list[Case], list[int]]:
    """What is tuned, and the seeds of the test."""
    from agents.sweeps.tuning_cases import make_cases
    from agents.sweeps.tuning_grid import PAPER_GRIDS, read_grids
    from agents.sweeps.values import parse_values

    names = {field.name for field in dataclasses.fields(ExperimentConfig)} - {"test"}
    given = {name: value for name, value in vars(options).items() if name in names}
    if "test_data" in options:
        given["test"] = options.test_data
    grids: Any = options.grid
    if grids is not None and grids not in PAPER_GRIDS:
        grids = read_grids(grids)
    seeds = parse_values("seed", options.seeds)
    test_seeds = [] if options.test is None else parse_values("seed", options.test)
    return make_cases(given, seeds, grids), test_seeds


def _tune(
    cases: list[Case], folder: str, options: argparse.Namespace, command: str
) -> TuneReport:
    from tqdm import tqdm

    from agents.sweeps.progress import show_progress
    from agents.sweeps.tuning import tune
    from agents.sweeps.tuning_optuna import tune_with_optuna

    common: dict[str, Any] = {"command": command, "mixed": options.mixed}
    common["workers"] = options.workers
    if options.method == "grid":
        with show_progress() as progress:
            return tune(
                cases, folder, make_pool=_pool(options), progress=progress, **common
            )
    over: dict[Any, tuple[int, int]] = {}
    with tqdm(unit="setting", smoothing=0, delay=0.1) as bar:

        def told(case: Case, done: int, total: int) -> None:
            over[case.key] = done, total
            bar.total = len(cases) * total
            bar.set_postfix_str(str(case), refresh=False)
            bar.update(sum(each for each, _ in over.values()) - bar.n)

        return tune_with_optuna(
            cases,
            folder,
            trials=options.trials or _DEFAULT_TRIALS,
            sampler=options.sampler or "tpe",
            pruner=options.pruner or "median",
            progress=told,
            **common,
        )


def _test(
    cases: list[Case], folder: str, seeds: list[int], options: argparse.Namespace
) -> SweepReport:
    from agents.sweeps.progress import show_progress
    from agents.sweeps.tuning import run_tests

    with show_progress() as progress:
        return run_tests(
            cases,
            folder,
            seeds,
            workers=options.workers,
            make_pool=_pool(options),
            mixed=options.mixed,
            progress=progress,
        )


def _pool(options: argparse.Namespace) -> Any:
    if options.engine == "local":
        return None
    from agents.sweeps.ray_pool import RayPool

    return RayPool


def _tell(report: TuneReport) -> None:
    for entry in report.chosen:
        settings = " ".join(f"{k}={v}" for k, v in entry["settings"].items())
        tried = f"{entry['settings_tried']} of {entry['settings_in_grid']} settings"
        print(
            f"{entry['stream']}, {entry['policy']}, imbalance {entry['imbalance']}: "
            f"{entry['mean']:.4f} ± {entry['standard_error']:.4f} ({tried}): {settings}"
        )
    if not report.chosen:
        print("no setting was chosen: runs failed", file=sys.stderr)


def _sweep_command(
    cases: list[Case], report: TuneReport, folder: str, test_seeds: list[int]
) -> str:
    """The sweep that has the chosen settings, with seeds that are not the tuning's."""
    chosen = {(e["stream"], e["policy"], e["imbalance"]): e for e in report.chosen}
    used = [case for case in cases if case.key in chosen]
    case, known = used[0], chosen[used[0].key]["fixed"]
    first = 0 if min(case.seeds) > 9 else max(case.seeds) + 1
    options = {
        case.source[0]: _joined(each.source[1] for each in used),
        "policy": _joined(each.policy for each in used),
        "imbalance": _joined(each.imbalance for each in used),
        "seed": _joined(test_seeds) or f"{first}-{first + 9}",
        # What the file does not say: where to compute, say.
        **{k: str(v) for k, v in case.fixed.items() if k not in known},
        "tuned": f"{folder}/tuned.json",
    }
    words = ["info-replay", "sweep"]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", value]
    return shlex.join(words)


def _joined(values: Iterable[object]) -> str:
    return ",".join(dict.fromkeys(map(str, values)))
