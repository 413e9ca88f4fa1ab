"""Values of lattice nodes where there is no active site.

A node between sites, such as a dropped one, is a gap: a spline through the sites around it is
evaluated there, exact for linear fields. A masked node, or one beside all sites, takes the mean of
the nearest active sites: sampling then does not reach across a coast.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree
from torch import Tensor

from gpo.transforms.axis_lines import RESOLUTION

NEIGHBOURS = {1: 4, 2: 16, 3: 32}
"""Sites that a spline goes through, by the number of axes."""

MAX_AMPLIFICATION = 5.0
"""Sum of the sizes of a spline's weights up to which it is used."""

MAX_IMBALANCE = 0.4
"""How far the middle of these sites may be from the node, in their mean distance from it: a node
that has sites on one side only is no gap."""

PORTION = 2**13
"""Number of splines that are solved for at a time."""


@dataclass(frozen=True)
class GapWeights:
    """The sites that nodes without an active one take their values from."""

    sites: Int[Tensor, "missing taps"]
    weights: Float[Tensor, "missing taps"]
    is_gap: Bool[Tensor, " missing"]
    """Whether a node lies between sites, so that its value is interpolated by a spline."""


def gap_weights(
    nodes: Float[np.ndarray, "nodes axes"],
    periods: Float[np.ndarray, " axes"],
    sites: Int[np.ndarray, " nodes"],
    is_masked: Bool[np.ndarray, " nodes"],
) -> GapWeights:
    """Returns the weights of all nodes without an active site.

    Args:
        nodes: Where all nodes are.
        periods: Of every axis, zero where it is open.
        sites: The active site at every node, -1 where there is none.
        is_masked: Which nodes have masked sites.
    """
    is_site, num_axes = sites >= 0, nodes.shape[1]
    known, missing = nodes[is_site], nodes[~is_site]
    count = min(NEIGHBOURS[num_axes], len(known))
    distances, rows = KDTree(known, boxsize=periods).query(missing, k=count)
    distances, rows = (np.reshape(part, (-1, count)) for part in (distances, rows))
    is_nearest = distances <= distances[:, :1] * (1 + RESOLUTION)
    weights = is_nearest / is_nearest.sum(1, keepdims=True)
    is_gap = ~is_masked[~is_site] & (count == NEIGHBOURS[num_axes])
    for part in np.array_split(np.flatnonzero(is_gap), max(1, int(is_gap.sum()) // PORTION)):
        offsets = known[rows[part]] - missing[part, None]
        turns = np.divide(offsets, periods, out=np.zeros_like(offsets), where=periods > 0)
        smooth, is_gap[part] = spline_weights(offsets - periods * np.round(turns))
        weights[part] = np.where(is_gap[part, None], smooth, weights[part])
    taps = max(1, np.flatnonzero(weights.any(0)).max(initial=0) + 1)
    chosen = np.flatnonzero(is_site)[rows[:, :taps]]
    return GapWeights(
        torch.from_numpy(sites[chosen]), torch.from_numpy(weights[:, :taps].copy()),
        torch.from_numpy(is_gap),
    )  # fmt: skip


def spline_weights(
    offsets: Float[np.ndarray, "nodes sites axes"],
) -> tuple[Float[np.ndarray, "nodes sites"], Bool[np.ndarray, " nodes"]]:
    """Returns the weights of splines $|x|^3$ and linear functions, and where these may be used.

    Args:
        offsets: From every node to its sites.
    """
    nodes, count, num_axes = offsets.shape
    distances = np.linalg.norm(offsets, axis=2)
    unit = np.maximum(distances.mean(1), 1e-300)
    offsets, distances = offsets / unit[:, None, None], distances / unit[:, None]
    linear = np.concatenate([np.ones((nodes, count, 1)), offsets], axis=2)
    system = np.zeros((nodes, count + num_axes + 1, count + num_axes + 1))
    system[:, :count, :count] = np.linalg.norm(offsets[:, :, None] - offsets[:, None], axis=3) ** 3
    system[:, :count, count:] = linear
    system[:, count:, :count] = linear.swapaxes(1, 2)
    value = np.zeros((nodes, count + num_axes + 1, 1))
    value[:, :count, 0] = distances**3
    value[:, count] = 1
    # Sites on one line have no such spline.
    is_sound = np.linalg.matrix_rank(linear) == num_axes + 1
    is_sound &= np.linalg.norm(offsets.mean(1), axis=1) < MAX_IMBALANCE
    weights = np.zeros((nodes, count))
    weights[is_sound] = np.linalg.solve(system[is_sound], value[is_sound])[:, :count, 0]
    return weights, is_sound & (np.abs(weights).sum(1) < MAX_AMPLIFICATION)
