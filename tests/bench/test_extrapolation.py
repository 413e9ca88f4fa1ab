import sys

import numpy as np
import pytest

from gpo.optional import MissingPackageError
from gpo_bench.extrapolation import (
    ExtrapolationConfig,
    departure_points,
    estimate_motion,
    extrapolate,
)

SHAPE = (40, 50)
SEEN = np.ones(SHAPE, dtype=bool)


def blob(row=18.0, column=20.0, width=3.0):
    rows, columns = np.indices(SHAPE)
    return 5 * np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * width**2))


def constant(along_rows, along_columns):
    return np.stack([np.full(SHAPE, along_rows), np.full(SHAPE, along_columns)])


@pytest.mark.parametrize("order", [1, 3])
def test_a_constant_flow_moves_a_blob_exactly_by_whole_cells(order):
    config = ExtrapolationConfig(order=order)
    forecasts = extrapolate(blob(), SEEN, constant(2.0, -1.0), 3, config)
    for step, forecast in enumerate(forecasts, start=1):
        expected = np.roll(blob(), (2 * step, -step), (0, 1))
        np.testing.assert_allclose(forecast[6:, :-3], expected[6:, :-3], atol=1e-12)


def test_linear_interpolation_carries_a_linear_field_exactly():
    rows, columns = np.indices(SHAPE)
    forecast = extrapolate(1.0 + 2 * rows + 3 * columns, SEEN, constant(0.3, 0.4), 2)[-1]
    expected = 1 + 2 * (rows - 0.6) + 3 * (columns - 0.8)
    np.testing.assert_allclose(forecast[1:, 1:], expected[1:, 1:], rtol=1e-12)


def test_departure_points_of_a_rotation_are_those_of_the_implicit_midpoint_rule():
    """The rule turns by 2 atan(w / 2) in a step; a point ends as far from the centre as it was."""
    speed, center = 0.1, np.array([20.0, 25.0])[:, None, None]
    offset = np.indices(SHAPE) - center
    motion = speed * np.stack([offset[1], -offset[0]])
    angle = 2 * np.arctan(speed / 2)
    for step, points in enumerate(departure_points(motion, 4), start=1):
        cosine, sine = np.cos(step * angle), np.sin(step * angle)
        expected = np.stack([cosine * offset[0] - sine * offset[1], sine * offset[0] + cosine * offset[1]])  # fmt: skip
        near = np.hypot(*offset) < 15
        # What three iterations leave: (w / 2)^3 of a path of w r, in each step.
        limit = step * (speed / 2) ** 3 * speed * 15
        assert np.abs(points - center - expected)[:, near].max() < limit


def test_what_the_radar_does_not_see_is_never_used():
    is_seen = np.indices(SHAPE)[1] < 30
    hidden = np.where(is_seen, blob(column=28), np.nan)
    frames = [np.where(is_seen, blob(column=28), value) for value in (0.0, 1e6)]
    motion, config = constant(0.0, -2.5), ExtrapolationConfig(blur=0.5)
    forecasts = [extrapolate(field, is_seen, motion, 2, config) for field in (hidden, *frames)]
    for forecast in forecasts:
        assert np.isnan(forecast[:, ~is_seen]).all()
        np.testing.assert_array_equal(forecast[:, is_seen], forecasts[0][:, is_seen])
    # What comes from outside is the nearest value inside.
    sharp = extrapolate(hidden, is_seen, motion, 2)[-1]
    np.testing.assert_allclose(sharp[:, 29], hidden[:, 29], atol=1e-12)


def test_a_blur_keeps_constants_and_never_adds_rain():
    config = ExtrapolationConfig(blur=0.7)
    even = extrapolate(np.full(SHAPE, 2.0), SEEN, constant(0.4, 0.1), 3, config)
    np.testing.assert_allclose(even, 2, rtol=1e-12)
    forecast = extrapolate(blob(), SEEN, constant(0.0, 0.0), 1, config)[0]
    assert forecast.max() < blob().max()
    assert forecast.sum() == pytest.approx(blob().sum(), rel=1e-6)


def test_too_few_frames_are_refused():
    with pytest.raises(ValueError, match="must be at least 4 for 3 pairs, got 3"):
        estimate_motion(np.zeros((3, *SHAPE)), SEEN, ExtrapolationConfig(num_pairs=3))


def test_without_opencv_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingPackageError, match="pip install opencv-python-headless"):
        estimate_motion(np.stack([blob(), blob()]), SEEN)
