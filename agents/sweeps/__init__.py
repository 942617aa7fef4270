"""Many runs as one: grids of settings, runs on all cores or a cluster, and one table.

* :mod:`agents.sweeps.grid`: from a description to runs;
* :mod:`agents.sweeps.sweep`: doing each of them once;
* :mod:`agents.sweeps.results`: the table.
"""

from __future__ import annotations

from agents.sweeps.grid import Job, make_jobs
from agents.sweeps.results import load_results
from agents.sweeps.sweep import SweepReport, run_sweep

__all__ = ["Job", "SweepReport", "load_results", "make_jobs", "run_sweep"]
