"""What learners with a memory share: :class:`ReplayLearner`."""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torchrl.data import TensorDictReplayBuffer

from agents.runs.randomness import OwnRandomness, drawing_from
from agents.runs.stopwatch import Stopwatch
from agents.supervised.checks import check_weights
from agents.supervised.gradients import mean_loss
from agents.supervised.inputs import augment, scale, without_padding
from agents.supervised.learner import DivergenceError
from agents.supervised.networks import FeatureNetwork
from agents.supervised.replay import Replay, Samples
from agents.supervised.saved_states import check_learner_state

__all__ = ["ReplayLearner"]

# A network whose numbers are larger has diverged. The least that a memory of ours calls
# too large are features of 7e3, at the smallest jitter of the settings.
_HUGE = 5e3


class ReplayLearner(abc.ABC):
    """The parts of a learner; a subclass puts them together in :meth:`learn`.

    Args:
        network: features and outputs. The learner puts it into training mode, and at
            rest only while it predicts.
        memory: with any writer of TorchRL's or ours; ``None`` for no replay.
        num_classes: number of classes, ``None`` for regression.
        learning_rate: of plain gradient descent.
        replay_batch_size: items of each draw, or fewer while the memory has fewer.
        augmented: whether images are padded, cropped and flipped, anew in each use.
        prediction_range: lowest and highest number to predict, or one of each for each
            of K numbers; for regression only.
        device: where to compute.
        seed: of the augmentation, and of random layers such as dropout.

    Example:
        A learner that replays twice as much as it sees:

        >>> class Twice(ReplayLearner):
        ...     def learn(self, observation, target, mask=None):
        ...         batch = self.receive(observation, target, mask)
        ...         if batch is None:  # padding alone
        ...             return
        ...         self.forward(batch)
        ...         loss = self.loss(batch.outputs, batch.targets)
        ...         draws = self.draw(2)
        ...         self.forward(*draws)
        ...         for draw in draws:
        ...             loss = loss + self.loss(draw.outputs, draw.targets)
        ...         self.step(loss)
        ...         self.write_back(draws)
        ...         self.offer(batch)
        >>> from agents.supervised.networks import make_network
        >>> from info_replay import make_replay_buffer
        >>> network = make_network("fc", (4,), 3, seed=0)
        >>> memory = make_replay_buffer("infors", 50, num_classes=3)
        >>> learner = Twice(network, memory, num_classes=3)
        >>> inputs, labels = np.zeros((16, 4), np.float32), np.arange(16) % 3
        >>> for _ in range(2):
        ...     predicted = learner.act(inputs)
        ...     learner.learn(inputs, labels)
        >>> predicted.shape, len(memory)
        ((16,), 32)
    """

    def __init__(
        self,
        network: FeatureNetwork,
        memory: TensorDictReplayBuffer | None = None,
        *,
        num_classes: int | None,
        learning_rate: float = 0.1,
        replay_batch_size: int = 128,
        augmented: bool = False,
        prediction_range: tuple[ArrayLike, ArrayLike] = (-1.0, 1.0),
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        check_weights(learning_rate=learning_rate)
        if replay_batch_size < 1:
            raise ValueError(
                f"replay_batch_size must be at least 1, got {replay_batch_size!r}"
            )
        if not any(each.requires_grad for each in network.parameters()):
            raise ValueError("the network has no parameter to train: all are frozen")
        self.device = torch.device(device)
        self.network = network.to(self.device).train()
        self.memory = memory
        self.num_classes = num_classes
        self.augmented = augmented
        self.optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate)
        self.stopwatch = Stopwatch()
        self._bounds = _as_bounds(prediction_range, self.device)
        # Not the seed itself, with which the memory draws.
        seeds = np.random.SeedSequence([seed, 1]).generate_state(2, np.uint64) >> 1
        self._generator = torch.Generator().manual_seed(int(seeds[0]))
        # Asked once: networks look at all their modules for the answer.
        self._depends_on_batch = network.depends_on_batch
        # What differs in training may be random, and code of the user's at rest too.
        self._randomness = self._same_numbers = None
        if network.differs_in_training:
            self._randomness = OwnRandomness(int(seeds[1]), self.device)
            self._same_numbers = OwnRandomness(0, self.device, repeats=True)
        # Where predicting and learning see the same thing, one forward pass is enough.
        self._one_pass = not (augmented or network.differs_in_training)
        self._acted: tuple[NDArray[Any], Tensor, tuple[Tensor, Tensor]] | None = None
        self._replay: Replay | None = None
        if memory is not None:
            # An augmented image has another feature each time.
            fixed = network.fixed_features and not augmented
            self._replay = Replay(
                memory, replay_batch_size, device=self.device, fixed_features=fixed
            )
        self._since = 0.0

    # -- predicting -------------------------------------------------------------------

    def act(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Predictions for a batch.

        Args:
            observation: inputs, shape ``(n, ...)``.

        Returns:
            Classes ``(n,)``; for regression numbers in the range of predictions,
            ``(n,)``, or ``(n, K)`` if there are several.
        """
        start = time.perf_counter()
        if self._one_pass:
            stored = torch.from_numpy(observation).to(self.device)
            passed = self.network(scale(stored))
            self._acted = (observation, stored, passed)
            prediction = self._decide(passed[1].detach())
        else:
            prediction = self._predict(observation, self._randomness)
        self.stopwatch.add("learning", start)
        return prediction

    def predict(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Predictions that leave no trace, the same at any time; see :meth:`act`."""
        return self._predict(inputs, self._same_numbers)

    @torch.no_grad()
    def _predict(
        self, inputs: NDArray[Any], randomness: OwnRandomness | None
    ) -> NDArray[Any]:
        stored = torch.from_numpy(inputs).to(self.device)
        with drawing_from(randomness):
            return self._decide(self._pass_at_rest(scale(stored))[1])

    def _decide(self, outputs: Tensor) -> NDArray[Any]:
        if self.num_classes is not None:
            return outputs.argmax(1).cpu().numpy()
        numbers = outputs.clamp(*self._bounds).cpu().numpy()
        if not np.isfinite(numbers).all():
            raise DivergenceError("a prediction is not finite")
        return numbers[:, 0] if numbers.shape[1] == 1 else numbers

    # -- the parts of a step, in the order in which they are called --------------------

    @abc.abstractmethod
    def learn(
        self,
        observation: NDArray[Any],
        target: NDArray[Any],
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        """Learn from a batch whose targets are known now; see :class:`Learner`."""

    def receive(
        self,
        observation: NDArray[Any],
        target: NDArray[Any],
        mask: NDArray[np.bool_] | None,
    ) -> Samples | None:
        """The batch without its padding, on the device; ``None`` if nothing is left.

        Raises:
            ValueError: if shapes, types or labels are wrong.
        """
        self._since = time.perf_counter()
        observation, target = without_padding(
            observation, target, mask, self.num_classes, self.network.num_outputs
        )
        acted, self._acted = self._acted, None  # it holds for one step only
        if not len(target):
            return None
        targets = torch.from_numpy(target).to(self.device)
        if acted is not None and acted[0] is observation:
            return Samples(acted[1], targets, passed=acted[2])
        return Samples(torch.from_numpy(observation).to(self.device), targets)

    def forward(self, *parts: Samples, as_one: bool = False) -> None:
        """Pass samples through the network, unless :meth:`act` has done so.

        Args:
            *parts: the batch, or draws.
            as_one: whether they are one batch for a network that normalizes over
                batches; by default each part is one.
        """
        waiting = [part for part in dict.fromkeys(parts) if part.passed is None]
        if self._depends_on_batch:
            groups = [waiting] if as_one else [[part] for part in waiting]
        else:
            # The batch on its own, as act() would have passed it: the same bits.
            new = [part for part in waiting if part.items is None]
            groups = [new, [part for part in waiting if part.items is not None]]
        for group in filter(None, groups):
            seen = [self._look(part.inputs) for part in group]
            if len(group) == 1:
                group[0].passed = self._pass(seen[0])
                continue
            passed = self._pass(torch.cat(seen))
            split = (each.split([len(part) for part in group]) for each in passed)
            for part, features, outputs in zip(group, *split, strict=True):
                part.passed = features, outputs

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy, or squared error for regression."""
        return mean_loss(outputs, targets, self.num_classes)

    def draw(self, count: int = 1) -> list[Samples]:
        """Independent draws from the memory; none while it is empty.

        Where each draw has all items, and the network sees them alike, they are one
        object, which the network passes once: 0.8 of the time (benchmarks.against).
        """
        if self._replay is None or not len(self._replay):
            return []
        self._lap("learning")
        if self._one_pass and self._replay.draws_all:
            draws = [self._replay.draw()] * count
        else:
            draws = [self._replay.draw() for _ in range(count)]
        self._lap("memory")
        return draws

    def step(self, loss: Tensor) -> None:
        """Take one step of gradient descent."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self._lap("learning")

    def write_back(self, draws: Sequence[Samples]) -> None:
        """Write the draws' features to the memory, if it keeps any that change.

        Raises:
            DivergenceError: if the memory refuses them because the network's numbers
                are not finite or huge.
        """
        if self._replay is not None and self._replay.writes_back:
            try:
                self._replay.write_back(draws)
            except ValueError as error:
                self._check_divergence(error, draws)
                raise
            self._lap("memory")

    def offer(self, batch: Samples) -> None:
        """Offer a batch to the memory, with the features and outputs of its pass.

        Raises:
            DivergenceError: as in :meth:`write_back`. Other errors of a memory are
                raised as they are.
        """
        if self._replay is not None:
            try:
                self._replay.offer(batch)
            except ValueError as error:
                self._check_divergence(error, [batch])
                raise
            self._lap("memory")

    def remember(
        self,
        observation: NDArray[Any],
        target: NDArray[Any],
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        """Offer a batch to the memory without learning from it; see :meth:`learn`."""
        batch = self.receive(observation, target, mask)
        if batch is not None:
            with torch.no_grad():
                self.forward(batch)
            self.offer(batch)

    def _look(self, stored: Tensor) -> Tensor:
        """What the network sees of stored inputs in this step."""
        inputs = scale(stored)
        return augment(inputs, self._generator) if self.augmented else inputs

    def _pass(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Features and outputs of a training batch.

        Batch normalization has no statistics for a batch of one, as the last batch may
        be; then it uses its running statistics.
        """
        with drawing_from(self._randomness):
            if len(inputs) <= self._depends_on_batch:
                return self._pass_at_rest(inputs)
            passed: tuple[Tensor, Tensor] = self.network(inputs)
        return passed

    def _pass_at_rest(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Features and outputs as in evaluation."""
        self.network.eval()
        try:
            passed: tuple[Tensor, Tensor] = self.network(inputs)
        finally:
            self.network.train()
        return passed

    def _lap(self, part: str) -> None:
        """Count the time since the last lap for a part of the work."""
        self.stopwatch.add(part, self._since)
        self._since = time.perf_counter()

    # -- divergence -------------------------------------------------------------------

    def _check_divergence(self, error: ValueError, given: Sequence[Samples]) -> None:
        """Tell divergence from other errors of the memory about what it is given."""
        numbers = [each for samples in given for each in samples.passed or ()]
        every = (*numbers, *self.network.parameters())
        if not all(bool((each.abs() < _HUGE).all()) for each in every):
            raise DivergenceError(error) from error

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
        state = {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "memory": None if self.memory is None else self.memory.state_dict(),
            "generator": self._generator.get_state(),
        }
        if self._randomness is not None:
            state["randomness"] = self._randomness.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`.

        Raises:
            ValueError: if it is not one of such a learner; nothing is changed then.
        """
        check_learner_state(
            state_dict, self.network, self.optimizer, self._generator, self._randomness
        )
        if (self.memory is None) != (state_dict["memory"] is None):
            raise ValueError("only one of the learner and its state has a memory")
        # The memory comes first: it checks its own state, and the rest cannot fail.
        if self.memory is not None:
            self.memory.load_state_dict(state_dict["memory"])
        self.network.load_state_dict(state_dict["network"])
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self._generator.set_state(state_dict["generator"].cpu())
        # Older states have none: networks were not random then.
        if self._randomness is not None and "randomness" in state_dict:
            self._randomness.load_state_dict(state_dict["randomness"])
        self._acted = None


def _as_bounds(
    prediction_range: tuple[ArrayLike, ArrayLike], device: torch.device
) -> list[Any]:
    """The lowest and the highest numbers, as ``clamp`` wants them."""
    low, high = (np.asarray(bound, np.float32) for bound in prediction_range)
    if not (low.shape == high.shape and low.ndim < 2 and (low <= high).all()):
        raise ValueError(
            "prediction_range must be the lowest and the highest number, or K of each, "
            f"got {prediction_range!r}"
        )
    if not low.ndim:  # numbers clamp faster than tensors
        return [float(low), float(high)]
    return [torch.from_numpy(bound).to(device) for bound in (low, high)]
