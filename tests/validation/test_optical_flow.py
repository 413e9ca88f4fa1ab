"""Extrapolation along OpenCV's optical flow, on a moving blob and on real rain."""

import numpy as np
import pytest

from gpo import open_data
from gpo_bench.columns import COLUMNS
from gpo_bench.extrapolation import ExtrapolationConfig, estimate_motion, extrapolate
from tests.bench.test_extrapolation import SEEN, SHAPE, blob
from tests.core.data.files import real_file

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _opencv():
    pytest.importorskip("cv2", reason="needs the package opencv-python-headless")


@pytest.mark.parametrize(
    "config", [ExtrapolationConfig(), ExtrapolationConfig(num_pairs=2, smoothing=4.0, window=9)]
)
def test_optical_flow_finds_the_motion_of_a_blob(config):
    frames = np.stack([blob(16 + 1.5 * time, 20 - time) for time in range(3)])
    motion = estimate_motion(frames, SEEN, config)
    is_raining = frames[-1] > 1
    assert motion[0][is_raining].mean() == pytest.approx(1.5, abs=0.15)
    assert motion[1][is_raining].mean() == pytest.approx(-1, abs=0.15)
    forecast = extrapolate(frames[-1], SEEN, motion, 3, config)[-1]
    observed = blob(19 + 4.5, 18 - 3)
    assert np.linalg.norm(forecast - observed) < 0.2 * np.linalg.norm(frames[-1] - observed)


def test_optical_flow_of_dry_frames_is_zero():
    assert not estimate_motion(np.zeros((2, *SHAPE)), SEEN).any()


def test_extrapolation_of_real_rain_is_better_than_persistence_at_every_lead():
    data = open_data(real_file(*COLUMNS["radar"].file.split("/")))
    geometry = data.geometry()
    is_seen = ~geometry.is_masked.reshape(geometry.grid_shape)
    frames = np.asarray(data.frames(0), dtype=float).reshape(-1, *geometry.grid_shape)
    motion = estimate_motion(frames[20:22], is_seen)
    forecast, observed = extrapolate(frames[21], is_seen, motion, 6), frames[22:28]
    errors = np.linalg.norm((forecast - observed)[:, is_seen], axis=1)
    assert (errors < 0.75 * np.linalg.norm((frames[21] - observed)[:, is_seen], axis=1)).all()
