"""Fills values that are missing in some frames, such as under clouds, for the model inputs.

A model computes its transform once for fixed sites, so the sites must not change from frame to
frame. A gap is therefore filled with the mean of the finite values around it, from its edge inwards;
missing values have no weight in losses and scores. Sites masked in all frames stay masked.
"""

import numpy as np
from jaxtyping import Float

from gpo.data.geometry import Geometry


def fill_gaps(
    frames: Float[np.ndarray, "times points variables"],
    geometry: Geometry,
    sites: slice = slice(None),
) -> Float[np.ndarray, "times points variables"]:
    """Returns frames without missing values at unmasked sites.

    A variable that is missing at all sites of a frame stays missing.

    Args:
        frames: Values, NaN where missing.
        geometry: All sites.
        sites: Slice of the sites in `frames`.
    """
    is_active = ~geometry.is_masked[sites]
    is_missing = ~np.isfinite(frames) & is_active[:, None]
    if not is_missing.any():
        return frames
    neighbours = _within(geometry.nearest_sites[sites], sites.indices(geometry.num_points)[:2])
    filled = frames.copy()
    for time, variable in np.argwhere(is_missing.any(1)):
        values = filled[time, :, variable]
        _fill(values, np.flatnonzero(is_missing[time, :, variable]), is_active, neighbours)
    return filled


def fill_in_time(
    frames: Float[np.ndarray, "times points variables"],
) -> Float[np.ndarray, "times points variables"]:
    """Fills gaps with the value of the same site in the previous frame, else in the next.

    A gap in an input frame then is not a change in time. Values missing in all frames stay missing.

    Args:
        frames: Values in order of time, NaN where missing.
    """
    if len(frames) == 1 or not np.isnan(frames).any():
        return frames
    filled = frames.copy()
    for time in range(1, len(filled)):
        filled[time] = np.where(np.isnan(filled[time]), filled[time - 1], filled[time])
    for time in reversed(range(len(filled) - 1)):
        filled[time] = np.where(np.isnan(filled[time]), filled[time + 1], filled[time])
    return filled


def _within(nearest: np.ndarray, bounds: tuple[int, int]) -> np.ndarray:
    """Returns neighbours as indices in a range of sites; the site itself replaces others."""
    first, end = bounds
    own = np.arange(first, end)[:, None]
    return np.where((nearest >= first) & (nearest < end), nearest, own) - first


def _fill(
    values: np.ndarray, missing: np.ndarray, is_active: np.ndarray, neighbours: np.ndarray
) -> None:
    """Fills one variable of one frame in place."""
    while len(missing):
        around = values[neighbours[missing]]
        is_finite = np.isfinite(around)
        counts = is_finite.sum(1)
        is_edge = counts > 0
        if not is_edge.any():
            finite = values[is_active & np.isfinite(values)]
            values[missing] = finite.mean() if len(finite) else np.nan
            return
        sums = np.where(is_finite, around, 0.0).sum(1)
        values[missing[is_edge]] = sums[is_edge] / counts[is_edge]
        missing = missing[~is_edge]
