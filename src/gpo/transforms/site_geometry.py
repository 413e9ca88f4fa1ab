"""What depends on the positions of sites alone: waves there, their lattice, and which of them count."""

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from gpo.transforms.lattice import LatticePoints
from gpo.transforms.transform import AbstractWaveTransform, MaskedGridTransform

MANY_COUNTED = 0.8
"""Where a larger part of the nodes of a grid counts, masked ones are worked on too."""


@dataclass(frozen=True)
class SiteGeometry:
    """All that a model has to search or solve for at sites, whatever they hold."""

    transform: AbstractWaveTransform
    """Waves there."""
    on_lattice: LatticePoints | None = None
    """Where the sites are on the lattice that particles look at; none where no layer transports."""
    counted: "CountedSites | None" = None
    """Those of a masked grid that count, where it is worth to leave out the others."""


@dataclass(frozen=True)
class CountedSites:
    """The sites of a masked grid that count: what is done at a site is done there alone."""

    index: Int[Tensor, " counted"]
    geometry: SiteGeometry
    """Theirs alone, on the grid and the lattice of all."""

    @classmethod
    def of(
        cls,
        weights: Float[Tensor, " points"],
        transform: AbstractWaveTransform,
        points: LatticePoints | None,
    ) -> "CountedSites | None":
        """Returns those of a grid in order, None where there is no such grid or few are masked."""
        if not isinstance(transform, MaskedGridTransform) or transform.order is not None:
            return None
        counted = (weights > 0).nonzero().flatten()
        if len(counted) > MANY_COUNTED * len(weights):
            return None
        if points is not None:
            sources = points.lattice.sources
            if sources is None or sources.nodes is None:
                return None
            lattice = replace(points.lattice, sources=sources.at_sites(counted))
            points = replace(points[counted], lattice=lattice)
        return cls(counted, SiteGeometry(transform.at_nodes(counted), points))
