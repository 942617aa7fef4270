"""``info-replay list``: what can be chosen by name."""

from __future__ import annotations

import argparse

from agents.options import first_lines, format_lists

__all__ = ["DESCRIPTION", "HELP", "add_options", "run"]

HELP = "what can be chosen by name: streams, policies, networks, ..."
DESCRIPTION = """List what can be chosen by name, with one line each; what installed
packages add is there, too. Anything of your own is module:Name."""
_KINDS = (
    "streams",
    "data",
    "policies",
    "criteria",
    "networks",
    "learners",
    "metrics",
    "callbacks",
    "models",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "kinds",
        nargs="*",
        metavar="KIND",
        help=f"of {', '.join(_KINDS)} (default: all)",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from agents.commands.errors import WrongOption

    for kind in options.kinds:
        if kind not in _KINDS:
            raise WrongOption(f"KIND must be one of {', '.join(_KINDS)}, got {kind!r}")
    from agents.supervised.assembly import DATA
    from agents.supervised.callbacks import CALLBACKS
    from agents.supervised.evaluation import METRICS
    from agents.supervised.frozen_features import MODELS
    from agents.supervised.learner import LEARNERS
    from agents.supervised.networks import NETWORKS
    from continual_envs import BENCHMARKS, DATASETS
    from info_replay.registry import CRITERIA, POLICIES

    lists = {
        "streams": {
            name: ", ".join(
                [entry.dataset, *(f"{k}={v}" for k, v in entry.options.items())]
            )
            for name, entry in BENCHMARKS.items()
        },
        "data": {**first_lines(DATASETS), **first_lines(DATA)},
        "policies": first_lines(POLICIES),
        "criteria": first_lines(CRITERIA),
        "networks": first_lines(NETWORKS),
        "learners": first_lines(LEARNERS),
        "metrics": first_lines(METRICS),
        "callbacks": first_lines(CALLBACKS),
        "models": {**first_lines(MODELS), "...": "All classifiers of torchvision."},
    }
    own = {"module:Name": "Your own."}
    kinds = options.kinds or _KINDS
    print(format_lists({kind: {**lists[kind], **own} for kind in kinds}))
    return 0
