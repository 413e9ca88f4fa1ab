"""Gaussian particles: the state of the field (section 2.1, eq. 1 and 2)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.inspect.cloud import ParticleCloud
from gpo.model.ablation import Ablation
from gpo.numerics.domain import Domain
from gpo.numerics.gaussian import gaussian
from gpo.numerics.neighbours import Neighbours


class AbstractLatent(ABC):
    """What every site owns: particles, or what the ablation without them puts in their place."""

    @abstractmethod
    def basis(
        self, coords: Float[Tensor, "#batch points dim"], domain: Domain
    ) -> Float[Tensor, "batch points gaussians"]:
        """Evaluates every site's own basis at `coords`, one point per site."""

    @abstractmethod
    def descriptor(self, domain: Domain) -> Float[Tensor, "batch points features"]:
        """Returns what windows see of a site besides its basis."""

    @abstractmethod
    def blend(self, neighbours: Neighbours, domain: Domain) -> "AbstractLatent":
        """Returns what free queries own: that of their neighbours, blended."""

    @classmethod
    def joined(cls, parts: Sequence["AbstractLatent"]) -> "AbstractLatent":
        """Returns what all sites own from what chunks of them own."""
        if len(parts) == 1:
            return parts[0]
        names = [field.name for field in fields(cls)]  # pyright: ignore[reportArgumentType]
        return cls(*(torch.cat([getattr(part, name) for part in parts], dim=1) for name in names))

    def placed(self, domain: Domain, dtype: torch.dtype) -> "AbstractLatent":
        """Returns the same in coordinates of the domain, which inside are counted from its corner.

        Args:
            domain: Where the sites lie.
            dtype: In which their coordinates were given.
        """
        return self

    @abstractmethod
    def ablated(self, ablation: Ablation) -> "AbstractLatent":
        """Returns the same with nothing at ablated sites, and without ablated Gaussians."""


@dataclass(frozen=True)
class Particles(AbstractLatent):
    """The Gaussians every site owns: the state that can be drawn."""

    centers: Float[Tensor, "batch points gaussians dim"]
    """Where each Gaussian peaks, in domain coordinates."""
    scales: Float[Tensor, "batch points gaussians dim"]
    """Standard deviation along every axis, in domain units."""
    weights: Float[Tensor, "batch points gaussians"]
    """How a site's unit of mass is shared among its Gaussians."""

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

    def ablated(self, ablation: Ablation) -> "Particles":
        """Returns the particles; ablated ones, and those of ablated sites, have weight zero."""
        return replace(self, weights=ablation.of_sites(self.weights))

    def cloud(self, domain: Domain) -> ParticleCloud:
        """Returns all particles in one list: to choose from, measure, save and export."""
        samples, sites, gaussians = torch.ones_like(self.weights).nonzero(as_tuple=True)
        columns = (
            domain.wrap(self.centers).flatten(0, 2),
            self.scales.flatten(0, 2),
            self.weights.flatten(),
        )
        return ParticleCloud(*columns, samples, sites, gaussians, domain)
