"""Torch's global random numbers, borrowed: :class:`OwnRandomness`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

__all__ = ["OwnRandomness", "drawing_from"]


class OwnRandomness:
    """Random numbers of its own for code that asks torch's global generators.

    Layers such as dropout take no generator. What runs :meth:`inside` finds the global
    ones (of the host, and of a CUDA device) as this object left them last, and leaves
    no trace in them.

    Args:
        seed: of the random numbers.
        device: where the code computes.
        repeats: whether each block finds the same numbers again.

    Example:
        >>> one, two = (OwnRandomness(0, torch.device("cpu")) for _ in range(2))
        >>> with one.inside():
        ...     first = torch.rand(3)
        >>> with two.inside():
        ...     again = torch.rand(3)
        >>> with two.inside():
        ...     following = torch.rand(3)
        >>> torch.equal(first, again), torch.equal(first, following)
        (True, False)
    """

    def __init__(
        self, seed: int, device: torch.device, *, repeats: bool = False
    ) -> None:
        self._repeats = repeats
        self._devices = [device] if device.type == "cuda" else []
        self._states = [
            torch.Generator(each).manual_seed(seed).get_state()
            for each in (torch.device("cpu"), *self._devices)
        ]

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Where the global generators are this object's."""
        with torch.random.fork_rng(devices=self._devices):
            torch.set_rng_state(self._states[0])
            for device, state in zip(self._devices, self._states[1:], strict=True):
                torch.cuda.set_rng_state(state, device)
            yield
            if self._repeats:
                return
            self._states = [torch.get_rng_state()]
            self._states += [torch.cuda.get_rng_state(each) for each in self._devices]

    def state_dict(self) -> dict[str, Tensor]:
        """Where it is."""
        return dict(zip(("cpu", "cuda"), self._states, strict=False))

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:
        """Go on from a :meth:`state_dict`.

        A state from another kind of device has no part for this one, which then goes on
        from where it is: random numbers differ between devices anyway.
        """
        states = [state_dict["cpu"], *self._states[1:]]
        if self._devices and "cuda" in state_dict:
            states[1] = state_dict["cuda"]
        self._states = [state.cpu() for state in states]


def drawing_from(randomness: OwnRandomness | None) -> AbstractContextManager[None]:
    """Inside of random numbers, or with torch's own if there are none."""
    return nullcontext() if randomness is None else randomness.inside()
