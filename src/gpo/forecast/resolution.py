"""Pointwise means of training at another resolution of the grid."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.interpolate import RegularGridInterpolator
from torch import Tensor

from gpo.data.geometry import Geometry
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.statistics import SiteMeans


def with_means_at(forecaster: Forecaster, geometry: Geometry) -> Forecaster:
    """Returns the forecaster for a grid of the same region, if both have no coordinates.

    Args:
        forecaster: A trained model.
        geometry: The sites of other data, in the coordinates of training.
    """
    trained = forecaster.task.trained_on
    counts = [round(upper) + 1 for upper in trained.upper]
    is_known = trained.has_indices and geometry.has_indices and bool(geometry.axes)
    if not forecaster.task.is_per_site or not is_known or tuple(counts) == geometry.grid_shape:
        return forecaster
    stored = {name: part for name, part in vars(forecaster.pointwise).items() if part is not None}
    means = SiteMeans(
        **{name: interpolated(part.cpu(), counts, geometry.axes) for name, part in stored.items()}
    )
    resampled = Forecaster(forecaster.model, forecaster.task, means, forecaster.references)
    return resampled.train(forecaster.training)


def interpolated(
    means: Float[Tensor, "points channels"], counts: Sequence[int], axes: Sequence[np.ndarray]
) -> Float[Tensor, "sites channels"]:
    """Returns means between the nodes of a grid by multilinear interpolation.

    Args:
        means: Means at the nodes, whose coordinates are the numbers from zero.
        counts: Nodes along each axis.
        axes: Coordinates along each axis of the other grid.
    """
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    nodes = [np.arange(count) for count in counts]
    values = RegularGridInterpolator(nodes, means.numpy().reshape(*counts, -1))
    # Beyond the last node of a periodic axis the mean of that node is taken.
    return torch.from_numpy(values(points.clip(0, np.array(counts) - 1)))
