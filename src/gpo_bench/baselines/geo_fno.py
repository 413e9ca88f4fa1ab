r"""The Geo-FNO of Li et al. (2022): Fourier layers on a latent grid for general geometries.

A structured mesh is its own latent grid, and its coordinates are inputs. For unstructured points, a
learned deformation $\xi=\phi^{-1}(x)$ and Fourier series map the field to a uniform latent grid and
back.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from gpo.model.problem import Problem
from gpo_bench.baselines.base import (
    AbstractBaseline,
    Perceptron,
    PointwiseLinear,
    check_sizes,
    index_coordinates,
    with_index_coordinates,
)
from gpo_bench.baselines.fno import FourierLayer, FourierNetwork
from gpo_bench.baselines.point_projection import DeformationNetwork, GridToPoints, PointsToGrid
from gpo_bench.baselines.spectral_convolution import resolved_modes

HEAD_WIDTH = 128
CODE_SIZE = 42
"""Length of the shape code in the published elasticity task."""


@dataclass(frozen=True, kw_only=True)
class GeoFNOConfig:
    """Architecture of a `GeoFNO`.

    In the published tasks the coordinates are the input field. With `appends_coords=False` the
    network has the published 1,546,403 parameters on unstructured points, 2,368,033 on a mesh with
    `modes=(24, 12)`, and 18,883,492 on a 3-D mesh for one field in and four out.
    """

    width: int = 32
    """Number of channels of the Fourier layers."""
    modes: tuple[int, ...] = (12, 12, 8)
    """Number of Fourier modes along each axis, at most those of the grid."""
    padding: int = 8
    """Number of zeros appended along each axis of a mesh."""
    latent_size: int = 40
    """Side of the latent grid for unstructured points."""
    appends_coords: bool = True
    """Appends the coordinates of the sites to the input channels."""

    def __post_init__(self) -> None:
        check_sizes(self, padding=0)
        if len(self.modes) < 2:
            raise ValueError(f"`modes` must be a number for each axis, got {self.modes}.")


class GeoFNO(AbstractBaseline):
    """Maps fields on structured meshes, body-fitted or not, and on unstructured 2-D points.

    Args:
        problem: Channels and geometry; with a `grid_shape` the sites are a mesh, else points.
        config: The architecture.
    """

    grid_axes, point_dims = (2, 3), (2,)
    limits = "its authors have no 3-D points"
    # These layers read a shape code, which is never passed here.
    unused = frozenset({"network.deformation.code.weight", "network.deformation.code.bias"})

    def __init__(self, problem: Problem, config: GeoFNOConfig = GeoFNOConfig()) -> None:
        super().__init__(problem)
        self.appends_coords = config.appends_coords
        in_channels = problem.in_channels + config.appends_coords * problem.domain.dim
        if problem.grid_shape:
            num_axes = len(problem.grid_shape)
            if len(config.modes) < num_axes:
                raise ValueError(f"`modes` must be {num_axes} numbers, got {config.modes}.")
            self.network = FourierNetwork(
                (in_channels + num_axes,),
                (config.width,) * 5,
                (HEAD_WIDTH, problem.out_channels),
                (config.modes[:num_axes],) * 4,
                problem.grid_shape,
                config.padding,
            )
        else:
            self.network = PointNetwork(in_channels, problem.out_channels, config)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for validated input."""
        coords = coords.masked_fill(~is_active.unsqueeze(-1), 0)
        inputs = torch.cat([values, coords], dim=-1) if self.appends_coords else values
        if isinstance(self.network, PointNetwork):
            return self.network(inputs, coords, is_active)
        return self.network(with_index_coordinates(inputs, self.problem.grid_shape))


class PointNetwork(nn.Module):
    """Five spectral layers: points to latent grid, three on the grid, and latent grid to points."""

    def __init__(self, in_channels: int, out_channels: int, config: GeoFNOConfig) -> None:
        super().__init__()
        width, modes = config.width, config.modes[:2]
        self.latent_shape = latent_shape = (config.latent_size, config.latent_size)
        self.deformation = DeformationNetwork(code_size=CODE_SIZE)
        self.lift = nn.Linear(in_channels, width)
        self.to_latent = PointsToGrid(width, modes, latent_shape)
        resolved = resolved_modes(modes, latent_shape)
        self.layers = nn.ModuleList(FourierLayer(width, width, resolved) for _ in range(3))
        self.places = nn.ModuleList(PointwiseLinear(2, width) for _ in range(3))
        self.to_points = GridToPoints(width, modes, latent_shape)
        self.head = Perceptron(width, HEAD_WIDTH, out_channels)

    def forward(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "batch points 2"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the predicted field at the points."""
        image = self.deformation(coords)
        latent = self.to_latent(self.lift(values), image, is_active)
        latent_coords = index_coordinates(self.latent_shape, like=values)
        for layer, place in zip(self.layers, self.places, strict=True):
            latent = gelu(layer(latent) + place(latent_coords))
        return self.head(self.to_points(latent, image, coords))
