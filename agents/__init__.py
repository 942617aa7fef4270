"""Who learns from a stream and a memory.

A run on anything is one call, ``agents.train(data, ...)``, and what it leaves is read
by ``agents.load_run(folder)``.

* :mod:`agents.supervised`: learners on streams of labeled samples;
* :mod:`agents.q_learning`: deep Q-learning in environments;
* :mod:`agents.sweeps`: many runs as one, and :mod:`agents.report`, a page of them;
* :mod:`agents.runs`: what every run needs: its folder, checkpoints, Ctrl-C, pictures;
* :mod:`agents.settings`: typed settings;
* :mod:`agents.cli`: the command line, which begins in :mod:`agents.entry`; its commands
  are in :mod:`agents.commands`;
* :mod:`agents.demo`: the demonstration.

The other modules (``config``, ``derpp``, ``dqn``, ``experiment``, ``gradients``,
``networks``, ``samplers``) are old places of names that have moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.lazy import lazy_names

if TYPE_CHECKING:
    from agents.supervised.callbacks import Callback
    from agents.supervised.feature_network import FeatureNetwork
    from agents.supervised.frozen_features import make_features
    from agents.supervised.saved_run import load_run
    from agents.supervised.train import train

__all__ = ["Callback", "FeatureNetwork", "load_run", "make_features", "train"]

__getattr__ = lazy_names(
    __name__,
    {
        "Callback": "agents.supervised.callbacks",
        "FeatureNetwork": "agents.supervised.feature_network",
        "load_run": "agents.supervised.saved_run",
        "make_features": "agents.supervised.frozen_features",
        "train": "agents.supervised.train",
    },
)
