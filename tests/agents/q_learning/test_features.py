"""What the memory looks at in Q-learning, computed a second time by hand."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictParams
from torch import Tensor, nn
from torchrl.data import Bounded, Categorical
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

from agents.q_learning import FeatureDQNLoss, TransitionFeatures, make_q_network
from agents.q_learning.features import place_by_action
from info_replay import InfoReservoirReplayBuffer

from .helpers import (
    ACTIONS,
    DIM,
    DISCOUNT,
    WIDTH,
    forward_by_hand,
    make_frames,
    make_loss,
    placed_by_hand,
    tensors_in,
)

both_encodings = pytest.mark.parametrize(
    "one_hot", [False, True], ids=["number", "1-hot"]
)
single_and_double = pytest.mark.parametrize(
    "double", [False, True], ids=["dqn", "double"]
)
both_targets = pytest.mark.parametrize("target", ["dyn", "td"])


def numbers(frames: TensorDictBase) -> NDArray[Any]:
    """The actions as numbers."""
    action = frames["action"]
    return (action.argmax(-1) if action.ndim > 1 else action).numpy()


def features_by_hand(weights: TensorDictParams, frames: TensorDictBase) -> NDArray[Any]:
    hidden, _ = forward_by_hand(weights, frames["observation"])
    return placed_by_hand(hidden, numbers(frames))


def close(found: Tensor, expected: NDArray[Any]) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


class Calls:
    """Counts the forward passes of a network."""

    def __init__(self, loss: DQNLoss) -> None:
        self.count = 0
        parts = loss.value_network.modules()
        layers = [part for part in parts if isinstance(part, nn.Linear)]
        layers[0].register_forward_hook(self._note)

    def _note(self, *_: Any) -> None:
        self.count += 1


# -- blocks ---------------------------------------------------------------------------


@both_encodings
@pytest.mark.parametrize("batch", [(), (6,), (2, 3)])
def test_activations_go_to_the_block_of_the_action(
    batch: tuple[int, ...], one_hot: bool
) -> None:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(*batch, 5, generator=generator)
    action = torch.randint(4, batch, generator=generator)
    given = nn.functional.one_hot(action, 4) if one_hot else action
    placed = place_by_action(hidden, given, 4)
    assert placed.shape == (*batch, 4 * 5)
    expected = placed_by_hand(hidden.reshape(-1, 5).numpy(), action.reshape(-1), 4)
    np.testing.assert_array_equal(placed.reshape(-1, 20), expected)
    if not one_hot:  # a number may have a dimension of its own
        assert place_by_action(hidden, action.unsqueeze(-1), 4).equal(placed)


# -- the loss -------------------------------------------------------------------------


@both_encodings
@single_and_double
def test_the_loss_is_that_of_torchrl(double: bool, one_hot: bool) -> None:
    ours = make_loss(FeatureDQNLoss, double_dqn=double, one_hot=one_hot)
    theirs = make_loss(DQNLoss, double_dqn=double, one_hot=one_hot)
    samples = [make_frames(20, one_hot=one_hot) for _ in range(2)]
    losses = [
        loss(sample)["loss"]
        for loss, sample in zip((ours, theirs), samples, strict=True)
    ]
    assert losses[0].equal(losses[1])
    for loss in losses:
        loss.backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (mine.grad is None) == (other.grad is None)
        assert mine.grad is None or mine.grad.equal(other.grad)
    assert any(weights.grad is not None for weights in ours.parameters())
    assert samples[0]["td_error"].equal(samples[1]["td_error"])
    assert set(samples[0].keys()) - set(samples[1].keys()) == {"feature"}


@both_encodings
@single_and_double
def test_features_are_those_of_the_online_network_on_the_states(
    double: bool, one_hot: bool
) -> None:
    loss = make_loss(double_dqn=double, one_hot=one_hot)
    sample = make_frames(20, one_hot=one_hot)
    loss(sample)
    close(sample["feature"], features_by_hand(loss.value_network_params, sample))
    others = features_by_hand(loss.target_value_network_params, sample)
    assert not np.allclose(sample["feature"].numpy(), others)
    assert not sample["feature"].requires_grad


@single_and_double
def test_features_need_no_forward_pass_of_their_own(double: bool) -> None:
    counts = []
    for kind in (FeatureDQNLoss, DQNLoss):
        loss = make_loss(kind, double_dqn=double)
        calls = Calls(loss)
        loss(make_frames(20))
        counts.append(calls.count)
    assert counts[0] == counts[1] > 1


def test_features_follow_the_weights_also_after_an_error() -> None:
    loss, sample = make_loss(), make_frames(20)
    loss(sample)
    before = sample["feature"].clone()
    for weights in loss.parameters():
        weights.data.mul_(1.5)
    with pytest.raises((AttributeError, KeyError)):  # TorchRL's
        loss(make_frames(20, seed=7).exclude(("next", "reward")))
    loss(sample)
    close(sample["feature"], features_by_hand(loss.value_network_params, sample))
    assert not sample["feature"].allclose(before)


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True], ids=["dqn", "double"])
def test_a_compiled_loss_leaves_the_same_features(double: bool) -> None:
    plain, compiled = (make_loss(double_dqn=double) for _ in range(2))
    fast = torch.compile(compiled)
    for seed in range(3):
        samples = [make_frames(20, seed=seed) for _ in range(2)]
        losses = plain(samples[0])["loss"], fast(samples[1])["loss"]
        torch.testing.assert_close(*losses)
        for loss in losses:
            loss.backward()
        for key in ("feature", "td_error"):
            torch.testing.assert_close(samples[0][key], samples[1][key])
        for one, two in zip(plain.parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(one.grad, two.grad)
            if one.grad is not None:
                for weights in (one, two):
                    weights.data.sub_(0.1 * weights.grad)


# -- collected frames -----------------------------------------------------------------


def make_buffer(loss: DQNLoss, target: str = "dyn") -> InfoReservoirReplayBuffer:
    """A memory with room for everything."""
    return InfoReservoirReplayBuffer(
        100, batch_size=8, transform=TransitionFeatures(loss, target)
    )


def acted(loss: DQNLoss, frames: TensorDict) -> TensorDict:
    """Frames as a collector gives them, with all that the network wrote."""
    output = frames.select("observation")
    with torch.no_grad():
        loss.value_network(output)
    return frames.clone().update(output.select("hidden", "action_value"))


@both_encodings
@both_targets
def test_frames_get_the_feature_of_the_online_network(
    target: str, one_hot: bool
) -> None:
    loss = make_loss(one_hot=one_hot)
    buffer, frames = make_buffer(loss, target), make_frames(30, one_hot=one_hot)
    buffer.extend(frames)
    close(buffer[:]["feature"], features_by_hand(loss.value_network_params, frames))


@both_targets
def test_hidden_features_in_the_frames_save_the_forward_pass(target: str) -> None:
    loss, frames = make_loss(), make_frames(30)
    plain, given = (make_buffer(loss, target) for _ in range(2))
    with_hidden = acted(loss, frames)
    before = with_hidden.clone()
    plain.extend(frames)
    calls = Calls(loss)
    given.extend(with_hidden)
    # The target of "td" needs one pass of the target network.
    assert calls.count == int(target == "td")
    for key in ("feature", "target"):
        torch.testing.assert_close(plain[:][key], given[:][key])
    assert "hidden" not in given[:].keys(True)
    # The frames themselves stay as they are.
    keys = set(with_hidden.keys(True, True))
    assert keys - {"index"} == set(before.keys(True, True))
    assert (with_hidden.exclude("index") == before).all()


@both_encodings
def test_the_td_target_is_that_of_the_target_network(one_hot: bool) -> None:
    loss = make_loss(one_hot=one_hot)
    buffer, frames = make_buffer(loss, "td"), make_frames(30, one_hot=one_hot)
    buffer.extend(frames)
    after = frames["next"]
    _, values = forward_by_hand(loss.target_value_network_params, after["observation"])
    going = 1 - after["terminated"].double().numpy()
    best = values.max(1, keepdims=True)
    close(buffer[:]["target"], after["reward"].numpy() + DISCOUNT * going * best)
    # A time limit is no end: what comes after it still counts.
    assert (after["truncated"] & ~after["terminated"]).any()
    assert after["terminated"].any()


def test_the_td_target_of_double_q_learning_is_that_of_the_loss() -> None:
    loss = make_loss(double_dqn=True)
    buffer, frames = make_buffer(loss, "td"), make_frames(30)
    buffer.extend(frames)
    after = frames["next"]["observation"]
    _, online = forward_by_hand(loss.value_network_params, after)
    _, values = forward_by_hand(loss.target_value_network_params, after)
    chosen = np.take_along_axis(values, online.argmax(1)[:, None], 1)
    assert (chosen < values.max(1, keepdims=True)).any()
    going = 1 - frames["next", "terminated"].double().numpy()
    reward = frames["next", "reward"].numpy()
    close(buffer[:]["target"], reward + DISCOUNT * going * chosen)


def test_the_dyn_target_is_the_transition() -> None:
    buffer, frames = make_buffer(make_loss(), "dyn"), make_frames(30)
    buffer.extend(frames)
    after = frames["next"]
    for row, target in enumerate(buffer[:]["target"]):
        change = after["observation"][row] - frames["observation"][row]
        assert target.tolist() == [
            float(after["reward"][row]),
            float(after["terminated"][row]),
            *change.tolist(),
        ]


def test_changes_of_bytes_can_be_negative() -> None:
    image = Bounded(0, 255, (3, 10, 10), dtype=torch.uint8)
    loss = FeatureDQNLoss(make_q_network(image, Categorical(ACTIONS), width=WIDTH))
    SoftUpdate(loss, tau=0.5)
    frames = make_frames(6)
    before, after = (
        torch.randint(256, (6, 3, 10, 10), dtype=torch.uint8) for _ in range(2)
    )
    frames["observation"], frames["next", "observation"] = before, after
    buffer = make_buffer(loss, "dyn")
    buffer.extend(frames)
    change = after.numpy().astype(int) - before.numpy()
    assert (change < 0).any()
    np.testing.assert_array_equal(buffer[:]["target"][:, 2:], change.reshape(6, -1))


@both_targets
def test_one_frame_is_as_a_batch_of_one(target: str) -> None:
    loss, frames = make_loss(), make_frames(5)
    single, batch = (make_buffer(loss, target) for _ in range(2))
    for frame in frames.unbind(0):
        single.add(frame)
    batch.extend(frames)
    for key in ("feature", "target"):
        torch.testing.assert_close(single[:][key], batch[:][key])


@both_targets
def test_a_sample_is_left_as_it_is(target: str) -> None:
    loss = make_loss()
    buffer = make_buffer(loss, target)
    buffer.extend(make_frames(30))
    buffer.storage[:]["feature"].fill_(3)
    calls = Calls(loss)
    sample = buffer.sample(50)
    assert calls.count == 0
    assert (sample["feature"] == 3).all()
    assert sample["target"].equal(buffer[:]["target"][sample["index"].flatten()])


@both_targets
def test_collecting_keeps_no_output_of_the_network_alive(target: str) -> None:
    loss = make_loss()
    held: list[weakref.ref[Tensor]] = []

    def note(module: Any, inputs: Any, output: TensorDictBase) -> None:
        held.append(weakref.ref(output["hidden"]))

    loss.value_network.register_forward_hook(note)
    buffer = make_buffer(loss, target)
    for seed in range(3):
        buffer.extend(make_frames(10, seed=seed))
    assert len(held) >= 3
    assert [ref for ref in held if ref() is not None] == []


@both_targets
def test_a_saved_memory_has_no_network_in_it_and_continues_with_another(
    target: str,
) -> None:
    loss = make_loss()
    buffer = make_buffer(loss, target)
    buffer.extend(make_frames(30))
    assert list(tensors_in(buffer.state_dict()["_transforms"])) == []
    assert list(TransitionFeatures(loss, target).parameters()) == []
    other_loss = make_loss()
    for weights in other_loss.parameters():
        weights.data.mul_(1.5)
    other = make_buffer(other_loss, target)
    other.load_state_dict(buffer.state_dict())
    assert other[:]["feature"].equal(buffer[:]["feature"])
    more = make_frames(10, seed=4)
    other.extend(more)
    fresh = features_by_hand(other_loss.value_network_params, more)
    close(other[30:40]["feature"], fresh)


@pytest.mark.parametrize("target", ["", "TD", "reward"])
def test_an_unknown_target_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="target must be one of td, dyn") as refused:
        TransitionFeatures(make_loss(), target)
    assert repr(target) in str(refused.value)


def test_a_network_without_hidden_features_is_refused() -> None:
    network = QValueActor(
        MLP(in_features=DIM, out_features=ACTIONS, num_cells=[4]),
        in_keys=["observation"],
        spec=Categorical(ACTIONS),
    )
    with pytest.raises(ValueError, match="penultimate activations as 'hidden'"):
        FeatureDQNLoss(network)
    with pytest.raises(ValueError, match="penultimate activations as 'hidden'"):
        TransitionFeatures(DQNLoss(network))
