r"""The Geo-FNO of Li et al. (2022): Fourier layers on a latent grid for meshes of any shape.

A structured mesh is its own latent grid, and its coordinates are input. Scattered points are
carried by a learned map $\xi=\phi^{-1}(x)$ to a uniform grid and back, by Fourier series.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from gpo.model.problem import Problem, UnsupportedGeometryError
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
"""Length of the shape code of the published elasticity task."""


@dataclass(frozen=True, kw_only=True)
class GeoFNOConfig:
    """Sizes of a `GeoFNO`.

    Where the coordinates are the field, as in the published tasks, `appends_coords=False` gives
    the published 1,546,403 parameters on scattered points, and on a mesh with `modes=(24, 12)`
    2,368,033.
    """

    width: int = 32
    """Channels of the Fourier layers."""
    modes: tuple[int, int] = (12, 12)
    """Modes kept along both axes, fewer where the grid has fewer."""
    padding: int = 8
    """Zeros behind both ends of a mesh."""
    latent_size: int = 40
    """Sites along both sides of the latent grid of scattered points."""
    appends_coords: bool = True
    """Whether the coordinates of the sites are seen beside the field."""

    def __post_init__(self) -> None:
        check_sizes(self, padding=0)


class GeoFNO(AbstractBaseline):
    """Maps fields on structured 2-D meshes, body-fitted or not, and on scattered 2-D points.

    Args:
        problem: The data it is built for; `grid_shape` decides between mesh and points.
        config: Its sizes.
    """

    # No shape code is given here.
    unused = frozenset({"network.deformation.code.weight", "network.deformation.code.bias"})

    def __init__(self, problem: Problem, config: GeoFNOConfig = GeoFNOConfig()) -> None:
        super().__init__(problem)
        self.appends_coords = config.appends_coords
        in_channels = problem.in_channels + config.appends_coords * problem.domain.dim
        if problem.grid_shape:
            check_mesh(problem.grid_shape)
            self.network = FourierNetwork(
                (in_channels + 2,),
                (config.width,) * 5,
                (HEAD_WIDTH, problem.out_channels),
                (config.modes,) * 4,
                problem.grid_shape,
                config.padding,
            )
        else:
            check_plane(problem)
            self.network = PointNetwork(in_channels, problem.out_channels, config)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for checked input."""
        coords = coords.masked_fill(~is_counted.unsqueeze(-1), 0)
        seen = torch.cat([values, coords], dim=-1) if self.appends_coords else values
        if isinstance(self.network, PointNetwork):
            return self.network(seen, coords, is_counted)
        return self.network(with_index_coordinates(seen, self.problem.grid_shape))


class PointNetwork(nn.Module):
    """Five spectral layers: points to the latent grid, three on it, and back to the points."""

    def __init__(self, in_channels: int, out_channels: int, config: GeoFNOConfig) -> None:
        super().__init__()
        width, modes = config.width, config.modes
        self.latent_shape = latent_shape = (config.latent_size, config.latent_size)
        self.deformation = DeformationNetwork(code_size=CODE_SIZE)
        self.lift = nn.Linear(in_channels, width)
        self.to_latent = PointsToGrid(width, modes, latent_shape)
        kept = resolved_modes(modes, latent_shape)
        self.layers = nn.ModuleList(FourierLayer(width, width, kept) for _ in range(3))
        self.places = nn.ModuleList(PointwiseLinear(2, width) for _ in range(3))
        self.to_points = GridToPoints(width, modes, latent_shape)
        self.head = Perceptron(width, HEAD_WIDTH, out_channels)

    def forward(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "batch points 2"],
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the predicted field at the points."""
        image = self.deformation(coords)
        latent = self.to_latent(self.lift(values), image, is_counted)
        latent_coords = index_coordinates(self.latent_shape, like=values)
        for layer, place in zip(self.layers, self.places, strict=True):
            latent = gelu(layer(latent) + place(latent_coords))
        return self.head(self.to_points(latent, image, coords))


def check_mesh(grid_shape: tuple[int, ...]) -> None:
    """Raises an `UnsupportedGeometryError` unless a grid has two axes."""
    if len(grid_shape) != 2:
        raise UnsupportedGeometryError(f"needs a 2-D mesh, not {len(grid_shape)}-D")


def check_plane(problem: Problem) -> None:
    """Raises an `UnsupportedGeometryError` unless points lie in the plane."""
    if problem.domain.is_sphere:
        raise UnsupportedGeometryError("needs points of the plane, not of the sphere")
    if problem.domain.dim != 2:
        raise UnsupportedGeometryError(f"needs 2-D points, not {problem.domain.dim}-D")
