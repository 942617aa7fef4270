"""Errors that are told in one line: :class:`WrongOption`, :func:`missing_extra`."""

from __future__ import annotations

__all__ = ["WrongOption", "is_users", "missing_extra"]

#: Packages that the core does not install, and the extra that does.
_EXTRAS = {
    **dict.fromkeys(["gymnasium", "sklearn", "PIL", "torchvision"], "train"),
    **dict.fromkeys(["filelock", "tqdm", "matplotlib", "tensorboard"], "train"),
    "ray": "ray",
    "optuna": "tune",
}


class WrongOption(Exception):
    """Settings that cannot be run; any other error is one of the program."""


def is_users(error: BaseException) -> bool:
    """Whether an error is to be told in one line, without a traceback.

    Args:
        error: that ended a command.
    """
    if isinstance(error, WrongOption):
        return True
    # Imported already if the error is one of them.
    from agents.runs.checkpoint import CheckpointError
    from agents.runs.divergence import DivergenceError
    from agents.runs.errors import EngineError
    from agents.runs.folder import RunError
    from agents.supervised.evaluation import MetricError
    from continual_envs import DatasetError

    of_files = (DatasetError, RunError, CheckpointError)
    return isinstance(error, (*of_files, DivergenceError, EngineError, MetricError))


def missing_extra(error: BaseException) -> WrongOption | None:
    """The line for a package that is not installed, if that is what an error is about.

    Args:
        error: that ended a command.

    Example:
        >>> print(missing_extra(ModuleNotFoundError(name="tqdm")))
        this needs tqdm, which is not installed: pip install 'info-replay[train]'
    """
    cause: BaseException | None = error
    while cause is not None:
        name = getattr(cause, "name", None) if isinstance(cause, ImportError) else None
        package = (name or "").partition(".")[0]
        if package in _EXTRAS:
            return WrongOption(
                f"this needs {package}, which is not installed: pip install "
                f"'info-replay[{_EXTRAS[package]}]'"
            )
        cause = cause.__cause__
    return None
