"""The device and the threads that a run computes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["check_device", "choose_device", "prepare_machine"]


def choose_device(name: str) -> torch.device:
    """The device of that name; for ``"auto"`` CUDA if there is one."""
    import torch

    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def check_device(name: str) -> None:
    """Refuse a name that is not that of a device to compute on.

    Raises:
        ValueError: naming it.
    """
    import torch  # not before: settings with a check of it need no torch

    try:
        kind = torch.device("cpu" if name == "auto" else name).type
    except RuntimeError:
        kind = "meta"
    if kind == "meta":
        raise ValueError(
            f"device must be 'auto', 'cpu', 'cuda' or one of torch's, got {name!r}"
        )


def prepare_machine(device: str, threads: int | None) -> None:
    """Refuse a device that is not here, and limit the threads of this process.

    Args:
        device: name of the device.
        threads: at most so many; ``None`` for as many as there are.

    Raises:
        ValueError: naming the device.
    """
    import threadpoolctl
    import torch

    try:
        torch.empty(0, device=choose_device(device))
    except (RuntimeError, AssertionError):
        raise ValueError(
            f"device {device!r} is not available here; give 'cpu'"
        ) from None
    if threads is not None:
        torch.set_num_threads(threads)
        threadpoolctl.threadpool_limits(threads, user_api="blas")
