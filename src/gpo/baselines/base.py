"""What every baseline is built from, and how every one is called."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor, nn

from gpo.model.sites import check_sites
from gpo.numerics.domain import Domain


@dataclass(frozen=True)
class Problem:
    """What a model has to know of its data before it is built."""

    in_channels: int
    """Channels of the input field, coordinates not counted."""
    out_channels: int
    domain: Domain
    grid_shape: tuple[int, ...] = ()
    """Sites along every axis of a structured grid, last axis fastest; empty for scattered points."""
    is_fitted: bool = False
    """Whether that grid is a mesh that follows a body, with coordinates of its own in every sample."""


class UnsupportedGeometryError(ValueError):
    """A model cannot take sites of this kind; the message is the reason, fit for a table."""


class AbstractBaseline(nn.Module, ABC):
    """A model that sees a field on sites and predicts a field on the same sites."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem

    def forward(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the predicted field at the sites.

        Args:
            values: The input field at the sites.
            coords: The sites, shared by the batch or one set per sample.
            weights: Quadrature weights; 0 masks a site, whatever it holds.
        """
        problem = self.problem
        dtype = next(part.dtype for part in self.parameters() if not part.is_complex())
        sites = check_sites(problem.in_channels, problem.domain, dtype, values, coords, weights)
        unit = problem.domain.to_unit(sites.coords)
        return self.predict(sites.values, unit, sites.is_counted)

    @abstractmethod
    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for checked input.

        Args:
            values: The input field, zero at masked and padded sites.
            coords: The sites in unit coordinates: the box is $[0, 1]^d$, the sphere $[-1, 1]^3$.
            is_counted: False at masked and padded sites.
        """


def to_grid(
    values: Float[Tensor, "batch points channels"], grid_shape: tuple[int, ...]
) -> Float[Tensor, "batch channels *grid"]:
    """Returns a field on a structured grid with channels first."""
    return values.unflatten(1, grid_shape).movedim(-1, 1)


def from_grid(
    values: Float[Tensor, "batch channels *grid"],
) -> Float[Tensor, "batch points channels"]:
    """Inverts `to_grid`."""
    return values.flatten(2).movedim(1, -1)
