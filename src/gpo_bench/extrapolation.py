r"""Extrapolation of rain along optical flow: what radar nowcasting forecasts with.

The motion $v$ is Farnebäck's optical flow between the last frames, smoothed with the rain as weight.
The forecast $m$ steps ahead is the last frame at the departure points,
$\hat R(x)=R(x_m)$ with $x_{i+1}=x_i-v\big(x_i-\tfrac12(x_i-x_{i+1})\big)$, the midpoint rule, which is iterated
(Germann and Zawadzki 2002). Motions are in cells per step, along rows and then along columns.
"""

from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.ndimage import distance_transform_edt, gaussian_filter, map_coordinates

from gpo.optional import MissingPackageError

NUM_ITERATIONS = 3
"""Iterations of the midpoint rule."""
DRY = 1e-6
"""Weight of a dry cell where the motion is smoothed with the rain as weight, which is of order one."""
POLYNOMIAL_STD = {5: 1.1, 7: 1.5}
"""Standard deviation that OpenCV recommends for each size of the neighbourhood."""


@dataclass(frozen=True, kw_only=True)
class ExtrapolationConfig:
    """Settings of Farnebäck's flow and of the extrapolation along it."""

    floor: float = 0.1
    """Rain rate $R_0$ in mm/h; images are $\\log(1+R/R_0)$."""
    window: int = 15
    """Size of the averaging window in cells."""
    num_levels: int = 3
    """Number of levels of the image pyramid."""
    neighbourhood: Literal[5, 7] = 5
    """Size of the neighbourhood that a polynomial is fitted to, in cells."""
    num_pairs: int = 1
    """Number of consecutive pairs of frames whose flows are averaged."""
    smoothing: float = 0.0
    """Standard deviation in cells of the Gaussian that smooths the motion."""
    order: Literal[1, 3] = 1
    """Interpolation at departure points: linear or cubic."""
    blur: float = 0.0
    """Standard deviation in cells of the Gaussian that smooths the forecast one step ahead; its
    variance grows with the number of steps."""


def estimate_motion(
    frames: Float[np.ndarray, "time rows columns"],
    is_seen: Bool[np.ndarray, "rows columns"],
    config: ExtrapolationConfig = ExtrapolationConfig(),
) -> Float[np.ndarray, "2 rows columns"]:
    """Returns the motion between the last frames, in cells per step.

    Args:
        frames: Rain rates in mm/h, one more than `config.num_pairs` or more.
        is_seen: False where the radar sees nothing; values there do not matter.
        config: The settings.
    """
    if len(frames) <= config.num_pairs:
        raise ValueError(
            f"`frames` must be at least {config.num_pairs + 1} for {config.num_pairs} pairs, got "
            f"{len(frames)}. Give earlier frames too."
        )
    nearest = nearest_seen(is_seen)
    images = np.log1p(np.maximum(frames[-config.num_pairs - 1 :], 0) / config.floor)
    images = np.stack([image[tuple(nearest)] for image in images])
    motion = np.mean([_flow(*pair, config) for pair in pairwise(images)], axis=0)
    if config.smoothing == 0:
        return motion
    weight = np.where(is_seen, images[-1], 0.0) + DRY
    return np.stack([_weighted_blur(part, weight, config.smoothing) for part in motion])


def extrapolate(
    frame: Float[np.ndarray, "rows columns"],
    is_seen: Bool[np.ndarray, "rows columns"],
    motion: Float[np.ndarray, "2 rows columns"],
    num_steps: int,
    config: ExtrapolationConfig = ExtrapolationConfig(),
) -> Float[np.ndarray, "steps rows columns"]:
    """Returns the forecasts 1, 2, ... steps ahead; NaN where the radar sees nothing.

    What comes from outside the radar image is the nearest value inside.

    Args:
        frame: Rain rates of the last frame.
        is_seen: False where the radar sees nothing; values there do not matter.
        motion: Motion in cells per step.
        num_steps: Number of steps.
        config: The settings.
    """
    filled = frame[tuple(nearest_seen(is_seen))]
    forecasts = []
    for step, departure in enumerate(departure_points(motion, num_steps), start=1):
        forecast = map_coordinates(filled, departure, order=config.order, mode="nearest")
        # Cubic interpolation overshoots.
        forecast = np.clip(forecast, filled.min(), filled.max())
        if config.blur > 0:
            width = config.blur * np.sqrt(step)
            forecast = _weighted_blur(forecast, is_seen.astype(float), width)
        forecasts.append(np.where(is_seen, forecast, np.nan))
    return np.stack(forecasts)


def departure_points(
    motion: Float[np.ndarray, "2 rows columns"], num_steps: int
) -> Float[np.ndarray, "steps 2 rows columns"]:
    """Returns where the rain in each cell was 1, 2, ... steps before, in cells."""
    sizes = motion.shape[1:]
    points = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij")).astype(float)
    steps = []
    for _ in range(num_steps):
        moved = np.zeros_like(points)
        for _ in range(NUM_ITERATIONS):
            halfway = points - moved / 2
            moved = np.stack([map_coordinates(part, halfway, order=1, mode="nearest") for part in motion])  # fmt: skip
        points = points - moved
        steps.append(points)
    return np.stack(steps)


def nearest_seen(is_seen: Bool[np.ndarray, "rows columns"]) -> Int[np.ndarray, "2 rows columns"]:
    """Returns row and column of the nearest cell that the radar sees."""
    found = distance_transform_edt(~is_seen, return_distances=False, return_indices=True)
    assert isinstance(found, np.ndarray)
    return found


def _flow(
    before: Float[np.ndarray, "rows columns"],
    after: Float[np.ndarray, "rows columns"],
    config: ExtrapolationConfig,
) -> Float[np.ndarray, "2 rows columns"]:
    try:
        cv2 = import_module("cv2")
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "Optical flow needs the package cv2, which is not installed. Install it: "
            "pip install opencv-python-headless.",
            name="cv2",
        ) from error
    largest = max(before.max(), after.max())
    if largest == 0:
        return np.zeros((2, *before.shape))
    bytes_ = [np.round(255 * image / largest).astype(np.uint8) for image in (before, after)]
    size = config.neighbourhood
    flow = cv2.calcOpticalFlowFarneback(
        *bytes_, np.zeros((*before.shape, 2), np.float32), pyr_scale=0.5, levels=config.num_levels,
        winsize=config.window, iterations=NUM_ITERATIONS, poly_n=size,
        poly_sigma=POLYNOMIAL_STD[size], flags=cv2.OPTFLOW_FARNEBACK_GAUSSIAN,
    )  # fmt: skip
    # OpenCV gives the component along columns first.
    return np.moveaxis(flow[..., ::-1], -1, 0).astype(float)


def _weighted_blur(
    field: Float[np.ndarray, "rows columns"],
    weight: Float[np.ndarray, "rows columns"],
    width: float,
) -> Float[np.ndarray, "rows columns"]:
    """Returns the Gaussian mean of a field, weighted; zero where no weight is near."""
    sums, total = (
        gaussian_filter(part, width, mode="constant") for part in (field * weight, weight)
    )
    return sums / np.maximum(total, np.finfo(float).tiny)
