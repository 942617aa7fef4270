"""Networks that give features and outputs in one forward pass.

:class:`FeatureNetwork` is what learners ask for; :meth:`FeatureNetwork.wrap` makes one
of any ``nn.Module``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from agents.supervised.module_traits import (
    depends_on_batch,
    differs_in_training,
    is_fixed,
    modules_up_to,
)

__all__ = ["FeatureNetwork"]


class _Trait:
    """An attribute that is found by looking at the modules, unless a class tells it.

    A class itself, which has no modules yet, answers ``False``.
    """

    def __init__(self, find: Callable[[Any], bool]) -> None:
        self.find = find

    def __get__(self, network: nn.Module | None, owner: type[nn.Module]) -> bool:
        return network is not None and self.find(network)


class FeatureNetwork(nn.Module):
    """A network that tells the features which its last layer sees.

    This class has a linear last layer, the head; :meth:`wrap` is for others.

    What learners ask of a network is found by looking at its modules. A class that
    knows better says so with a class attribute, ``fixed_features = True`` for example.

    Attributes:
        body: gives the features.
        head: the last layer.
        feature_dim: width of what the last layer sees.
        num_outputs: classes, or numbers to predict; ``None`` if it is not known.
        depends_on_batch: whether the output of a sample depends on the others in its
            batch while training (batch normalization).
        differs_in_training: whether it may do something else in training than in
            evaluation: layers such as dropout, and code that is not torch's own.
        fixed_features: whether the feature of an input never changes: nothing is
            trained before it, and all is known to do the same in training.
        needs_images: whether inputs must have the shape ``(n, C, H, W)``.
    """

    body: nn.Module
    head: nn.Linear
    feature_dim: int
    num_outputs: int | None = None
    needs_images: bool = False
    depends_on_batch: Any = _Trait(depends_on_batch)
    differs_in_training: Any = _Trait(
        lambda network: differs_in_training(network, FeatureNetwork, _Wrapped)
    )
    fixed_features: Any = _Trait(lambda network: network._has_fixed_features())

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Features ``(n, feature_dim)`` and outputs ``(n, num_outputs)``."""
        features = self.body(inputs)
        return features, self.head(features)

    def _has_fixed_features(self) -> bool:
        # Another forward() may take its features from anywhere.
        mine = type(self).forward is FeatureNetwork.forward
        return mine and is_fixed([self.body])

    @staticmethod
    def wrap(model: nn.Module, feature: str | None = None) -> FeatureNetwork:
        """A feature network around any network.

        Args:
            model: gives outputs ``(n, num_outputs)``, or features ``(n, d)`` and
                outputs.
            feature: name of the submodule whose output, flattened, is the feature
                (``model.named_modules()`` lists them); ``None`` if the model returns
                features and outputs. If the submodule runs several times in a pass, the
                last time counts.

        Returns:
            The network. Its weights are those of ``model``, with the prefix
            ``"model."`` in its ``state_dict``.

        Raises:
            ValueError: if there is no such submodule.

        Example:
            >>> import torch
            >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
            >>> network = FeatureNetwork.wrap(model, feature="1")
            >>> features, outputs = network(torch.zeros(5, 4))
            >>> features.shape, outputs.shape
            (torch.Size([5, 8]), torch.Size([5, 3]))
        """
        return _Wrapped(model, feature)


class _Wrapped(FeatureNetwork):
    """See :meth:`FeatureNetwork.wrap`."""

    def __init__(self, model: nn.Module, feature: str | None) -> None:
        super().__init__()
        names = [name for name, _ in model.named_modules(remove_duplicate=False)][1:]
        if feature is not None and feature not in names:
            close = difflib.get_close_matches(feature, names, 3, 0.4) or names[-5:]
            raise ValueError(
                f"feature must name a submodule of {type(model).__name__}, such as "
                f"{', '.join(map(repr, close))}; got {feature!r}"
            )
        self.model = model
        self.feature = feature
        for trait in (
            "depends_on_batch",
            "differs_in_training",
            "fixed_features",
            "needs_images",
        ):
            # The model's class may know better, as that of any feature network.
            if isinstance(told := getattr(model, trait, None), bool):
                setattr(self, trait, told)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        if self.feature is None:
            passed = self.model(inputs)
            if not _are_tensors(passed, 2):
                raise ValueError(
                    f"{type(self.model).__name__} must return (features, outputs), or "
                    "the feature's submodule must be named (feature=...); got "
                    f"{_describe(passed)}"
                )
            return passed[0], passed[1]
        found: list[Any] = []
        # For this pass only: a hook that stays could not be pickled or copied.
        layer = self.model.get_submodule(self.feature)
        handle = layer.register_forward_hook(
            lambda module, args, output: found.append(_flat_copy(output))
        )
        try:
            outputs = self.model(inputs)
        finally:
            handle.remove()
        for name, given in (
            (f"submodule {self.feature!r} of", found[-1] if found else None),
            ("", outputs),
        ):
            if not isinstance(given, Tensor):
                what = f"{name} {type(self.model).__name__}".strip()
                raise ValueError(f"{what} must give one tensor, got {_describe(given)}")
        return found[-1], outputs

    def _has_fixed_features(self) -> bool:
        before = modules_up_to(self.model, self.feature) if self.feature else None
        return before is not None and is_fixed(before)


def _flat_copy(output: Any) -> Any:
    # A copy: the layer after it may work in place, as ReLU(inplace=True) does.
    return output.flatten(1).clone() if isinstance(output, Tensor) else output


def _are_tensors(given: Any, count: int) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) == count
        and all(isinstance(each, Tensor) for each in given)
    )


def _describe(given: Any) -> str:
    """What was given, in a few words."""
    if isinstance(given, Tensor):
        return f"one tensor of shape {tuple(given.shape)}"
    if isinstance(given, tuple | list):
        kinds = ", ".join(type(each).__name__ for each in given)
        return f"a {type(given).__name__} of ({kinds})"
    return "nothing" if given is None else f"a {type(given).__name__}"
