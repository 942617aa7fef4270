"""Try a part of the grid that looks good, with Optuna: :func:`tune_with_optuna`."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.runs.files import cut_file
from agents.runs.folder import RunError
from agents.sweeps.grid import Job
from agents.sweeps.local_pool import LocalPool
from agents.sweeps.sweep import Pool, run_sweep
from agents.sweeps.tuning import TuneReport, rows_by_key
from agents.sweeps.tuning_cases import Case, Setting
from agents.sweeps.tuning_choice import choose, lowest_score, validation_score
from agents.sweeps.tuning_file import TuningFolder
from agents.sweeps.worker import Failure

if TYPE_CHECKING:
    import optuna

__all__ = ["PRUNERS", "SAMPLERS", "tune_with_optuna"]

#: What proposes the next setting; ``"grid"`` takes them in order.
SAMPLERS = ("tpe", "random", "grid")
#: What stops a setting after a part of its seeds.
PRUNERS = ("median", "none")
# A sampler may propose a setting again, which would tell nothing new. After so many
# times, one that was not tried yet is taken at random.
_REPEATS = 20
# Settings that have all their seeds before any is stopped, and seeds that all have.
_FULL_TRIALS, _FULL_SEEDS = 5, 2
#: Told of the case, and how many of how many settings are over.
Progress = Callable[[Case, int, int], None]


def tune_with_optuna(
    cases: Sequence[Case],
    folder: str | Path,
    *,
    trials: int,
    sampler: str = "tpe",
    pruner: str = "median",
    command: str = "",
    workers: int | None = None,
    make_pool: Callable[[Path, int], Pool] = LocalPool,
    mixed: bool = False,
    progress: Progress | None = None,
) -> TuneReport:
    """Try some settings of the grid of every case, and choose the best.

    Each case has a study in ``optuna.journal``. After each seed of a setting, the mean
    so far is reported, and a setting that is worse than the median of the others is
    stopped. Runs are those of a sweep in the folder ``grid``, as of
    :func:`~agents.sweeps.tuning.tune`, and both may be used in the same folder.

    Args:
        cases: of :func:`~agents.sweeps.tuning_cases.make_cases`.
        folder: of the tuning; it is made if it is not there.
        trials: different settings to try for each case.
        sampler: one of :data:`SAMPLERS`.
        pruner: one of :data:`PRUNERS`.
        command: that is stored with the choices.
        workers: runs at the same time; by default one for each core.
        make_pool: makes what does them, once for all cases.
        mixed: whether results of other versions of the code count.
        progress: told of each setting that is over.

    Returns:
        What happened; a case with a run that failed has no choice.

    Raises:
        RunError: if the folder is that of another tuning, damaged or in use, or has
            results of another version; all results stay as they are then.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    files = TuningFolder(folder)
    count = workers or _cores()
    with files.opened(cases), contextlib.ExitStack() as stack:
        storage = _open_journal(files.journal)
        # Repairs the results of a killed process, and refuses those of other versions.
        run_sweep([], files.grid, mixed=mixed)
        pool = _Recorder(make_pool(files.grid, count), rows_by_key(files.grid))
        if isinstance(pool.inner, LocalPool):
            stack.callback(pool.inner.close)
        report = TuneReport()
        for case in cases:

            def told(done: int, total: int, case: Case = case) -> None:
                if progress is not None:
                    progress(case, done, total)

            search = _Search(case, storage, trials, sampler, pruner)
            failed = search.run(pool, files.grid, count, told, mixed=mixed)
            report.failed.update(failed)
            if not failed:
                rows = rows_by_key(files.grid)
                entry = choose(case, search.runs, rows, f"optuna ({sampler})")
                files.add_entries([entry], command)
                report.chosen.append(entry)
        return report


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _open_journal(path: Path) -> optuna.storages.JournalStorage:
    """Optuna's storage; the folder is ours alone.

    Raises:
        RunError: if the file is damaged.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    # A killed process may leave a part of a line, after which nothing could be
    # appended, and its lock.
    if path.exists():
        content = path.read_bytes()
        for number, line in enumerate(content.splitlines(keepends=True), 1):
            with contextlib.suppress(ValueError):
                if not line.endswith(b"\n") or isinstance(json.loads(line), dict):
                    continue
            raise RunError(
                f"{path} is damaged in line {number}: delete it; results of runs are "
                "in another file and are used again"
            )
        cut_file(path, content.rfind(b"\n") + 1)
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except (KeyError, ValueError, TypeError) as error:
        raise RunError(
            f"{path} is damaged ({error!r:.80}): delete it; results of runs are in "
            "another file and are used again"
        ) from error


class _Recorder:
    """A pool that remembers the results that it saw."""

    def __init__(self, inner: Pool, rows: dict[str, dict[str, Any]]) -> None:
        self.inner = inner
        self.rows = rows

    def run(
        self, jobs: Iterable[Job]
    ) -> Iterator[tuple[Job, dict[str, Any] | Failure]]:
        """Do all runs."""
        for job, answer in self.inner.run(jobs):
            if isinstance(answer, dict):
                self.rows[job.key] = answer
            yield job, answer


@dataclass
class _Trial:
    """A setting that is being tried."""

    trial: optuna.Trial
    setting: Setting
    jobs: list[Job]
    done: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def next_job(self) -> Job:
        return self.jobs[len(self.done)]


class _Search:
    """The study of one case."""

    def __init__(
        self,
        case: Case,
        storage: optuna.storages.JournalStorage,
        trials: int,
        sampler: str,
        pruner: str,
    ) -> None:
        import optuna

        self.case = case
        self.runs = case.runs()
        self.limit = min(trials, len(self.runs))
        self.sampler = sampler
        self.study = optuna.create_study(
            study_name=f"{case.stream} {case.policy} r{case.imbalance}",
            storage=storage,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(
                n_startup_trials=_FULL_TRIALS, n_warmup_steps=_FULL_SEEDS - 1
            )
            if pruner == "median"
            else optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        states = optuna.trial.TrialState
        self.over = {
            setting
            for each in self.study.get_trials(states=(states.COMPLETE, states.PRUNED))
            if (setting := self._setting(each.params)) is not None
        }
        self.broken: set[Setting] = set()  # a run of theirs failed
        self.active: list[_Trial] = []
        # Those that a killed process was at come first; their runs are not repeated.
        for each in self.study.get_trials(states=(states.RUNNING,)):
            self.study.tell(each.number, state=states.FAIL)
            if self._setting(each.params) is not None:
                self.study.enqueue_trial(each.params)

    def run(
        self,
        pool: _Recorder,
        folder: Path,
        width: int,
        told: Callable[[int, int], None],
        *,
        mixed: bool,
    ) -> dict[str, tuple[str, Path]]:
        """Try settings, ``width`` at a time, seed by seed.

        Returns:
            Reasons and logs of runs that failed.
        """
        import optuna

        failed: dict[str, tuple[str, Path]] = {}
        while True:
            told(len(self.over), self.limit)
            while len(self.active) < width and self._has_room():
                self.active.append(self._ask())
            if not self.active:
                return failed
            # Some may be known: of a killed process, or of the whole grid.
            if any([self._use_known(each, pool.rows) for each in [*self.active]]):
                continue
            jobs = [each.next_job for each in self.active]
            report = run_sweep(
                jobs,
                folder,
                workers=width,
                make_pool=lambda *_: pool,
                mixed=mixed,
            )
            failed.update(report.failed)
            for each in [*self.active]:
                if each.next_job.key in report.failed:
                    self.study.tell(each.trial, state=optuna.trial.TrialState.FAIL)
                    self.broken.add(each.setting)
                    self.active.remove(each)

    def _has_room(self) -> bool:
        begun = len(self.over) + len(self.broken) + len(self.active)
        return begun < self.limit

    def _use_known(self, each: _Trial, rows: Mapping[str, Mapping[str, Any]]) -> bool:
        """Report the results that are there; returns whether the trial is over."""
        import optuna

        while each.next_job.key in rows:
            each.done.append(rows[each.next_job.key])
            # Of all seen so far, not only its own: they are compared.
            floor = lowest_score(self._seen(rows))
            mean = sum(validation_score(row, floor) for row in each.done)
            mean /= len(each.done)
            each.trial.report(mean, len(each.done) - 1)
            if len(each.done) == len(each.jobs):
                self.study.tell(each.trial, mean)
            elif each.trial.should_prune():
                self.study.tell(each.trial, state=optuna.trial.TrialState.PRUNED)
            else:
                continue
            self.over.add(each.setting)
            self.active.remove(each)
            return True
        return False

    def _seen(self, rows: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        jobs = (job for its in self.runs.values() for job in its)
        return [rows[job.key] for job in jobs if job.key in rows]

    def _setting(self, params: Mapping[str, Any]) -> Setting | None:
        """The setting that a trial is about, if it is one of the grid."""
        setting = tuple((name, params.get(name)) for name in self.case.grid)
        return setting if setting in self.runs else None

    def _ask(self) -> _Trial:
        """A setting that was not tried yet."""
        import optuna

        states = optuna.trial.TrialState
        taken = self.over | self.broken | {each.setting for each in self.active}
        left = [setting for setting in self.runs if setting not in taken]
        for attempt in itertools.count():
            number = len(self.study.get_trials(deepcopy=False))
            # Anew each time: a study that goes on proposes what it would have.
            seed = random.Random(f"{self.study.study_name} {number}").getrandbits(31)
            self.study.sampler = (
                optuna.samplers.TPESampler(seed=seed)
                if self.sampler == "tpe"
                else optuna.samplers.RandomSampler(seed=seed)
            )
            waiting = self.study.get_trials(deepcopy=False, states=(states.WAITING,))
            if (self.sampler == "grid" or attempt >= _REPEATS) and not waiting:
                place = 0 if self.sampler == "grid" else seed % len(left)
                self.study.enqueue_trial(dict(left[place]))
            trial = self.study.ask()
            chosen = {
                name: trial.suggest_categorical(name, values)
                for name, values in self.case.grid.items()
            }
            setting = self._setting(chosen)
            if setting is not None and setting in left:
                return _Trial(trial, setting, self.runs[setting])
            trial.set_user_attr("repeats", True)
            self.study.tell(trial, state=states.FAIL)
        raise AssertionError  # attempts have no end
