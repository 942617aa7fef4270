"""Small matrices on one thread: :data:`ONE_BLAS_THREAD`."""

from __future__ import annotations

import functools
import threading
from typing import Any

import threadpoolctl

__all__ = ["ONE_BLAS_THREAD"]


class _OneBlasThread:
    """While it is entered, NumPy and SciPy multiply and solve on one thread.

    At the sizes of a memory a second thread saves nothing and costs several times the
    whole: when it is done it waits actively, in the way of the threads with which torch
    trains the network. Only OpenBLAS is limited, which NumPy and SciPy ship.

    It can be entered several times and by several threads. Each restores what it found:
    OpenBLAS may ignore a thread that undoes what another one set. At worst, one thread
    computes on more threads after another has left.
    """

    def __init__(self) -> None:
        self._own = threading.local()

    def __enter__(self) -> None:
        """Remember the number of threads, then allow one."""
        entered = getattr(self._own, "entered", 0)
        if not entered:
            self._own.before = before = []
            for library in _blas_libraries():
                count = library.get_num_threads()
                if count != 1:
                    before.append((library, count))
                    library.set_num_threads(1)
        self._own.entered = entered + 1

    def __exit__(self, *_: object) -> None:
        """Allow as many threads as before."""
        self._own.entered -= 1
        if not self._own.entered:
            for library, count in self._own.before:
                library.set_num_threads(count)


@functools.cache
def _blas_libraries() -> list[Any]:
    """The OpenBLAS libraries of NumPy and SciPy."""
    controller = threadpoolctl.ThreadpoolController()
    return controller.select(internal_api="openblas").lib_controllers


#: For a ``with`` statement around many operations on small matrices.
ONE_BLAS_THREAD = _OneBlasThread()
