"""A picture shows the images that are to be predicted now."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from continual_envs import make_stream
from continual_envs.rendering import picture
from tests.continual_envs.helpers import still

laws = settings(deadline=None, derandomize=True, max_examples=40)


@laws
@given(
    count=st.integers(1, 40),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 100),
    width=st.integers(1, 100),
)
def test_a_picture_has_every_image_in_rows_enlarged_as_a_whole(
    count: int, channels: int, height: int, width: int
) -> None:
    random = np.random.default_rng(0)
    shape = (count, channels, height, width)
    images = random.integers(1, 256, shape, dtype=np.uint8)
    shown = picture(images)
    assert shown.dtype == np.uint8
    assert shown.shape[2] == 3
    assert min(shown.shape[:2]) >= 256
    columns = next(n for n in range(1, 9) if n * n >= count)
    times = shown.shape[1] // (columns * width)
    assert shown.shape[1] == times * columns * width
    small = shown[::times, ::times]
    # Every pixel of the small picture is a square of the large one.
    assert np.array_equal(small.repeat(times, 0).repeat(times, 1), shown)
    for number in range(count):
        row, column = divmod(number, columns)
        tile = small[row * height :, column * width :][:height, :width]
        for channel in range(3):
            expected = images[number, channel if channels == 3 else 0]
            np.testing.assert_array_equal(tile[:, :, channel], expected)
    # Nothing else is shown.
    assert np.count_nonzero(small.any(2)) == count * height * width


@pytest.mark.parametrize("batch_size", [None, 1, 5, 16])
@pytest.mark.parametrize("benchmark", ["SplitDigits", "PermutedDigits", "DriftDigits"])
def test_render_shows_the_images_of_the_observation(
    benchmark: str, batch_size: int | None
) -> None:
    env = make_stream(benchmark, batch_size=batch_size, render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    for _ in range(3):
        shown = env.render()
        expected = picture(observation.reshape(-1, 1, 8, 8))
        np.testing.assert_array_equal(shown, expected)
        np.testing.assert_array_equal(env.render(), expected)
        observation, *_ = env.step(still(env))
    assert not np.array_equal(env.render(), shown)


@pytest.mark.parametrize("batch_size", [None, 1, 16])
@pytest.mark.parametrize("benchmark", ["SplitDigits", "DriftDigits", "SplitDiabetes"])
def test_every_step_can_be_rendered_also_after_the_last(
    benchmark: str, batch_size: int | None
) -> None:
    env = make_stream(benchmark, batch_size=batch_size, render_mode="rgb_array")
    env.reset(seed=0)
    steps = env.num_steps
    for step in range(steps):
        env.step(still(env))
        if step % 100 == 0 or step >= steps - 2:
            shown = env.render()
            assert shown is not None
            assert shown.dtype == np.uint8
            assert shown.ndim == 3
            assert shown.shape[2] == 3
    if benchmark != "SplitDiabetes":
        assert shown is not None
        assert not shown.any()


@pytest.mark.parametrize("batch_size", [None, 4])
def test_measurements_of_patients_are_shown_as_grey_levels(
    batch_size: int | None,
) -> None:
    env = make_stream("SplitDiabetes", batch_size=batch_size, render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    shown = env.render()
    assert shown is not None
    rows = observation.reshape(-1, 10)
    times = shown.shape[1] // 10
    small = shown[::times, ::times, 0]
    assert small.shape == rows.shape
    low = env.observation_space.low.reshape(-1, 10)[0]
    high = env.observation_space.high.reshape(-1, 10)[0]
    for row in range(len(rows)):
        for column in range(10):
            part = (rows[row, column] - low[column]) / (high[column] - low[column])
            assert small[row, column] == pytest.approx(255 * part, abs=0.51)


def test_render_through_gymnasium() -> None:
    env = gymnasium.make(
        "continual_envs/SplitDigits-v0", batch_size=9, render_mode="rgb_array"
    )
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(env.render(), picture(observation))


def test_render_without_a_render_mode_warns() -> None:
    env = make_stream("SplitDigits", batch_size=4)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert env.render() is None
