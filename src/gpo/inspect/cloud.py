"""Particles in one list: what is left of them after choosing, and all that is made of it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gpo.numerics.derivatives import Derivatives, gaussians_at
from gpo.numerics.domain import Domain
from gpo.numerics.footprints import Footprints
from gpo.optional import require

COLUMNS = ("centers", "scales", "weights", "samples", "sites", "gaussians")

MOST_NUMBERS = 2**18
"""Offsets that a sum over particles holds at once: they fit the cache, and any cloud the memory."""


@dataclass(frozen=True)
class ParticleCloud:
    """One row per particle: where it is, how far it reaches, what it weighs, and whose it is."""

    centers: Float[Tensor, "particles dim"]
    """Where each Gaussian peaks, inside the box on periodic axes; where particles move, where what
    arrives at its site came from."""
    scales: Float[Tensor, "particles dim"]
    """Standard deviation along every axis, in domain units."""
    weights: Float[Tensor, " particles"]
    """Fraction of its site's unit of mass; where particles move, of what arrives at its site."""
    samples: Int64[Tensor, " particles"]
    """Number of the sample it is from; of the frame, where samples are frames of a series."""
    sites: Int64[Tensor, " particles"]
    """Number of the site that owns it."""
    gaussians: Int64[Tensor, " particles"]
    """Its number among the Gaussians of its site."""
    domain: Domain
    """Where all of them live."""

    def __post_init__(self) -> None:
        """Refuses columns that do not fit together."""
        shapes = {name: tuple(getattr(self, name).shape) for name in COLUMNS}
        count, dim = len(self.weights), self.domain.dim
        for name, shape in shapes.items():
            expected = (count, dim) if name in ("centers", "scales") else (count,)
            if shape != expected:
                raise ValueError(f"`{name}` must have shape {expected}, got {shape}.")

    def __len__(self) -> int:
        return len(self.weights)

    def select(
        self,
        *,
        samples: Iterable[int] | Tensor | None = None,
        sites: Iterable[int] | Tensor | None = None,
        gaussians: Iterable[int] | Tensor | None = None,
    ) -> "ParticleCloud":
        """Returns the particles of some samples, sites and Gaussians; of all where none are named."""
        is_kept = torch.ones_like(self.samples, dtype=torch.bool)
        given = {"samples": samples, "sites": sites, "gaussians": gaussians}
        for name, numbers in given.items():
            if numbers is not None:
                is_kept &= torch.isin(getattr(self, name), self._numbers(name, numbers))
        return self.rows(is_kept)

    def rows(self, rows: Bool[Tensor, " particles"] | Int64[Tensor, " chosen"]) -> "ParticleCloud":
        """Returns the particles of a mask, or of row numbers in their order."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})

    def above(self, weight: float) -> "ParticleCloud":
        """Returns the particles that weigh more than this."""
        return self.rows(self.weights > weight)

    def heaviest(self, count: int) -> "ParticleCloud":
        """Returns the heaviest particles of every sample, the heaviest first."""
        if count < 1:
            raise ValueError(f"`count` must be at least 1, got {count}.")
        by_weight = self.weights.argsort(descending=True, stable=True)
        order = by_weight[self.samples[by_weight].argsort(stable=True)]
        _, sizes = self.samples.unique(return_counts=True)
        starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        rank = torch.arange(len(self), device=order.device) - starts
        return self.rows(order[rank < count])

    def footprints(self, reach: float = 1.0) -> Footprints:
        """Returns the ellipses or ellipsoids that reach so many standard deviations."""
        if reach <= 0:
            raise ValueError(f"`reach` must be positive, got {reach}.")
        return Footprints.of(self.centers, self.scales, self.domain, float(reach))

    def derivatives(self, points: Float[Tensor, "points dim"]) -> Derivatives:
        r"""Returns $z_i(x)=w_i\,G(x;\mu_i,\sigma_i)$ of every particle, its gradient and Laplacian, exactly.

        The functions are those of `Particles.basis`, at any points. On the sphere derivatives are
        along the surface.
        """
        self._check_points(points)
        columns = self.centers, self.scales, self.weights
        return gaussians_at(points.to(self.centers), *columns, self.domain)

    def total(self, points: Float[Tensor, "points dim"]) -> Derivatives:
        r"""Returns $\sum_iz_i(x)$ over all particles, which are of one sample, with its derivatives."""
        found = self.samples.unique().tolist()
        if len(found) > 1:
            raise ValueError(
                f"Particles of one sample can be added up, got {len(found)} samples. "
                f"Choose one: select(samples=[{found[0]}])."
            )
        num_points = max(1, MOST_NUMBERS // max(1, self.centers.numel()))
        parts = [self.derivatives(part) for part in points.split(num_points)]
        return Derivatives(
            torch.cat([part.values.sum(1) for part in parts]),
            torch.cat([part.gradients.sum(1) for part in parts]),
            torch.cat([part.laplacians.sum(1) for part in parts]),
        )

    # What writes and reads files takes half a second to import, so only those wait who need it.

    def save(self, path: str | Path, *, length_units: str = "1") -> None:
        """Writes a new file, NetCDF (`.nc`) or Zarr (`.zarr`), with CF metadata.

        Args:
            path: The file; it is whole or not there.
            length_units: Units of the domain's coordinates, such as "m".
        """
        save_columns = require("gpo.inspect.files", "data", "Saving particles").save_columns
        save_columns(path, length_units, **vars(self))

    @classmethod
    def load(cls, path: str | Path) -> "ParticleCloud":
        """Returns what `save` wrote."""
        load_columns = require("gpo.inspect.files", "data", "Loading particles").load_columns
        return cls(**load_columns(path))

    def export(self, path: str | Path, *, is_text: bool = False) -> None:
        """Writes a new file for other programs: VTK points (`.vtp`) or a point cloud (`.ply`).

        Args:
            path: The file; it is whole or not there.
            is_text: Whether numbers are written out, not as bytes.
        """
        from gpo.inspect.vtk import export_cloud

        export_cloud(self, path, is_text)

    def _numbers(self, name: str, numbers: Iterable[int] | Tensor) -> Tensor:
        wanted = numbers if isinstance(numbers, Tensor) else torch.tensor(list(numbers)).long()
        if wanted.is_floating_point() or wanted.dtype == torch.bool or wanted.ndim != 1:
            raise ValueError(
                f"`{name}` must be a list of numbers, got a tensor of {wanted.dtype} of shape "
                f"{tuple(wanted.shape)}. Of a mask: {name}=mask.nonzero().flatten()."
            )
        if bool((wanted < 0).any()):
            raise ValueError(f"`{name}` must count from 0, got {wanted.min().item()}.")
        return wanted.to(self.samples.device)

    def _check_points(self, points: Tensor) -> None:
        if points.ndim != 2 or points.shape[1] != self.domain.dim or len(points) == 0:
            raise ValueError(
                f"`points` must have shape (points, {self.domain.dim}), at least one, "
                f"got {tuple(points.shape)}."
            )
        norms = points.norm(dim=-1)
        if self.domain.is_sphere and bool(((norms - 1).abs() > 1e-3).any()):
            raise ValueError(
                f"`points` must be unit vectors on the sphere, got lengths from {norms.min():.4g} "
                f"to {norms.max():.4g}. Longitudes and latitudes: gpo.unit_vectors(lon, lat)."
            )
