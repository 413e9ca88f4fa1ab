r"""A field as few Gaussians: $u(x)=b+\sum_ka_k\exp\big(-\tfrac12(x-\mu_k)^\top\Sigma_k^{-1}(x-\mu_k)\big)$.

$\Sigma_k=L_kL_k^\top$ is a full covariance, $L_k$ its Cholesky factor. On periodic axes the images of
a Gaussian are added up. On the sphere $x$ and $\mu_k$ are unit vectors, and derivatives are those
along the surface.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gpo.inspect.cloud import ParticleCloud
from gpo.numerics.derivatives import Derivatives
from gpo.numerics.domain import Domain
from gpo.numerics.footprints import Footprints, tangent_frame
from gpo.numerics.norms import relative_l2
from gpo.optional import require
from gpo_mixture.images import EXACT, Images, images_of

if TYPE_CHECKING:
    from gpo_mixture.compare import MixtureComparison

MOST_NUMBERS = 2**21
"""Pairs of image and point that are held at once."""


@dataclass(frozen=True)
class GaussianMixture:
    """A field as a sum of Gaussians, each with a center, a full covariance and an amplitude per variable."""

    centers: Float[Tensor, "particles dim"]
    """Where each Gaussian peaks; unit vectors on the sphere."""
    factors: Float[Tensor, "particles dim dim"]
    """Lower Cholesky factors of the covariances, in domain units."""
    amplitudes: Float[Tensor, "particles channels"]
    """Height of each Gaussian in every variable, of either sign."""
    offset: Float[Tensor, " channels"]
    """What every variable is far from all Gaussians."""
    labels: Int64[Tensor, " particles"]
    """The name of each particle, which it keeps from frame to frame."""
    domain: Domain
    """Where all of them live."""
    variables: tuple[str, ...] = ()
    """Names of the variables, where they are known."""

    def __post_init__(self) -> None:
        """Refuses columns that do not fit together."""
        count, dim = len(self.labels), self.domain.dim
        channels = len(self.offset)
        expected = {
            "centers": (count, dim),
            "factors": (count, dim, dim),
            "amplitudes": (count, channels),
        }
        for name, shape in expected.items():
            found = tuple(getattr(self, name).shape)
            if found != shape:
                raise ValueError(f"`{name}` must have shape {shape}, got {found}.")
        if self.variables and len(self.variables) != channels:
            raise ValueError(
                f"`variables` must name every variable ({channels}), got {self.variables}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def fit(
        cls,
        values: Float[Tensor, "points channels"] | Float[Tensor, " points"],
        coords: Float[Tensor, "points dim"],
        weights: Float[Tensor, " points"] | None = None,
        num_particles: int = 100,
        *,
        domain: Domain | None = None,
        covariance: Literal["full", "diagonal"] = "full",
        num_steps: int = 20,
        start: "GaussianMixture | None" = None,
        progress: Callable[[int, int], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> "GaussianMixture":
        """Returns the Gaussians that are closest to a field in the weighted least-squares sense.

        Args:
            values: The field at its sites.
            coords: The sites; unit vectors on the sphere.
            weights: Quadrature weights; 0 masks a site. All equal when not given.
            num_particles: How many Gaussians; as many as `start` has where that is given.
            domain: Where the sites lie; the smallest open box around them when not given.
            covariance: full, or diagonal: ellipses along the axes.
            num_steps: Steps of every round; more are slower and closer.
            start: A fit to begin with, such as that of the frame before; its particles keep
                their labels.
            progress: Called with the rounds that are done and that there are.
            should_stop: Asked before every step; once true, the fit ends with all particles in
                place but places and shapes improved only so far. What it raises ends the fit.
        """
        from gpo_mixture.fit import fit_mixture

        return fit_mixture(
            values, coords, weights, num_particles,
            domain=domain, covariance=covariance, num_steps=num_steps, start=start,
            progress=progress, should_stop=should_stop,
        )  # fmt: skip

    @property
    def covariances(self) -> Float[Tensor, "particles dim dim"]:
        r"""$\Sigma_k=L_kL_k^\top$."""
        return self.factors @ self.factors.mT

    @property
    def scales(self) -> Float[Tensor, "particles dim"]:
        """Standard deviation along every axis of the domain."""
        return self.factors.norm(dim=-1)

    @property
    def num_numbers(self) -> int:
        """How many numbers are stored: center, covariance and amplitudes of each, and the offset.

        On the sphere a center has two degrees of freedom and a covariance three.
        """
        axes = self.domain.dim - self.domain.is_sphere
        shape = axes + axes * (axes + 1) // 2
        return len(self) * (shape + len(self.offset)) + len(self.offset)

    def __call__(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "points channels"]:
        """Returns the field at any points."""
        self._check_points(points)
        images, inverse = self._images()
        amplitudes = self.amplitudes[images.owners]
        parts = []
        for part in self._split(points, images):
            z = self._whitened(part, images, inverse)
            parts.append(torch.exp(-0.5 * z.square().sum(1)).mT @ amplitudes)
        return torch.cat(parts) + self.offset

    def derivatives(self, points: Float[Tensor, "points dim"]) -> Derivatives:
        """Returns the field, its gradient and its Laplacian at any points, in closed form.

        The channels are the last axis of values and Laplacians; gradients have the axes of the
        domain after it. On the sphere they are along the surface.
        """
        self._check_points(points)
        images, inverse = self._images()
        parts = [self._derivatives(part, images, inverse) for part in self._split(points, images)]
        values, gradients, laplacians = (torch.cat(part) for part in zip(*parts, strict=True))
        return Derivatives(values + self.offset, gradients, laplacians)

    def integral(self) -> Float[Tensor, " channels"]:
        """Returns the integral of every variable over the box, or over the whole sphere.

        On periodic axes it is a closed form. Where an open end cuts a Gaussian, what lies beyond
        does not count.
        """
        from gpo_mixture.integral import masses

        if self.domain.is_sphere:
            size = 4 * torch.pi
        else:
            size = float(self.domain.unit_lengths(self.centers).expand(self.domain.dim).prod())
        found = masses(self.centers, self.factors, self.domain)
        return found @ self.amplitudes + size * self.offset

    def error(
        self,
        values: Float[Tensor, "points channels"] | Float[Tensor, " points"],
        coords: Float[Tensor, "points dim"],
        weights: Float[Tensor, " points"] | None = None,
    ) -> float:
        """Returns the relative L2 error at sites: over all variables, from zero."""
        values = values.reshape(len(values), -1).to(self.centers)
        q = None if weights is None else weights[None].to(self.centers)
        coords = _placed(coords, weights, self.centers)
        return float(relative_l2(self(coords)[None], values[None], q))

    def rows(
        self, rows: Bool[Tensor, " particles"] | Int64[Tensor, " chosen"]
    ) -> "GaussianMixture":
        """Returns the particles of a mask, or of row numbers in their order."""
        names = ("centers", "factors", "amplitudes", "labels")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def prune(
        self,
        values: Float[Tensor, "points channels"] | Float[Tensor, " points"],
        coords: Float[Tensor, "points dim"],
        weights: Float[Tensor, " points"] | None = None,
        *,
        allowed: float = 0.1,
    ) -> "GaussianMixture":
        """Returns fewer particles, with amplitudes fitted anew.

        Args:
            values: The field.
            coords: Its sites.
            weights: Quadrature weights; 0 masks a site.
            allowed: How much larger the error may become, as a fraction of what it is.
        """
        from gpo_mixture.prune import prune_mixture

        return prune_mixture(self, values, coords, weights, allowed)

    def compare(
        self,
        other: "GaussianMixture",
        coords: Float[Tensor, "points dim"],
        weights: Float[Tensor, " points"] | None = None,
        *,
        min_similarity: float = 0.5,
    ) -> "MixtureComparison":
        """Returns which Gaussians of another mixture are these, and how far both fields are apart.

        Pairs are chosen so that the sum of their similarities is largest; labels do not matter.

        Args:
            other: The other mixture, of the same domain and variables.
            coords: Sites at which the fields are compared.
            weights: Quadrature weights; 0 masks a site.
            min_similarity: Pairs that are less alike are left out.
        """
        from gpo_mixture.compare import compare_mixtures

        return compare_mixtures(self, other, coords, weights, min_similarity)

    def footprints(self, reach: float = 1.0) -> Footprints:
        """Returns the ellipses or ellipsoids that reach so many standard deviations."""
        if reach <= 0:
            raise ValueError(f"`reach` must be positive, got {reach}.")
        if not self.domain.is_sphere:
            squares, turns = torch.linalg.eigh(self.covariances)
            semi_axes = squares.clamp_min(0).sqrt().flip(-1)
            return Footprints(self.centers, reach * semi_axes, turns.mT.flip(-2), self.domain)
        frame = tangent_frame(self.centers)
        squares, turns = torch.linalg.eigh(frame @ self.covariances @ frame.mT)
        longest = turns[..., 1:].mT @ frame
        across = torch.linalg.cross(self.centers.unsqueeze(-2), longest)
        semi_axes = reach * squares.clamp_min(0).sqrt().flip(-1)
        return Footprints(self.centers, semi_axes, torch.cat([longest, across], -2), self.domain)

    def cloud(self, frame: int = 0) -> ParticleCloud:
        """Returns the particles in one list; weights are heights, over all variables."""
        weights = self.amplitudes.square().mean(-1).sqrt()
        frames = torch.full_like(self.labels, frame)
        none = torch.zeros_like(self.labels)
        return ParticleCloud(
            self.centers, self.scales, weights, frames, self.labels, none, self.domain
        )

    # What writes and reads files takes half a second to import, so only those wait who need it.

    def save(self, path: str | Path, *, length_units: str = "1") -> None:
        """Writes a new file, NetCDF (`.nc`) or Zarr (`.zarr`), with CF metadata."""
        files = require("gpo_mixture.files", "data", "Saving Gaussians")
        files.save_mixtures(path, [self], length_units=length_units)

    @classmethod
    def load(cls, path: str | Path) -> "GaussianMixture":
        """Returns what `save` wrote."""
        return require("gpo_mixture.files", "data", "Loading Gaussians").load_mixture(path)

    def export(self, path: str | Path, *, is_text: bool = False) -> None:
        """Writes a new file for other programs: VTK points (`.vtp`) or a point cloud (`.ply`)."""
        from gpo_mixture.exports import export_mixtures

        export_mixtures([self], path, is_text)

    def _images(self) -> tuple[Images, Tensor]:
        """Returns all images, and what whitens the offsets of each."""
        images = images_of(self.domain.wrap(self.centers), EXACT * self.scales, self.domain)
        eye = torch.eye(self.domain.dim).to(self.factors).expand_as(self.factors)
        inverse = torch.linalg.solve_triangular(self.factors, eye, upper=False)
        return images, inverse[images.owners]

    def _whitened(self, points: Tensor, images: Images, inverse: Tensor) -> Tensor:
        offsets = self.domain.wrap(points).mT - images.centers.unsqueeze(-1)
        return inverse @ offsets

    def _split(self, points: Tensor, images: Images) -> tuple[Tensor, ...]:
        number = MOST_NUMBERS // max(1, len(images.owners) * self.domain.dim)
        return points.to(self.centers).split(max(1, number))

    def _derivatives(self, points: Tensor, images: Images, inverse: Tensor) -> tuple:
        z = self._whitened(points, images, inverse)
        peaks = torch.exp(-0.5 * z.square().sum(1))
        slopes = -(inverse.mT @ z)
        curvature = slopes.square().sum(1) - inverse.square().sum((-2, -1)).unsqueeze(-1)
        if self.domain.is_sphere:
            along = (inverse @ points.mT).square().sum(1)
            outward = (slopes * points.mT).sum(1)
            # Derivatives along the normal are taken away, and what the curved surface adds.
            curvature = curvature - (outward.square() - along) - 2 * outward
            slopes = slopes - outward.unsqueeze(1) * points.mT
        amplitudes = self.amplitudes[images.owners]
        return (
            peaks.mT @ amplitudes,
            torch.einsum("kn,kdn,kc->ncd", peaks, slopes, amplitudes),
            (peaks * curvature).mT @ amplitudes,
        )

    def _check_points(self, points: Tensor) -> None:
        if points.ndim != 2 or points.shape[1] != self.domain.dim or len(points) == 0:
            raise ValueError(
                f"`points` must have shape (points, {self.domain.dim}), at least one, "
                f"got {tuple(points.shape)}."
            )
        if not bool(points.isfinite().all()):
            raise ValueError("`points` must be finite, got NaN or infinity.")
        norms = points.norm(dim=-1)
        if self.domain.is_sphere and bool(((norms - 1).abs() > 1e-3).any()):
            raise ValueError(
                f"`points` must be unit vectors on the sphere, got lengths from {norms.min():.4g} "
                f"to {norms.max():.4g}. Longitudes and latitudes: gpo.unit_vectors(lon, lat)."
            )


def _placed(coords: Tensor, weights: Tensor | None, like: Tensor) -> Tensor:
    """Returns sites of which those that do not count are somewhere, too."""
    coords = coords.to(like)
    if weights is None:
        return coords
    is_counted = (weights > 0).to(coords.device)
    return torch.where(is_counted.unsqueeze(-1), coords, coords[is_counted][:1])
