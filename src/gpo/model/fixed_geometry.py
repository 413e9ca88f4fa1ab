"""Sites and queries that never change, with all that has to be searched or solved for there.

A model that is exported, or called very often on the same sites, computes this once.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from gpo.model.projection import AbstractProjection
from gpo.numerics.neighbours import Neighbours


@dataclass(frozen=True)
class FixedGeometry:
    """Places that all samples share; `GaussianParticleOperator.fix` makes one."""

    coords: Float[Tensor, "1 points dim"]
    weights: Float[Tensor, "1 points"]
    """Quadrature weights, which sum to one; zero at masked sites."""
    has_mask: bool
    """Whether any site is masked."""
    queries: Float[Tensor, "1 queries dim"] | None = None
    """Where the output is asked for; at the sites when not given."""
    neighbours: Neighbours | None = None
    """The sites next to every query."""
    windows: AbstractProjection | None = None
    """Windows of the geometric variant at the sites."""
    query_windows: AbstractProjection | None = None
    """The same at the queries."""
