"""The supervised learner: :class:`DERPlusPlusAgent` (dark experience replay, DER++)."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import TensorDictReplayBuffer

from agents.runs.stopwatch import Stopwatch
from agents.supervised.gradients import mean_loss
from agents.supervised.inputs import augment, scale
from agents.supervised.learner import DivergenceError, Learner, without_padding
from agents.supervised.networks import FeatureNetwork
from agents.supervised.samplers import SubsetSampler
from info_replay import SelectionWriter, SelectiveReplayBuffer

__all__ = ["DERPlusPlusAgent", "DivergenceError"]

# A network whose numbers are larger has diverged. The least that a memory of ours calls
# too large are features of 7e3, at the smallest jitter of the settings.
_HUGE = 5e3


class DERPlusPlusAgent(Learner):
    r"""Learns from a stream and a memory; never told of tasks (Sec. 3, Eq. "DER++").

    For each batch it takes one step of gradient descent on

    .. math::
        \ell(B) + \alpha \, \mathrm{MSE}(z(M_1), z_1) + \beta \, \ell(M_2)

    with two independent draws ``M_1``, ``M_2`` from the memory and the outputs ``z_1``
    that were stored with the first. Then the features of both draws are written back
    (of a slot in both, those of the second), and the batch is offered to the memory,
    with outputs and features of this forward pass.

    Args:
        network: features and outputs.
        memory: with any writer of TorchRL's or ours; ``None`` for no replay.
        num_classes: number of classes, ``None`` for regression.
        learning_rate: of plain gradient descent.
        alpha: weight of the stored outputs; 0 for plain experience replay.
        beta: weight of the stored targets.
        replay_batch_size: items of each draw, or fewer while the memory has fewer.
        augmented: whether images are padded, cropped and flipped, anew in each use.
        device: where to compute.
        seed: of the augmentation.

    Example:
        >>> from agents.supervised.networks import make_network
        >>> from info_replay import make_replay_buffer
        >>> network = make_network("fc", (1, 8, 8), 10, seed=0)
        >>> memory = make_replay_buffer("infors", 50, num_classes=10,
        ...                             sampler=SubsetSampler())
        >>> agent = DERPlusPlusAgent(network, memory, num_classes=10)
        >>> images = np.zeros((16, 1, 8, 8), dtype=np.uint8)
        >>> agent.act(images).shape
        (16,)
        >>> agent.learn(images, np.arange(16) % 10)
        >>> len(memory)
        16
    """

    def __init__(
        self,
        network: FeatureNetwork,
        memory: TensorDictReplayBuffer | None,
        *,
        num_classes: int | None,
        learning_rate: float = 0.1,
        alpha: float = 0.3,
        beta: float = 1.0,
        replay_batch_size: int = 128,
        augmented: bool = False,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        for name, value in (
            ("learning_rate", learning_rate),
            ("alpha", alpha),
            ("beta", beta),
        ):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0, got {value!r}")
        if replay_batch_size < 1:
            raise ValueError(
                f"replay_batch_size must be at least 1, got {replay_batch_size!r}"
            )
        self.device = torch.device(device)
        self.network = network.to(self.device)
        self.memory = memory
        self.num_classes = num_classes
        self.alpha = alpha
        self.beta = beta
        self.replay_batch_size = replay_batch_size
        self.augmented = augmented
        self.optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate)
        self.stopwatch = Stopwatch()
        # Not the seed itself, with which the memory draws.
        sequence = np.random.SeedSequence([seed, 1]).generate_state(1, np.uint64)
        self._generator = torch.Generator().manual_seed(int(sequence[0] >> 1))
        # A buffer of TorchRL's own may be the memory, too, with any writer.
        writer = None if memory is None else memory.writer
        self._keeps_features = isinstance(writer, SelectionWriter) and (
            getattr(writer.policy, "feature_key", None) is not None
        )
        # TorchRL's buffer does not know of features; ours locks the writer meanwhile.
        ours = isinstance(memory, SelectiveReplayBuffer)
        self._feature_owner: Any = memory if ours else writer
        # A subset with as many items as there are slots has each of them.
        self._whole_draw = math.inf
        if memory is not None and isinstance(memory.sampler, SubsetSampler):
            self._whole_draw = memory.storage.max_size
        # Where predicting and learning see the same thing, one forward pass is enough.
        self._one_pass = not (augmented or network.depends_on_batch)
        self._acted: tuple[Any, Tensor, Tensor, Tensor] | None = None

    # -- predicting -------------------------------------------------------------------

    def act(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Predictions for a batch.

        Args:
            observation: inputs, shape ``(n, ...)``.

        Returns:
            Classes, or numbers in [-1, 1] for regression, shape ``(n,)``.
        """
        start = time.perf_counter()
        if self._one_pass:
            stored = torch.from_numpy(observation).to(self.device)
            features, outputs = self.network(scale(stored))
            self._acted = (observation, stored, features, outputs)
            prediction = self._decide(outputs.detach())
        else:
            prediction = self.predict(observation)
        self.stopwatch.add("learning", start)
        return prediction

    @torch.no_grad()
    def predict(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Predictions that nothing is learned from; see :meth:`act`."""
        self.network.eval()
        outputs = self.network(scale(torch.from_numpy(inputs).to(self.device)))[1]
        self.network.train()
        return self._decide(outputs)

    def _decide(self, outputs: Tensor) -> NDArray[Any]:
        if self.num_classes is None:
            numbers = outputs[:, 0].clamp(-1, 1).cpu().numpy()
            if not np.isfinite(numbers).all():
                raise DivergenceError("a prediction is not finite")
            return numbers
        return outputs.argmax(1).cpu().numpy()

    # -- learning ---------------------------------------------------------------------

    def learn(
        self,
        observation: NDArray[Any],
        target: NDArray[Any],
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        """Learn from a batch whose targets are known now, and offer it to the memory.

        Args:
            observation: inputs, shape ``(n, ...)``. If it is the very array that
                :meth:`act` was given last, it must not have been changed since.
            target: labels or numbers, shape ``(n,)``.
            mask: which of them are not padding; by default labels that are not -1, and
                all numbers.

        Raises:
            ValueError: if shapes, types or labels are wrong; nothing is changed.
            DivergenceError: if the memory refuses the batch because the network's
                numbers are not finite or huge. Other errors of a memory are raised as
                they are.
        """
        start = time.perf_counter()
        observation, target = without_padding(
            observation, target, mask, self.num_classes
        )
        if not len(target):
            return
        stored, features, outputs = self._forward(observation)
        targets = torch.from_numpy(target).to(self.device)
        loss = mean_loss(outputs, targets, self.num_classes)
        refreshed: TensorDictBase | None = None
        if self.memory is not None and len(self.memory) and (self.alpha or self.beta):
            self.stopwatch.add("learning", start)
            start = time.perf_counter()
            # By the stored entry that the network's outputs are compared with.
            draws = {
                key: self.memory.sample(self.replay_batch_size)
                for key, weight in (("logits", self.alpha), ("target", self.beta))
                if weight
            }
            self.stopwatch.add("memory", start)
            start = time.perf_counter()
            replay_loss, refreshed = self._replay_loss(draws)
            loss = loss + replay_loss
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.stopwatch.add("learning", start)
        start = time.perf_counter()
        self._write(stored, targets, features, outputs, refreshed)
        self.stopwatch.add("memory", start)

    def remember(
        self,
        observation: NDArray[Any],
        target: NDArray[Any],
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        """Offer a batch to the memory without learning from it; see :meth:`learn`."""
        observation, target = without_padding(
            observation, target, mask, self.num_classes
        )
        if len(target):
            targets = torch.from_numpy(target).to(self.device)
            with torch.no_grad():
                stored, features, outputs = self._forward(observation)
            self._write(stored, targets, features, outputs, None)

    def _forward(self, observation: NDArray[Any]) -> tuple[Tensor, Tensor, Tensor]:
        """The observation on the device, and its features and outputs."""
        acted, self._acted = self._acted, None  # it holds for one step only
        if acted is not None and acted[0] is observation:
            return acted[1:]
        stored = torch.from_numpy(observation).to(self.device)
        features, outputs = self._pass(self._look(stored))
        return stored, features, outputs

    def _look(self, stored: Tensor) -> Tensor:
        """What the network sees of stored inputs in this step."""
        inputs = scale(stored)
        return augment(inputs, self._generator) if self.augmented else inputs

    def _pass(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Features and outputs of a training batch.

        Batch normalization has no statistics for a batch of one, as the last batch may
        be; then it uses its running statistics.
        """
        if len(inputs) > self.network.depends_on_batch:
            features, outputs = self.network(inputs)
        else:
            self.network.eval()
            features, outputs = self.network(inputs)
            self.network.train()
        return features, outputs

    def _replay_loss(
        self, draws: dict[str, TensorDictBase]
    ) -> tuple[Tensor, TensorDictBase | None]:
        """Both draws' part of the loss, and what to write back."""
        samples = list(draws.values())
        seen = [self._look(draw.get("observation").to(self.device)) for draw in samples]
        if self.network.depends_on_batch:
            passed = [self._pass(inputs) for inputs in seen]
        else:
            features, outputs = self.network(torch.cat(seen))
            sizes = [len(inputs) for inputs in seen]
            passed = list(zip(features.split(sizes), outputs.split(sizes), strict=True))
        loss = torch.zeros((), device=self.device)
        for (key, draw), (_, outputs) in zip(draws.items(), passed, strict=True):
            wanted = draw.get(key).to(self.device)
            if key == "logits":
                loss = loss + self.alpha * F.mse_loss(outputs, wanted)
            else:
                loss = loss + self.beta * mean_loss(outputs, wanted, self.num_classes)
        if not self._keeps_features:
            return loss, None
        return loss, self._refreshed(samples, [features for features, _ in passed])

    # -- the memory -------------------------------------------------------------------

    def _refreshed(
        self, draws: list[TensorDictBase], features: list[Tensor]
    ) -> TensorDictBase:
        """The draws as one write-back: of a slot in several, the last counts."""
        last = draws[-1]
        if len(draws) == 1 or len(features[-1]) == self._whole_draw:
            # A sample is a copy of its own, and into it is cheaper than in place of it.
            last.get("feature").copy_(features[-1].detach())
            return last
        keys = ("index", "index_generation")
        entries = {
            key: torch.cat([draw.get(key) for draw in draws])
            for key in keys
            if key in last.keys()  # noqa: SIM118  a tensordict
        }
        return TensorDict(
            {**entries, "feature": torch.cat(features).detach()},
            batch_size=[sum(map(len, draws))],
        )

    @torch.no_grad()
    def _write(
        self,
        stored: Tensor,
        targets: Tensor,
        features: Tensor,
        outputs: Tensor,
        refreshed: TensorDictBase | None,
    ) -> None:
        """Write features back, then offer the batch."""
        if self.memory is None:
            return
        item = {"observation": stored, "target": targets, "logits": outputs.detach()}
        if self._keeps_features:
            item["feature"] = features.detach()
        items = TensorDict(item, batch_size=[len(targets)], device=self.device)
        try:
            if refreshed is not None:
                self._feature_owner.update_features(refreshed)
            self.memory.extend(items)
        except ValueError as error:
            fresh = [] if refreshed is None else [refreshed.get("feature")]
            if self._has_diverged(features, outputs, *fresh):
                raise DivergenceError(error) from error
            raise

    # -- divergence -------------------------------------------------------------------

    def _has_diverged(self, *numbers: Tensor) -> bool:
        """Whether some numbers, or the network's, are not finite or huge."""
        every = (*numbers, *self.network.parameters())
        return not all(bool((each.abs() < _HUGE).all()) for each in every)

    def check_finite(self) -> None:
        """Look whether the network can still be learned with; waits for the device.

        Raises:
            DivergenceError: if a parameter is not finite.
        """
        finite = [parameter.isfinite().all() for parameter in self.network.parameters()]
        if not bool(torch.stack(finite).all()):
            raise DivergenceError("parameters of the network are not finite")

    # -- resuming ---------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that later steps depend on, as plain values and tensors."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "memory": None if self.memory is None else self.memory.state_dict(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`.

        Raises:
            KeyError: if a part is missing; nothing is changed.
        """
        for part in ("network", "optimizer", "memory", "generator"):
            if part not in state_dict:
                raise KeyError(f"this is not the state of an agent: it has no {part!r}")
        self.network.load_state_dict(state_dict["network"])
        self.optimizer.load_state_dict(state_dict["optimizer"])
        if self.memory is not None:
            self.memory.load_state_dict(state_dict["memory"])
        self._generator.set_state(state_dict["generator"].cpu())
        self._acted = None
