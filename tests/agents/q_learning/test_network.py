"""Q-networks: their last layer is linear in what they call hidden."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn
from torchrl.data import Bounded, Categorical, OneHot, TensorSpec, Unbounded
from torchrl.envs.libs.gym import _gym_to_torchrl_spec_transform
from torchrl.modules import QValueActor

from agents.q_learning import make_q_network

from .helpers import forward_by_hand


def boxed(shape: tuple[int, ...], high: float, kind: Any) -> TensorSpec:
    """The spec that TorchRL makes of a space."""
    return _gym_to_torchrl_spec_transform(spaces.Box(0, high, shape, dtype=kind))


#: What an environment shows.
OBSERVATIONS = {
    "vector": Unbounded((5,)),
    "atari": boxed((4, 84, 84), 255, np.uint8),
    "minatar": boxed((10, 10, 4), 1, np.bool_),
}
for_each_observation = pytest.mark.parametrize("name", OBSERVATIONS)


def seen(spec: TensorSpec, count: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if spec.dtype == torch.float32:
        return torch.randn(count, *spec.shape, generator=generator)
    high = 2 if spec.dtype == torch.bool else 256
    return torch.randint(high, (count, *spec.shape), generator=generator).to(spec.dtype)


def look(network: QValueActor, observation: Tensor) -> TensorDict:
    with torch.no_grad():
        return network(TensorDict(observation=observation, batch_size=len(observation)))


@for_each_observation
@pytest.mark.parametrize("action", [Categorical(3), OneHot(3)], ids=["number", "1-hot"])
def test_values_are_linear_in_the_hidden_features(
    name: str, action: TensorSpec
) -> None:
    network = make_q_network(OBSERVATIONS[name], action, width=7, seed=1)
    head = [part for part in network.modules() if isinstance(part, nn.Linear)][-1]
    output = look(network, seen(OBSERVATIONS[name]))
    assert output["hidden"].shape == (3, 7)
    assert (output["hidden"] >= 0).all()
    torch.testing.assert_close(
        output["action_value"],
        output["hidden"] @ head.weight.detach().T + head.bias.detach(),
    )
    best = output["action_value"].argmax(-1)
    if isinstance(action, OneHot):
        best = nn.functional.one_hot(best, 3)
    assert output["action"].long().equal(best)
    torch.testing.assert_close(
        output["chosen_action_value"], output["action_value"].amax(-1, keepdim=True)
    )


def test_vectors_go_through_two_hidden_layers() -> None:
    network = make_q_network(OBSERVATIONS["vector"], Categorical(3), width=7, seed=1)
    observation = seen(OBSERVATIONS["vector"])
    output = look(network, observation)
    hidden, values = forward_by_hand(network, observation)
    np.testing.assert_allclose(output["hidden"], hidden, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(output["action_value"], values, rtol=1e-5, atol=1e-6)


@for_each_observation
def test_weights_depend_on_the_seed_alone(name: str) -> None:
    def weights(seed: int, elsewhere: int) -> Tensor:
        torch.manual_seed(elsewhere)
        before = torch.get_rng_state()
        network = make_q_network(OBSERVATIONS[name], Categorical(2), width=4, seed=seed)
        assert torch.get_rng_state().equal(before)
        return nn.utils.parameters_to_vector(network.parameters())

    assert weights(0, 1).equal(weights(0, 2))
    assert not weights(0, 1).equal(weights(1, 1))


def test_channels_may_come_first_or_last() -> None:
    images = seen(OBSERVATIONS["minatar"])
    last, first = (
        make_q_network(boxed(shape, 1, np.bool_), Categorical(3), width=4)
        for shape in ((10, 10, 4), (4, 10, 10))
    )
    torch.testing.assert_close(
        look(last, images)["action_value"],
        look(first, images.movedim(-1, 1))["action_value"],
    )
    # The pixels are not mixed up: another order of the rows is another image.
    upside_down = look(last, images.flip(1))["action_value"]
    assert not upside_down.allclose(look(last, images)["action_value"])


def test_images_are_scaled_by_their_largest_value() -> None:
    bytes_, unit = (
        make_q_network(spec, Categorical(3), width=4)
        for spec in (OBSERVATIONS["atari"], Unbounded((4, 84, 84)))
    )
    images = seen(OBSERVATIONS["atari"])
    torch.testing.assert_close(
        look(bytes_, images)["hidden"], look(unit, images / 255)["hidden"]
    )


def test_images_without_a_real_bound_are_not_scaled() -> None:
    bounded, unbounded = (
        make_q_network(spec, Categorical(3), width=4)
        for spec in (Bounded(-3e38, 3e38, (3, 10, 10)), Unbounded((3, 10, 10)))
    )
    images = torch.randn(2, 3, 10, 10)
    torch.testing.assert_close(
        look(bounded, images)["hidden"], look(unbounded, images)["hidden"]
    )


@pytest.mark.parametrize("kind", [np.float64, np.uint8, np.bool_])
def test_vectors_may_be_of_any_type(kind: Any) -> None:
    network = make_q_network(boxed((5,), 1, kind), Categorical(3), width=4)
    plain = make_q_network(Unbounded((5,)), Categorical(3), width=4)
    vectors = torch.tensor([[0, 1, 1, 0, 1]]).to(boxed((5,), 1, kind).dtype)
    torch.testing.assert_close(
        look(network, vectors)["hidden"], look(plain, vectors.float())["hidden"]
    )


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        *((shape, "vectors or images with") for shape in [(), (84, 84), (2, 3, 9, 9)]),
        *((shape, "at least 3 pixels") for shape in [(1, 2, 2), (2, 9, 1)]),
    ],
)
def test_other_shapes_are_refused(shape: tuple[int, ...], expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as refused:
        make_q_network(Unbounded(shape), Categorical(2))
    assert str(shape) in str(refused.value)
