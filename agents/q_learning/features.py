"""What the memory looks at in Q-learning, and how it stays fresh.

A Q-network is linear in its penultimate activations, with weights of its own for each
action. So the feature of a transition is the vector of these activations in the block
of the action taken, zero elsewhere (:func:`place_by_action`), and what the memory could
learn from it is one of two targets:

* ``"td"``: the TD target of the loss;
* ``"dyn"``: the transition itself: reward, whether it was terminal, and the change of
  the observation. It does not move while the network learns.

:class:`TransitionFeatures` computes both for collected frames, in the replay buffer's
transform; :class:`FeatureDQNLoss` brings fresh features back from its own forward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs import Transform
from torchrl.objectives import DQNLoss

from agents.q_learning.config import TARGETS
from agents.q_learning.network import HIDDEN_KEY

__all__ = ["TARGETS", "FeatureDQNLoss", "TransitionFeatures", "place_by_action"]


def place_by_action(hidden: Tensor, action: Tensor, num_actions: int) -> Tensor:
    """Put activations in the block of the action taken.

    Args:
        hidden: activations, shape ``(..., d)``.
        action: categorical, shape ``(...)`` or ``(..., 1)``, or one-hot, shape
            ``(..., num_actions)``.
        num_actions: number of actions ``A``.

    Returns:
        Features, shape ``(..., A * d)``.

    Example:
        >>> hidden = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> place_by_action(hidden, torch.tensor([0, 1]), 2)
        tensor([[1., 2., 0., 0.],
                [0., 0., 3., 4.]])
    """
    if action.ndim == hidden.ndim and action.shape[-1] != num_actions:
        action = action.squeeze(-1)
    if action.ndim < hidden.ndim:
        action = torch.nn.functional.one_hot(action, num_actions)
    return (action.to(hidden.dtype).unsqueeze(-1) * hidden.unsqueeze(-2)).flatten(-2)


class FeatureDQNLoss(DQNLoss):
    """TorchRL's DQN loss that leaves the features of its forward pass in the sample.

    Where ``DQNLoss`` writes ``"td_error"``, this writes ``"feature"``, too, for
    ``buffer.update_tensordict_priority(sample)`` to take back: what the memory knows
    stays in step with the network, and no second forward pass is needed.

    Args:
        value_network: a Q-network that writes its activations, such as that of
            :func:`make_q_network`.
        **options: of ``DQNLoss``.

    Example:
        >>> from tensordict import TensorDict
        >>> from torchrl.data import Categorical, Unbounded
        >>> from agents.q_learning import make_q_network
        >>> loss = FeatureDQNLoss(make_q_network(Unbounded((4,)), Categorical(2)))
        >>> sample = TensorDict(
        ...     {
        ...         "observation": torch.randn(5, 4),
        ...         "action": torch.randint(2, (5,)),
        ...         ("next", "observation"): torch.randn(5, 4),
        ...         ("next", "reward"): torch.ones(5, 1),
        ...         ("next", "done"): torch.zeros(5, 1, dtype=torch.bool),
        ...         ("next", "terminated"): torch.zeros(5, 1, dtype=torch.bool),
        ...     },
        ...     batch_size=[5],
        ... )
        >>> loss(sample)["loss"].shape, sample["feature"].shape
        (torch.Size([]), torch.Size([5, 128]))
    """

    def __init__(self, value_network: TensorDictModuleBase, **options: Any) -> None:
        super().__init__(value_network, **options)
        _check_network(value_network)
        self._listening = False
        self._outputs: list[TensorDictBase] = []
        self.value_network.register_forward_hook(self._note)

    def _note(self, module: Any, inputs: Any, output: TensorDictBase) -> None:
        # Of the loss's calls the first is that of the online network on the states
        # themselves; the network is called by the policy, too.
        if self._listening:
            self._listening = False
            self._outputs.append(output)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The loss of a sample, which gets ``"feature"`` and ``"td_error"``.

        Args:
            tensordict: the sample.

        Returns:
            A tensordict with the entry ``"loss"``.
        """
        self._outputs.clear()  # of a call that failed
        self._listening = True
        try:
            losses = super().forward(tensordict)
        finally:
            self._listening = False
        output = self._outputs.pop()
        tensordict.set(
            "feature",
            place_by_action(
                output.get(HIDDEN_KEY).detach(),
                tensordict.get(self.tensor_keys.action),
                output.get(self.tensor_keys.action_value).shape[-1],
            ),
        )
        return losses


class TransitionFeatures(Transform):
    """Gives collected frames their ``"feature"`` and ``"target"``.

    For a replay buffer: acts on what is written, not on what is sampled. Frames that
    carry ``"hidden"``, because the Q-network chose their actions, need no forward pass
    for the feature; the entry is not stored.

    Args:
        loss: whose network gives the features and the TD target.
        target: ``"dyn"`` or ``"td"``.

    Example:
        The buffer of a Q-learner:

        >>> from torchrl.data import Categorical, Unbounded
        >>> from agents.q_learning import make_q_network
        >>> from info_replay import InfoReservoirReplayBuffer
        >>> loss = FeatureDQNLoss(make_q_network(Unbounded((4,)), Categorical(2)))
        >>> buffer = InfoReservoirReplayBuffer(
        ...     1000, batch_size=64, transform=TransitionFeatures(loss)
        ... )
    """

    def __init__(self, loss: DQNLoss, target: str = "dyn") -> None:
        if target not in TARGETS:
            raise ValueError(
                f"target must be one of {', '.join(TARGETS)}, got {target!r}"
            )
        super().__init__()
        _check_network(loss.value_network)
        self.target = target
        self._num_actions = 0  # not known yet
        # In a tuple, so that the loss is not part of the transform's saved state.
        self._held = (loss,)

    @property
    def loss(self) -> DQNLoss:
        """The loss whose network gives the features."""
        return self._held[0]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Leave a sample as it is."""
        return tensordict

    @torch.no_grad()
    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        loss = self.loss
        hidden = tensordict.get(HIDDEN_KEY, None)
        values = tensordict.get(loss.tensor_keys.action_value, None)
        if hidden is None or (values is None and not self._num_actions):
            output = tensordict.select(*loss.value_network_in_keys)
            with loss.value_network_params.to_module(loss.value_network):
                loss.value_network(output)
            hidden = output.get(HIDDEN_KEY) if hidden is None else hidden
            values = output.get(loss.tensor_keys.action_value)
        if values is not None:
            self._num_actions = values.shape[-1]
        action = tensordict.get(loss.tensor_keys.action)
        feature = place_by_action(hidden, action, self._num_actions)
        make_target = self._td if self.target == "td" else self._transition
        tensordict.set("feature", feature)
        tensordict.set("target", make_target(tensordict))
        return tensordict.exclude(HIDDEN_KEY)

    def _td(self, frames: TensorDictBase) -> Tensor:
        loss = self.loss
        target: Tensor = loss.value_estimator.value_estimate(
            frames.select(*loss.in_keys),
            target_params=loss.target_value_network_params,
            next_value=self._double(frames) if loss.double_dqn else None,
        )
        return target

    def _double(self, frames: TensorDictBase) -> Tensor:
        """What the target network thinks of the next action of the online network."""
        loss = self.loss
        following = frames.get("next").select(*loss.value_network_in_keys)
        values = []
        for weights in (loss.value_network_params, loss.target_value_network_params):
            with weights.to_module(loss.value_network):
                output = loss.value_network(following.copy())
            values.append(output.get(loss.tensor_keys.action_value))
        online, target = values
        return target.gather(-1, online.argmax(-1, keepdim=True))

    def _transition(self, frames: TensorDictBase) -> Tensor:
        keys, after = self.loss.tensor_keys, frames.get("next")
        parts = [after.get(keys.reward), after.get(keys.terminated)]
        for key in self.loss.value_network_in_keys:
            change = after.get(key).float() - frames.get(key).float()
            parts.append(change.flatten(frames.ndim))
        return torch.cat([part.float() for part in parts], dim=-1)


def _check_network(network: TensorDictModuleBase) -> None:
    if HIDDEN_KEY not in network.out_keys:
        raise ValueError(
            f"the Q-network must write its penultimate activations as {HIDDEN_KEY!r}, "
            f"as that of make_q_network does; got one that writes {network.out_keys}"
        )
