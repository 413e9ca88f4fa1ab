"""A list of Gaussian particles: selection, footprints, derivatives, files and exports."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gpo.inspect.vtk import export_points, pad_to_3d
from gpo.numerics.derivatives import Derivatives, gaussians_at
from gpo.numerics.domain import Domain
from gpo.numerics.footprints import Footprints
from gpo.optional import require

COLUMNS = ("centers", "scales", "weights", "samples", "sites", "gaussians")

MAX_ENTRIES = 2**18
"""Offsets that `ParticleCloud.total` computes at once, so that they fit into the cache."""


@dataclass(frozen=True)
class ParticleCloud:
    """A list of particles, one row each: center, scales, weight, and the indices of its origin."""

    centers: Float[Tensor, "particles dim"]
    """Peak of each Gaussian, inside the box on periodic axes; in the geometric variant, the
    departure point of its site."""
    scales: Float[Tensor, "particles dim"]
    """Standard deviation along every axis, in domain units."""
    weights: Float[Tensor, " particles"]
    """Fraction of the site's unit mass; in the geometric variant, of its transported contribution."""
    samples: Int64[Tensor, " particles"]
    """Index of the sample, or of the frame where the samples are frames of a series."""
    sites: Int64[Tensor, " particles"]
    """Index of the site that the particle belongs to."""
    gaussians: Int64[Tensor, " particles"]
    """Index among the Gaussians of that site."""
    domain: Domain
    """Domain of all particles."""

    def __post_init__(self) -> None:
        """Checks that all columns have the same number of rows."""
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
        """Returns the particles with these sample, site and Gaussian indices; None selects all."""
        is_selected = torch.ones_like(self.samples, dtype=torch.bool)
        requested = {"samples": samples, "sites": sites, "gaussians": gaussians}
        for name, indices in requested.items():
            if indices is not None:
                is_selected &= torch.isin(getattr(self, name), self._indices(name, indices))
        return self.rows(is_selected)

    def rows(
        self, rows: Bool[Tensor, " particles"] | Int64[Tensor, " selected"]
    ) -> "ParticleCloud":
        """Returns the particles of a mask, or of row indices in their order."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})

    def above(self, weight: float) -> "ParticleCloud":
        """Returns the particles with more than this weight."""
        return self.rows(self.weights > weight)

    def heaviest(self, count: int) -> "ParticleCloud":
        """Returns the `count` heaviest particles of every sample, in descending order of weight."""
        if count < 1:
            raise ValueError(f"`count` must be at least 1, got {count}.")
        by_weight = self.weights.argsort(descending=True, stable=True)
        order = by_weight[self.samples[by_weight].argsort(stable=True)]
        _, sizes = self.samples.unique(return_counts=True)
        starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        rank = torch.arange(len(self), device=order.device) - starts
        return self.rows(order[rank < count])

    def footprints(self, reach: float = 1.0) -> Footprints:
        """Returns the ellipses or ellipsoids at `reach` standard deviations."""
        if reach <= 0:
            raise ValueError(f"`reach` must be positive, got {reach}.")
        return Footprints.of(self.centers, self.scales, self.domain, float(reach))

    def derivatives(self, points: Float[Tensor, "points dim"]) -> Derivatives:
        r"""Returns $z_i(x)=w_i\,G(x;\mu_i,\sigma_i)$ of every particle with exact gradient and Laplacian.

        The functions are those of `Particles.basis`, at any points. On the sphere the derivatives
        are tangential to the surface.
        """
        check_points(points, self.domain)
        columns = self.centers, self.scales, self.weights
        return gaussians_at(points.to(self.centers), *columns, self.domain)

    def total(self, points: Float[Tensor, "points dim"]) -> Derivatives:
        r"""Returns $\sum_iz_i(x)$ over the particles of a single sample, with its derivatives."""
        samples = self.samples.unique().tolist()
        if len(samples) > 1:
            raise ValueError(
                f"The particles must be of a single sample, got {len(samples)} samples. "
                f"Choose one: select(samples=[{samples[0]}])."
            )
        num_points = max(1, MAX_ENTRIES // max(1, self.centers.numel()))
        parts = [self.derivatives(part) for part in points.split(num_points)]
        return Derivatives(
            torch.cat([part.values.sum(1) for part in parts]),
            torch.cat([part.gradients.sum(1) for part in parts]),
            torch.cat([part.laplacians.sum(1) for part in parts]),
        )

    # xarray takes half a second to import, so it is imported only to read or write a file.

    def save(self, path: str | Path, *, length_units: str = "1") -> None:
        """Writes a new NetCDF (`.nc`) or Zarr (`.zarr`) file with CF metadata.

        Args:
            path: The file; it is written completely or not at all.
            length_units: Units of the domain's coordinates, such as "m".
        """
        save_columns = require("gpo.inspect.files", "data", "Saving particles").save_columns
        save_columns(path, length_units, **vars(self))

    @classmethod
    def load(cls, path: str | Path) -> "ParticleCloud":
        """Returns the cloud that `save` wrote."""
        load_columns = require("gpo.inspect.files", "data", "Loading particles").load_columns
        return cls(**load_columns(path))

    def export(self, path: str | Path, *, is_text: bool = False) -> None:
        """Writes a new file of VTK points (`.vtp`) or a PLY point cloud (`.ply`).

        Args:
            path: The file; it is written completely or not at all.
            is_text: Whether to write text instead of binary numbers.
        """
        columns = {
            "weight": self.weights,
            "scale": pad_to_3d(self.scales),
            "sample": self.samples.to(torch.int32),
            "site": self.sites.to(torch.int32),
            "gaussian": self.gaussians.to(torch.int32),
        }
        export_points(path, self.centers, columns, self.footprints().tensors, is_text)

    def _indices(self, name: str, indices: Iterable[int] | Tensor) -> Tensor:
        indices = indices if isinstance(indices, Tensor) else torch.tensor(list(indices)).long()
        if indices.is_floating_point() or indices.dtype == torch.bool or indices.ndim != 1:
            raise ValueError(
                f"`{name}` must be a list of numbers, got a tensor of {indices.dtype} of shape "
                f"{tuple(indices.shape)}. For a mask: {name}=mask.nonzero().flatten()."
            )
        if bool((indices < 0).any()):
            raise ValueError(f"`{name}` must count from 0, got {indices.min().item()}.")
        return indices.to(self.samples.device)


def check_points(points: Tensor, domain: Domain) -> None:
    """Raises a `ValueError` unless `points` is a non-empty list of points of the domain."""
    if points.ndim != 2 or points.shape[1] != domain.dim or len(points) == 0:
        raise ValueError(
            f"`points` must have shape (points, {domain.dim}), at least one, "
            f"got {tuple(points.shape)}."
        )
    norms = points.norm(dim=-1)
    if domain.is_sphere and bool(((norms - 1).abs() > 1e-3).any()):
        raise ValueError(
            f"`points` must be unit vectors on the sphere, got lengths from {norms.min():.4g} "
            f"to {norms.max():.4g}. Longitudes and latitudes: gpo.unit_vectors(lon, lat)."
        )
