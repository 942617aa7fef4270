"""What a Bayesian linear model remembers of its rows, in the cheaper of two forms.

* :class:`PrimalStatistics` keeps ``H^T H`` and ``H^T Y``: ``O(d^2 + dK)``, whatever the
  number of rows.
* :class:`KernelStatistics` keeps the rows and ``H H^T``: cheaper where there are fewer
  rows than features.

A row is ``[h, y]``, features and targets side by side, shape ``(d + K,)``.

Both answer through a **representation**: vectors ``x(h)`` in a space with a diagonal
metric in which ``h^T A^-1 h' = <x(h), x(h')>`` and ``h^T A^-1 b = <x(h), mean>`` for
``A = H^T H + cI``, ``b = H^T Y``. Code that uses them need not know the form.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from info_replay.model.linear_algebra import (
    Matrix,
    alike,
    as_array,
    cholesky,
    native,
    on_host,
    plain,
    products,
    solve_lower,
    solve_lower_rows,
)
from info_replay.shared_state import SharedArray

__all__ = ["KernelStatistics", "PrimalStatistics", "Rows", "Statistics"]

#: A tensor or, on the host, an array.
Rows = Tensor | NDArray[Any]

_ARRAY_TYPE = {torch.float32: np.float32, torch.float64: np.float64}


class Statistics(abc.ABC):
    """Sufficient statistics of features ``H`` and targets ``Y``.

    ``feature_dim`` is ``d``, the constant 1 included, ``target_dim`` is ``K``,
    ``jitter`` is ``c``, and ``max_rows`` the most rows that the kernel form holds.
    """

    #: The tensor whose last columns are linear in the targets.
    with_targets_in: str
    #: Representation ``(D, K)`` of the posterior mean of the weights, as of the last
    #: call of :meth:`represent`; an array on the host.
    mean: Any

    def __init__(
        self,
        feature_dim: int,
        target_dim: int,
        jitter: float,
        max_rows: int | None,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.feature_dim = feature_dim
        self.target_dim = target_dim
        self.jitter = jitter
        self.dtype = dtype
        self.device = device
        # Moves with each change, also with one that another process makes.
        self._revision = SharedArray(1, np.int64)
        self._factor_revision = -1
        self._factor: Any  # a matrix of the kind that is native to the device
        self.metric: Tensor | None = None
        # The device alone does not tell of fake tensors.
        self._on_host = on_host(torch.empty(0, device=device))
        self._allocate(max_rows)

    @abc.abstractmethod
    def _allocate(self, max_rows: int | None) -> None:
        """Make the tensors of no rows."""

    @abc.abstractmethod
    def replace(
        self, old: Rows | None, new: Rows | None, places: slice | Tensor | None
    ) -> None:
        """Take ``old`` rows ``(n, d + K)`` out and put ``new`` ones in.

        ``places`` are the numbers of these rows, if the caller numbers them.
        """

    @abc.abstractmethod
    def clear(self) -> None:
        """Forget every row."""

    def restart(self, rows: Rows) -> None:
        """Forget every row, then take these, numbered from 0."""
        self.clear()
        self.replace(None, rows, slice(0, len(rows)))

    def rebuild(
        self,
        features: Tensor,
        targets: Tensor,
        encode: Callable[[Tensor], Rows] | None = None,
    ) -> None:
        """:meth:`restart` from features and targets, joined in blocks to save memory.

        ``encode`` is applied to each block of targets, one-hot encoding for example.
        """
        block, count = max(256, self.feature_dim - 1), len(features)
        if not count:
            self.clear()
        for start in range(0, count, block):
            part = slice(start, min(start + block, count))
            encoded = targets[part] if encode is None else encode(targets[part])
            rows = self.join(features[part], encoded)
            if start:
                self.replace(None, rows, part)
            else:
                self.restart(rows)

    @abc.abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that are the state; each is also an attribute ``_name``."""

    @abc.abstractmethod
    def _factorize(self) -> None:
        """Set the factor and the mean.

        The mean has a solve of its own: solved together with the features, its last
        bits would depend on them.
        """

    @abc.abstractmethod
    def _represent(self, features: Matrix) -> Matrix:
        """Representations of features, given the factor."""

    def join(self, features: Tensor, targets: Rows | None = None) -> Any:
        """Rows ``[h0, 1, y]`` or ``[h0, 1]``: an array on the host, else a tensor.

        Raises:
            ValueError: unless the shapes are ``(n, d - 1)`` and ``(n, K)``.
        """
        width = self.feature_dim - 1
        if features.ndim != 2 or features.shape[1] != width:
            raise ValueError(
                f"features must have the shape (n, {width}), got "
                f"{tuple(features.shape)}"
            )
        count, outputs = features.shape[0], 0
        if targets is not None:
            outputs = self.target_dim
            if targets.ndim == 1 and outputs == 1:
                targets = targets[:, None]
            if targets.shape != (count, outputs):
                raise ValueError(
                    f"targets must have the shape {(count, outputs)}, got "
                    f"{tuple(targets.shape)}"
                )
        shape = (count, width + 1 + outputs)
        features = plain(features, self.device)
        if isinstance(targets, Tensor):
            targets = plain(targets, self.device)
        rows: Any
        if self._on_host:
            rows = np.empty(shape, _ARRAY_TYPE[self.dtype])
            rows[:, :width] = as_array(features)
            if isinstance(targets, Tensor):
                targets = as_array(targets)
        else:
            rows = torch.empty(shape, dtype=self.dtype, device=self.device)
            rows[:, :width] = features
        rows[:, width] = 1
        if targets is not None:
            rows[:, width + 1 :] = targets
        return rows

    def represent(self, features: Matrix) -> Matrix:
        """Representations ``(n, D)`` of features ``(n, d)``, of the same kind."""
        revision = int(self._revision.array[0])
        if self._factor_revision != revision:
            self._factorize()
            self._factor_revision = revision
        return self._represent(features)

    def lower(self, representations: Matrix) -> Matrix:
        """Apply the metric, so that inner products become plain matrix products."""
        if self.metric is None:
            return representations
        return representations * alike(self.metric, representations)

    def _changed(self) -> None:
        self._revision.array[0] += 1

    def share_memory_(self) -> None:
        """Move the state to memory that child processes share."""
        self._revision.share_memory_()
        for tensor in self.tensors().values():
            tensor.share_memory_()

    def clone(self) -> Statistics:
        """An independent copy, on the same device."""
        twin = copy.copy(self)
        vars(twin)["_revision"] = copy.deepcopy(self._revision)
        for name, tensor in self.tensors().items():
            vars(twin)[f"_{name}"] = tensor.clone()
        return twin

    def with_targets(self, matrix: Tensor) -> Statistics:
        """A copy of the same features with targets ``Y T``, ``T`` being ``(K, L)``."""
        twin = self.clone()
        width = self.feature_dim
        twin.target_dim = matrix.shape[1]
        name = twin.with_targets_in
        rows = vars(twin)[name]
        vars(twin)[name] = torch.cat([rows[:, :width], rows[:, width:] @ matrix], 1)
        twin._changed()
        return twin

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Copy state in."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        self._changed()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the factor out: a copy derives the same one."""
        state = self.__dict__.copy()
        for name in ("_factor", "mean"):
            state.pop(name, None)
        state["_factor_revision"] = -1
        return state


class PrimalStatistics(Statistics):
    """``A = H^T H + cI`` and ``b = H^T Y``; rows are added and subtracted, not kept."""

    with_targets_in = "_moments"

    def _allocate(self, max_rows: int | None) -> None:
        # One matrix [A, b], so that one product updates both. Of A only the upper
        # triangle counts.
        shape = self.feature_dim, self.feature_dim + self.target_dim
        self._moments = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self._moments.diagonal().fill_(self.jitter)

    def replace(
        self, old: Rows | None, new: Rows | None, places: slice | Tensor | None
    ) -> None:
        """Subtract the products of the old rows and add those of the new ones."""
        width = self.feature_dim
        old = None if old is None else torch.as_tensor(old)
        new = None if new is None else torch.as_tensor(new)
        if old is not None and new is not None:
            # One product for both: the matrix is passed over once.
            left = torch.cat([new[:, :width], old[:, :width].neg()])
            self._moments.addmm_(left.T, torch.cat([new, old]))
        elif new is not None:
            self._moments.addmm_(new[:, :width].T, new)
        elif old is not None:
            self._moments.addmm_(old[:, :width].T, old, alpha=-1)
        self._changed()

    def clear(self) -> None:
        """Forget every row."""
        self._moments.zero_().diagonal().fill_(self.jitter)
        self._changed()

    def restart(self, rows: Rows) -> None:
        """Forget every row, then take these."""
        width = self.feature_dim + self.target_dim
        if rows.shape[1] != width:
            raise ValueError(f"rows must be {width} wide, got {rows.shape[1]}")
        matrix = native(rows) if isinstance(rows, Tensor) else rows
        fresh = torch.as_tensor(products(matrix, self.jitter, self.feature_dim))
        if self._moments.is_shared():
            self._moments.copy_(fresh)
        else:
            self._moments = fresh
        self._changed()

    def tensors(self) -> dict[str, Tensor]:
        """``A`` and ``b``, side by side."""
        return {"moments": self._moments}

    def _factorize(self) -> None:
        moments: Any = self._moments.numpy() if self._on_host else self._moments
        self._factor = cholesky(moments[:, : self.feature_dim])
        self.mean = solve_lower(self._factor, moments[:, self.feature_dim :])

    def _represent(self, features: Matrix) -> Matrix:
        return solve_lower_rows(self._factor, features)


class KernelStatistics(Statistics):
    """The rows themselves, at most ``max_rows``, and their products ``H H^T``.

    A row that is not in use is zero, which changes no answer.
    """

    with_targets_in = "_rows"

    def _allocate(self, max_rows: int | None) -> None:
        assert max_rows is not None
        kind: Any = {"dtype": self.dtype, "device": self.device}
        width = self.feature_dim
        self._rows = torch.zeros(max_rows, width + self.target_dim, **kind)
        self._products = torch.zeros(max_rows, max_rows, **kind)
        self.metric = torch.full((width + max_rows,), 1 / self.jitter, **kind)
        self.metric[width:].neg_()
        # Which rows are in use, for callers that do not number rows themselves.
        self._used = torch.zeros(max_rows, dtype=torch.bool, device=self.device)

    def replace(
        self, old: Rows | None, new: Rows | None, places: slice | Tensor | None
    ) -> None:
        """Write rows and renew their products with all others."""
        old = None if old is None else torch.as_tensor(old)
        new = None if new is None else torch.as_tensor(new)
        if places is None:
            if old is not None and len(old):
                self._put(self._find(old), None)
            if new is not None and len(new):
                self._put(self._free(len(new)), new)
        else:
            self._put(places, new)

    def _put(self, places: slice | Tensor, new: Tensor | None) -> None:
        self._rows[places] = 0 if new is None else new
        self._used[places] = new is not None
        features = self._features
        products = features[places] @ features.T
        self._products[places] = products
        self._products[:, places] = products.T
        self._changed()

    def _free(self, count: int) -> Tensor:
        places = (~self._used).nonzero().flatten()[:count]
        if len(places) < count:
            raise ValueError(
                f"the kernel form holds at most max_rows={len(self._used)} rows; "
                f"{int(self._used.sum())} are in use and {count} more were given"
            )
        return places

    def _find(self, rows: Tensor) -> Tensor:
        taken = torch.zeros_like(self._used)
        places = []
        for row in rows:
            same = self._used & ~taken & (self._rows == row).all(1)
            match = same.nonzero().flatten()
            if not len(match):
                raise ValueError("cannot forget a row that was never observed")
            taken[match[0]] = True
            places.append(match[0])
        return torch.stack(places)

    def clear(self) -> None:
        """Forget every row."""
        for tensor in self.tensors().values():
            tensor.zero_()
        self._changed()

    @property
    def _features(self) -> Tensor:
        return self._rows[:, : self.feature_dim]

    def tensors(self) -> dict[str, Tensor]:
        """The rows, their products and which of them are in use."""
        return {"rows": self._rows, "products": self._products, "used": self._used}

    def _factorize(self) -> None:
        kernel = self._products.clone()
        kernel.diagonal().add_(self.jitter)
        self._factor = cholesky(native(kernel))
        solved = solve_lower(self._factor, self._rows[:, self.feature_dim :])
        # h^T A^-1 b = k_h^T (H H^T + cI)^-1 Y, written with the metric's -1/c.
        zeros = solved.new_zeros(self.feature_dim, self.target_dim)
        self.mean = native(torch.cat([zeros, -self.jitter * solved]))

    def _represent(self, features: Matrix) -> Matrix:
        # Woodbury: c h^T A^-1 h' = h^T h' - k_h^T (H H^T + cI)^-1 k_h'.
        own = alike(self._features, features)
        solved = solve_lower_rows(self._factor, features @ own.T)
        if isinstance(features, np.ndarray):
            return np.concatenate([features, solved], 1)
        return torch.cat([features, solved], 1)
