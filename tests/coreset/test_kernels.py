"""The tangent kernel is that of a wide ReLU network, of the angle of inputs alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call, grad, vmap

from info_replay.coreset.kernels import ReLUTangentKernel

depths = st.integers(1, 5)


def inputs(count: int, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *shape, generator=generator, dtype=torch.float64)


def by_recursion(left: list[float], right: list[float], depth: int) -> float:
    """The definition, one pair and one layer at a time, with covariances."""
    dot = sum(a * b for a, b in zip(left, right, strict=True))
    lengths = math.hypot(*left) * math.hypot(*right)
    covariance = tangent = dot / lengths
    for _ in range(depth):
        angle = math.acos(max(-1.0, min(1.0, covariance)))
        # Twice the expectation of the product of the ReLUs, and of their slopes.
        covariance = (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / math.pi
        tangent = tangent * (math.pi - angle) / math.pi + covariance
    return tangent


class WideNetwork(torch.nn.Module):
    """A random network whose tangent kernel is that of the limit, but for its width."""

    def __init__(self, size: int, width: int, depth: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        sizes = [size, *[width] * depth, 1]
        self.weights = torch.nn.ParameterList(
            torch.randn(columns, rows, generator=generator)
            for columns, rows in zip(sizes, sizes[1:], strict=False)
        )

    def forward(self, point: Tensor) -> Tensor:
        first, *rest = self.weights
        hidden = point @ first
        for weight in rest:
            hidden = hidden.relu() @ weight * math.sqrt(2 / len(weight))
        return hidden.squeeze()


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_it_is_the_recursion(depth: int) -> None:
    left, right = inputs(6, 5), inputs(4, 5, seed=1)
    expected = [
        [by_recursion(a, b, depth) for b in right.tolist()] for a in left.tolist()
    ]
    actual = ReLUTangentKernel(depth)(left, right)
    torch.testing.assert_close(
        actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("depth", [1, 2])
def test_it_is_the_tangent_kernel_of_a_wide_network(depth: int) -> None:
    points = torch.nn.functional.normalize(inputs(5, 3).float(), dim=1)
    kernels = []
    for seed in range(32):
        network = WideNetwork(size=3, width=512, depth=depth, seed=seed)
        parameters = dict(network.named_parameters())
        slopes = vmap(
            grad(lambda values, x, net=network: functional_call(net, values, (x,))),
            in_dims=(None, 0),
        )(parameters, points)
        flat = torch.cat([slope.flatten(1) for slope in slopes.values()], dim=1)
        kernels.append((flat @ flat.T).detach())
    mean = torch.stack(kernels).mean(0).double()
    expected = ReLUTangentKernel(depth)(points, points)
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.1)
    other = ReLUTangentKernel(depth + 1)(points, points)
    assert (mean - other).abs().max() > 0.5


@given(depth=depths, seed=st.integers(0, 99))
def test_it_is_symmetric_and_positive_semi_definite(depth: int, seed: int) -> None:
    points = inputs(12, 4, seed=seed)
    points[3], points[4] = points[0], -points[1]
    kernel = ReLUTangentKernel(depth)(points, points)
    torch.testing.assert_close(kernel, kernel.T, rtol=0, atol=1e-6)
    torch.testing.assert_close(
        kernel.diagonal(), torch.full((12,), depth + 1.0).double(), rtol=0, atol=1e-6
    )
    assert torch.linalg.eigvalsh(kernel).min() > -1e-6


@given(depth=depths, scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_length_dimension_and_rotation_do_not_count(
    depth: int, scale: float, seed: int
) -> None:
    kernel = ReLUTangentKernel(depth)
    left, right = inputs(4, 6, seed=seed), inputs(3, 6, seed=seed + 100)
    rotation, _ = torch.linalg.qr(inputs(6, 6, seed=seed + 200))
    expected = kernel(left, right)
    torch.testing.assert_close(kernel(scale * left, right), expected)
    torch.testing.assert_close(kernel(left @ rotation, right @ rotation), expected)
    torch.testing.assert_close(kernel(left.repeat(1, 7), right.repeat(1, 7)), expected)


def test_zeros_have_nothing_in_common_with_anything() -> None:
    points = inputs(3, 2)
    points[1] = 0
    kernel = ReLUTangentKernel()(points, points)
    assert kernel[1].tolist() == kernel[:, 1].tolist() == [0.0, 0.0, 0.0]
    assert kernel[0, 2] > 0


def test_inputs_may_be_single_numbers() -> None:
    numbers = torch.tensor([2.0, -1.0, 0.0])
    kernel = ReLUTangentKernel()
    assert torch.equal(
        kernel(numbers, numbers), kernel(numbers[:, None], numbers[:, None])
    )
    assert kernel(numbers[:0], numbers).shape == (0, 3)


def test_inputs_must_be_of_one_size() -> None:
    with pytest.raises(
        ValueError, match=r"inputs of one size, got \(2, 3\) and \(2, 4"
    ):
        ReLUTangentKernel()(inputs(2, 3), inputs(2, 4))


@pytest.mark.parametrize(
    ("depth", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)]
)
def test_depth_must_be_a_whole_number_above_0(
    depth: float, error: type[Exception]
) -> None:
    with pytest.raises(error, match="depth must be"):
        ReLUTangentKernel(depth)  # type: ignore[arg-type]
