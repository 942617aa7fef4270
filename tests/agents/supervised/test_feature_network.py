"""Any network can be one with features: a layer is named, or it returns both."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor, nn

from agents.supervised.feature_network import FeatureNetwork
from agents.supervised.gradients import LossGradients
from agents.supervised.networks import FullyConnected


class Convolutional(nn.Module):
    """A network as users write them; the layer after ``pool`` works in place."""

    fixed_features = None  # of its own, and not an answer

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.shrink = nn.Hardtanh(-0.1, 0.1, inplace=True)
        self.unused = nn.Linear(3, 3)
        self.fc = nn.Linear(16, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.fc(self.shrink(self.pool(self.conv(inputs))).flatten(1))
        return outputs


class Pair(nn.Module):
    """Returns features and outputs, or whatever it is told to."""

    def __init__(self, returns: str = "pair") -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 6), nn.Linear(6, 5)
        self.returns = returns

    def forward(self, inputs: Tensor) -> Any:
        features = self.first(inputs.flatten(1)).relu()
        outputs = self.last(features)
        return {
            "pair": (features, outputs),
            "outputs": outputs,
            "dict": {"outputs": outputs},
            "three": (features, features, outputs),
            "none": (None, outputs),
        }[self.returns]


def made(seed: int = 0) -> FeatureNetwork:
    torch.manual_seed(seed)
    return FeatureNetwork.wrap(Convolutional(), feature="pool")


IMAGES = torch.rand((7, 1, 8, 8), generator=torch.Generator().manual_seed(0))


def test_the_feature_is_the_output_of_the_named_layer_flattened() -> None:
    network = made().eval()
    model: Any = network.model
    features, outputs = network(IMAGES)
    assert torch.equal(features, model.pool(model.conv(IMAGES)).flatten(1))
    assert features.max() > 0.1  # the layer after it has not changed it
    assert torch.equal(outputs, model(IMAGES))


@pytest.mark.parametrize("feature", ["conv", "conv.1", "fc"])
def test_any_layer_can_be_named_also_one_in_another(feature: str) -> None:
    network = FeatureNetwork.wrap(made().model, feature).eval()  # type: ignore[arg-type]
    features, outputs = network(IMAGES)
    assert features.shape == (7, outputs.shape[1] if feature == "fc" else 4 * 6 * 6)


def test_a_model_that_returns_both_is_taken_at_its_word() -> None:
    model = Pair()
    network = FeatureNetwork.wrap(model)
    found, expected = network(IMAGES[:, 0, 0]), model(IMAGES[:, 0, 0])
    assert all(map(torch.equal, found, expected))


def test_features_and_outputs_carry_gradients_unless_nobody_asks() -> None:
    network = made()
    features, outputs = network(IMAGES)
    assert features.requires_grad
    (outputs.sum() + features.sum()).backward()
    assert network.model.conv[0].weight.grad is not None  # type: ignore[index, union-attr]
    with torch.no_grad():
        assert not any(each.requires_grad for each in network(IMAGES))


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "state_dict"])
@pytest.mark.parametrize("before", [0, 1])
def test_a_copy_does_the_same(way: str, before: int) -> None:
    network = made()
    for _ in range(before):
        network(IMAGES)
    if way == "deepcopy":
        twin = copy.deepcopy(network)
    elif way == "pickle":
        twin = pickle.loads(pickle.dumps(network))
    else:
        twin = made(seed=1)
        twin.load_state_dict(network.state_dict())
    assert all(map(torch.equal, twin.eval()(IMAGES), network.eval()(IMAGES)))
    # They have nothing in common: what one learns the other does not.
    twin.model.fc.weight.data.zero_()  # type: ignore[union-attr, operator]
    assert not torch.equal(twin(IMAGES)[1], network(IMAGES)[1])


def test_weights_keep_their_names_after_a_prefix() -> None:
    network = made()
    expected = {f"model.{name}" for name in Convolutional().state_dict()}
    assert set(network.state_dict()) == expected
    assert not network.eval().model.training


def test_no_hook_stays_even_after_an_error() -> None:
    network = made()
    layer = network.model.pool
    network(IMAGES)
    with pytest.raises(RuntimeError):
        network(IMAGES[:, :, :2, :2])
    with pytest.raises(RuntimeError):
        network(torch.rand(2, 1, 8, 8, 8))
    assert len(layer._forward_hooks) == 0  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize(
    ("network", "shape"), [(made(), (1, 8, 8)), (FeatureNetwork.wrap(Pair()), (8,))]
)
def test_gradients_of_many_losses_are_found_at_once(
    network: FeatureNetwork, shape: tuple[int, ...]
) -> None:
    inputs = torch.rand(4, *shape)
    items = TensorDict({"observation": inputs, "target": torch.arange(4)}, [4])
    found = LossGradients(network, 5)(items.unsqueeze(1))
    twin = copy.deepcopy(network).eval()
    for row, item in zip(found, items, strict=True):
        outputs = twin(item["observation"][None])[1]
        loss = outputs.logsumexp(1).sum() - outputs[0, item["target"]]
        weights = list(twin.parameters())
        slopes = torch.autograd.grad(
            loss, weights, allow_unused=True, materialize_grads=True
        )
        expected = torch.cat([slope.flatten() for slope in slopes])
        torch.testing.assert_close(row, expected, rtol=1e-3, atol=1e-5)


# -- errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pol", "such as 'pool'.*; got 'pol'"),
        ("conv.7", "such as 'conv.*got 'conv.7'"),
        ("", "'fc'; got ''"),
        ("zzzzzzzz", "such as .*'fc'; got 'zzzzzzzz'"),
    ],
)
def test_a_name_of_no_layer_is_refused_with_those_that_are_near(
    name: str, expected: str
) -> None:
    with pytest.raises(ValueError, match="submodule of Convolutional.*" + expected):
        FeatureNetwork.wrap(Convolutional(), name)


@pytest.mark.parametrize(
    ("returns", "feature", "expected"),
    [
        ("outputs", None, r"feature=.*got one tensor of shape \(7, 5\)"),
        ("dict", None, "got a dict"),
        ("three", None, r"got a tuple of \(Tensor, Tensor, Tensor\)"),
        ("none", None, r"got a tuple of \(NoneType, Tensor\)"),
        ("pair", "first", r"Pair must give one tensor, got a tuple of \(Tensor"),
    ],
)
def test_a_pass_that_is_not_what_it_should_be_is_refused(
    returns: str, feature: str | None, expected: str
) -> None:
    network = FeatureNetwork.wrap(Pair(returns), feature)
    with pytest.raises(ValueError, match=expected):
        network(IMAGES[:, 0, 0])


def test_a_layer_that_the_pass_does_not_use_is_refused() -> None:
    network = FeatureNetwork.wrap(Convolutional(), "unused")
    with pytest.raises(ValueError, match="submodule 'unused' of .* got nothing"):
        network(IMAGES)


# -- what learners ask of a network ---------------------------------------------------


def sequence(*layers: nn.Module, feature: str) -> FeatureNetwork:
    return FeatureNetwork.wrap(nn.Sequential(*layers, nn.Linear(4, 2)), feature)


def frozen(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers).requires_grad_(False)


@pytest.mark.parametrize(
    ("network", "traits"),
    [
        # depends_on_batch, differs_in_training, fixed_features
        (FullyConnected((4,), 2), "..."),
        (FullyConnected((4,), 2, hidden=()), "..f"),
        (sequence(nn.Linear(4, 4), feature="0"), "..."),
        (sequence(frozen(nn.Linear(4, 4), nn.ReLU()), feature="0"), "..f"),
        (sequence(frozen(nn.Linear(4, 4), nn.ReLU()), feature="0.1"), "..f"),
        (sequence(nn.Linear(4, 4), frozen(nn.Tanh()), feature="1"), "..."),
        (sequence(frozen(nn.Linear(4, 4)), nn.Linear(4, 4), feature="0"), "..f"),
        (sequence(nn.Dropout(), feature="0"), ".d."),
        (sequence(nn.Identity(), nn.Dropout(), feature="0"), ".df"),
        (sequence(frozen(nn.BatchNorm1d(4)), feature="0"), "bd."),
        (made(), "bd."),
        (FeatureNetwork.wrap(Pair()), ".d."),
        (FeatureNetwork.wrap(Pair().requires_grad_(False), "first"), ".d."),
    ],
)
def test_traits_are_found_in_the_modules(network: FeatureNetwork, traits: str) -> None:
    answers = (
        network.depends_on_batch,
        network.differs_in_training,
        network.fixed_features,
    )
    assert answers == tuple(letter != "." for letter in traits)


class Sure(Pair):
    """Its class tells what looking at the modules cannot."""

    differs_in_training = False
    fixed_features = True


def test_a_class_may_know_better() -> None:
    network = FeatureNetwork.wrap(Sure())
    assert not network.differs_in_training
    assert network.fixed_features
    assert not network.depends_on_batch


class Overridden(FullyConnected):
    """A feature network with a pass of its own."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        inputs = nn.functional.dropout(inputs, training=self.training)
        return super().forward(inputs)


def test_a_feature_network_with_a_pass_of_its_own_may_do_anything() -> None:
    network = Overridden((4,), 2, hidden=())
    assert network.differs_in_training
    assert not network.fixed_features
