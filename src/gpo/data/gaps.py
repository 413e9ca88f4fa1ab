"""Values that are missing in some frames only: filled in for a model, never for a score.

Every frame has gaps of its own where clouds or broken instruments hide sites. A model whose sites
changed with every frame would have to be fitted to them every time. So a gap is filled with the mean
of the known sites around it, from its edge inwards, and what is missing has no weight in losses and
scores. Sites that are masked in all frames stay masked.
"""

import numpy as np
from jaxtyping import Float

from gpo.data.geometry import Geometry


def fill_gaps(
    frames: Float[np.ndarray, "times points variables"],
    geometry: Geometry,
    sites: slice = slice(None),
) -> Float[np.ndarray, "times points variables"]:
    """Returns frames without missing values at sites that are not masked.

    A variable that is missing at all of them stays so.

    Args:
        frames: What is known; NaN elsewhere.
        geometry: All sites.
        sites: Which of them the frames hold.
    """
    is_counted = ~geometry.is_masked[sites]
    is_missing = ~np.isfinite(frames) & is_counted[:, None]
    if not is_missing.any():
        return frames
    neighbours = _held(geometry.nearest_sites[sites], sites.indices(geometry.num_points)[:2])
    filled = frames.copy()
    for time, variable in np.argwhere(is_missing.any(1)):
        values = filled[time, :, variable]
        _fill(values, np.flatnonzero(is_missing[time, :, variable]), is_counted, neighbours)
    return filled


def carry_known(
    frames: Float[np.ndarray, "times points variables"],
) -> Float[np.ndarray, "times points variables"]:
    """Returns frames whose gaps have what their site had in the frame before, else in the one after.

    So a gap in one of the frames that predict is no change. What no frame knows stays missing.

    Args:
        frames: What is known, in order of time; NaN elsewhere.
    """
    if len(frames) == 1 or not np.isnan(frames).any():
        return frames
    filled = frames.copy()
    for time in range(1, len(filled)):
        filled[time] = np.where(np.isnan(filled[time]), filled[time - 1], filled[time])
    for time in reversed(range(len(filled) - 1)):
        filled[time] = np.where(np.isnan(filled[time]), filled[time + 1], filled[time])
    return filled


def _held(nearest: np.ndarray, held: tuple[int, int]) -> np.ndarray:
    """Returns neighbours numbered from the first site that is held; itself in place of those that are not."""
    first, end = held
    own = np.arange(first, end)[:, None]
    return np.where((nearest >= first) & (nearest < end), nearest, own) - first


def _fill(
    values: np.ndarray, missing: np.ndarray, is_counted: np.ndarray, neighbours: np.ndarray
) -> None:
    """Fills one variable of one frame in place."""
    while len(missing):
        around = values[neighbours[missing]]
        is_known = np.isfinite(around)
        counts = is_known.sum(1)
        is_edge = counts > 0
        if not is_edge.any():
            known = values[is_counted & np.isfinite(values)]
            values[missing] = known.mean() if len(known) else np.nan
            return
        sums = np.where(is_known, around, 0.0).sum(1)
        values[missing[is_edge]] = sums[is_edge] / counts[is_edge]
        missing = missing[~is_edge]
