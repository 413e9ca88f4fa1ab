r"""A field as a sum of Gaussians: $u(x)=b+\sum_ka_k\exp\big(-\tfrac12(x-\mu_k)^\top\Sigma_k^{-1}(x-\mu_k)\big)$.

$\Sigma_k=L_kL_k^\top$ is a full covariance with Cholesky factor $L_k$. On periodic axes the images
of every Gaussian are added. On the sphere $x$ and $\mu_k$ are unit vectors, and derivatives are
tangential to the surface.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gpo.inspect.cloud import ParticleCloud, check_points
from gpo.numerics.derivatives import Derivatives
from gpo.numerics.domain import Domain
from gpo.numerics.footprints import Footprints, tangent_frame
from gpo.numerics.norms import relative_l2
from gpo_mixture.images import EXACT_CUTOFF, Images, periodic_images
from gpo_mixture.integral import gaussian_integrals

MAX_ENTRIES = 2**21
"""Coordinates of pairs of image and point that are computed at once."""


@dataclass(frozen=True)
class GaussianMixture:
    """A field as a sum of Gaussians, each with a center, a full covariance and an amplitude per variable.

    `gpo_mixture.fit` returns one.
    """

    centers: Float[Tensor, "particles dim"]
    """Peak of each Gaussian; unit vectors on the sphere."""
    factors: Float[Tensor, "particles dim dim"]
    """Lower Cholesky factors of the covariances, in domain units."""
    amplitudes: Float[Tensor, "particles channels"]
    """Height of each Gaussian in every variable, of either sign."""
    offset: Float[Tensor, " channels"]
    """Value of every variable far from all Gaussians."""
    labels: Int64[Tensor, " particles"]
    """Identity of each Gaussian, kept from frame to frame of a series."""
    domain: Domain
    """Domain of the field."""
    variables: tuple[str, ...] = ()
    """Names of the variables; may be empty."""

    def __post_init__(self) -> None:
        """Checks that the shapes of all columns agree."""
        count, dim = len(self.labels), self.domain.dim
        channels = len(self.offset)
        expected = {
            "centers": (count, dim),
            "factors": (count, dim, dim),
            "amplitudes": (count, channels),
        }
        for name, shape in expected.items():
            actual = tuple(getattr(self, name).shape)
            if actual != shape:
                raise ValueError(f"`{name}` must have shape {shape}, got {actual}.")
        if self.variables and len(self.variables) != channels:
            raise ValueError(
                f"`variables` must name every variable ({channels}), got {self.variables}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def covariances(self) -> Float[Tensor, "particles dim dim"]:
        r"""$\Sigma_k=L_kL_k^\top$."""
        return self.factors @ self.factors.mT

    @property
    def scales(self) -> Float[Tensor, "particles dim"]:
        """Standard deviation along every axis of the domain."""
        return self.factors.norm(dim=-1)

    @property
    def num_parameters(self) -> int:
        """Number of stored parameters: centers, covariances, amplitudes and the offset.

        On the sphere a center has two degrees of freedom and a covariance three.
        """
        axes = self.domain.dim - self.domain.is_sphere
        per_shape = axes + axes * (axes + 1) // 2
        return len(self) * (per_shape + len(self.offset)) + len(self.offset)

    def __call__(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "points channels"]:
        """Evaluates the field at any points."""
        images, inverse = self._images(points)
        amplitudes = self.amplitudes[images.indices]
        parts = []
        for part in self._chunks(points, images):
            z = self._whitened(part, images, inverse)
            parts.append(torch.exp(-0.5 * z.square().sum(1)).mT @ amplitudes)
        return torch.cat(parts) + self.offset

    def derivatives(self, points: Float[Tensor, "points dim"]) -> Derivatives:
        """Returns the field, its gradient and its Laplacian at any points, in closed form.

        The last axis of values and Laplacians is the channel; gradients have the axes of the domain
        after it. On the sphere derivatives are tangential to the surface.
        """
        images, inverse = self._images(points)
        parts = [self._derivatives(part, images, inverse) for part in self._chunks(points, images)]
        values, gradients, laplacians = (torch.cat(part) for part in zip(*parts, strict=True))
        return Derivatives(values + self.offset, gradients, laplacians)

    def integral(self) -> Float[Tensor, " channels"]:
        """Returns the integral of every variable over the box, or over the whole sphere.

        It is a closed form on periodic axes. What lies outside a non-periodic boundary is excluded.
        """
        if self.domain.is_sphere:
            size = 4 * torch.pi
        else:
            size = float(self.domain.unit_lengths(self.centers).expand(self.domain.dim).prod())
        integrals = gaussian_integrals(self.centers, self.factors, self.domain)
        return integrals @ self.amplitudes + size * self.offset

    def error(
        self,
        values: Float[Tensor, "points channels"] | Float[Tensor, " points"],
        coords: Float[Tensor, "points dim"],
        weights: Float[Tensor, " points"] | None = None,
    ) -> float:
        """Returns the relative L2 error over all variables at points with quadrature `weights`."""
        values = values.reshape(len(values), -1).to(self.centers)
        coords = coords.to(self.centers)
        if weights is None:
            return float(relative_l2(self(coords)[None], values[None]))
        weights = weights.to(self.centers)
        # Coordinates of masked sites may be NaN.
        is_active = weights > 0
        coords = torch.where(is_active.unsqueeze(-1), coords, coords[is_active][:1])
        return float(relative_l2(self(coords)[None], values[None], weights[None]))

    def rows(
        self, rows: Bool[Tensor, " particles"] | Int64[Tensor, " selected"]
    ) -> "GaussianMixture":
        """Returns the Gaussians of a mask, or of row indices in their order."""
        names = ("centers", "factors", "amplitudes", "labels")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def footprints(self, reach: float = 1.0) -> Footprints:
        """Returns the ellipses or ellipsoids at `reach` standard deviations."""
        if reach <= 0:
            raise ValueError(f"`reach` must be positive, got {reach}.")
        if not self.domain.is_sphere:
            squares, axes = torch.linalg.eigh(self.covariances)
            semi_axes = squares.clamp_min(0).sqrt().flip(-1)
            return Footprints(self.centers, reach * semi_axes, axes.mT.flip(-2), self.domain)
        frame = tangent_frame(self.centers)
        squares, axes = torch.linalg.eigh(frame @ self.covariances @ frame.mT)
        longest = axes[..., 1:].mT @ frame
        shortest = torch.linalg.cross(self.centers.unsqueeze(-2), longest)
        semi_axes = reach * squares.clamp_min(0).sqrt().flip(-1)
        return Footprints(self.centers, semi_axes, torch.cat([longest, shortest], -2), self.domain)

    def cloud(self, frame: int = 0) -> ParticleCloud:
        """Returns a particle cloud: `sites` are labels, weights are RMS amplitudes over variables."""
        weights = self.amplitudes.square().mean(-1).sqrt()
        samples, gaussians = torch.full_like(self.labels, frame), torch.zeros_like(self.labels)
        return ParticleCloud(
            self.centers, self.scales, weights, samples, self.labels, gaussians, self.domain
        )

    def _images(self, points: Tensor) -> tuple[Images, Tensor]:
        """Checks `points`; returns all images and the inverse Cholesky factor of each."""
        if not bool(points.isfinite().all()):
            raise ValueError("`points` must be finite, got NaN or infinity.")
        check_points(points, self.domain)
        reaches = EXACT_CUTOFF * self.scales
        images = periodic_images(self.domain.wrap(self.centers), reaches, self.domain)
        eye = torch.eye(self.domain.dim).to(self.factors).expand_as(self.factors)
        inverse = torch.linalg.solve_triangular(self.factors, eye, upper=False)
        return images, inverse[images.indices]

    def _whitened(self, points: Tensor, images: Images, inverse: Tensor) -> Tensor:
        offsets = self.domain.wrap(points).mT - images.centers.unsqueeze(-1)
        return inverse @ offsets

    def _chunks(self, points: Tensor, images: Images) -> tuple[Tensor, ...]:
        size = MAX_ENTRIES // max(1, len(images.indices) * self.domain.dim)
        return points.to(self.centers).split(max(1, size))

    def _derivatives(self, points: Tensor, images: Images, inverse: Tensor) -> tuple:
        z = self._whitened(points, images, inverse)
        basis = torch.exp(-0.5 * z.square().sum(1))
        # Gradient and Laplacian of every Gaussian, divided by its value.
        slopes = -(inverse.mT @ z)
        curvatures = slopes.square().sum(1) - inverse.square().sum((-2, -1)).unsqueeze(-1)
        if self.domain.is_sphere:
            normal_precision = (inverse @ points.mT).square().sum(1)
            outward = (slopes * points.mT).sum(1)
            # Laplace-Beltrami: without the second normal derivative, minus the curvature term.
            curvatures = curvatures - (outward.square() - normal_precision) - 2 * outward
            slopes = slopes - outward.unsqueeze(1) * points.mT
        amplitudes = self.amplitudes[images.indices]
        return (
            basis.mT @ amplitudes,
            torch.einsum("kn,kdn,kc->ncd", basis, slopes, amplitudes),
            (basis * curvatures).mT @ amplitudes,
        )
