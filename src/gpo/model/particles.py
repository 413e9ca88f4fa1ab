"""Gaussian particles: the state of the field (section 2.1, eq. 1 and 2)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.inspect.cloud import ParticleCloud
from gpo.numerics.domain import Domain
from gpo.numerics.gaussian import gaussian
from gpo.numerics.neighbours import Neighbours
from gpo.numerics.products import without


class AbstractLatent(ABC):
    """The particles of every site, or the features that replace them in an ablation."""

    @abstractmethod
    def basis(
        self, coords: Float[Tensor, "#batch points dim"], domain: Domain
    ) -> Float[Tensor, "batch points gaussians"]:
        """Evaluates every site's own basis at `coords`, one point per site."""

    @abstractmethod
    def descriptor(self, domain: Domain) -> Float[Tensor, "batch points features"]:
        """Returns what windows use of a site besides its basis."""

    @abstractmethod
    def blend(self, neighbours: Neighbours, domain: Domain) -> "AbstractLatent":
        """Returns the particles of queries, interpolated from those of their neighbours."""

    def placed(self, domain: Domain, dtype: torch.dtype) -> "AbstractLatent":
        """Returns the same in coordinates of the domain; inside they are counted from its corner.

        Args:
            domain: Where the sites lie.
            dtype: The type of the coordinates.
        """
        return self

    @abstractmethod
    def without(self, sites: Sequence[int], gaussians: Sequence[int]) -> "AbstractLatent":
        """Returns the same with zero weight at some sites, and for some Gaussians of every site."""


@dataclass(frozen=True)
class Particles(AbstractLatent):
    """The Gaussian particles of every site."""

    centers: Float[Tensor, "batch points gaussians dim"]
    """Where each Gaussian peaks, in domain coordinates."""
    scales: Float[Tensor, "batch points gaussians dim"]
    """Standard deviation along every axis, in domain units."""
    weights: Float[Tensor, "batch points gaussians"]
    """Weight of each Gaussian; those of a site sum to one."""

    def basis(
        self, coords: Float[Tensor, "#batch points dim"], domain: Domain
    ) -> Float[Tensor, "batch points gaussians"]:
        r"""Evaluates $z_{ji}=w_{ji}\,G(x_j;\mu_{ji},\sigma_{ji})$, every site's own Gaussians."""
        offset = domain.offset(coords.unsqueeze(-2), self.centers)
        return self.weights * gaussian(offset, self.scales)

    def descriptor(self, domain: Domain) -> Float[Tensor, "batch points features"]:
        r"""Returns $[w_j,\mu_j,\sigma_j]$ in unit coordinates, without a seam where periodic."""
        centers = domain.embed(self.centers)
        scales = self.scales / domain.unit_lengths(self.scales)
        return torch.cat([self.weights, centers.flatten(-2), scales.flatten(-2)], dim=-1)

    def blend(self, neighbours: Neighbours, domain: Domain) -> "Particles":
        """Blends Gaussian i of every neighbour into Gaussian i of the query."""
        centers = neighbours.gather(self.centers)
        # Averaging across a periodic seam: bring all centers next to the nearest site's.
        centers = domain.nearest_image(centers, centers[:, :, :1])
        centers = neighbours.blend(centers)
        return Particles(
            domain.wrap(centers) if domain.is_sphere else centers,
            neighbours.blend(neighbours.gather(self.scales)),
            neighbours.blend(neighbours.gather(self.weights)),
        )

    def placed(self, domain: Domain, dtype: torch.dtype) -> "Particles":
        """Returns the particles in coordinates of the domain."""
        centers, scales = domain.from_local(self.centers), domain.lengths_from_local(self.scales)
        return Particles(centers.to(dtype), scales.to(dtype), self.weights.to(dtype))

    def without(self, sites: Sequence[int], gaussians: Sequence[int]) -> "Particles":
        """Returns the particles with zero weight at some sites, and for some Gaussians of every site."""
        weights = without(without(self.weights, sites, dim=1), gaussians, dim=-1)
        return replace(self, weights=weights)

    def cloud(self, domain: Domain) -> ParticleCloud:
        """Returns all particles in one list: to choose from, measure, save and export."""
        samples, sites, gaussians = torch.ones_like(self.weights).nonzero(as_tuple=True)
        columns = (
            domain.wrap(self.centers).flatten(0, 2),
            self.scales.flatten(0, 2),
            self.weights.flatten(),
        )
        return ParticleCloud(*columns, samples, sites, gaussians, domain)


def join_latents(parts: Sequence[AbstractLatent]) -> AbstractLatent:
    """Returns the particles of all sites from those of chunks of them."""
    if len(parts) == 1:
        return parts[0]
    kind = type(parts[0])
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    return kind(*(torch.cat([getattr(part, name) for part in parts], dim=1) for name in names))
