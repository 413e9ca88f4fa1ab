r"""Gaussians during a fit: centers $\mu$ and square roots $R$ of their covariances, $\Sigma=RR^\top$.

A step is taken in coordinates in which the Gaussian is isotropic: $\mu\leftarrow\mu+R\varepsilon$
and $R\leftarrow Re^{S/2}$ with a symmetric $S$. Covariances therefore stay positive definite, and
steps do not depend on units or axes. With $z=R^{-1}(x-\mu)$ and $\varphi=e^{-|z|^2/2}$ the derivatives
are $\partial\varphi/\partial\varepsilon=\varphi z$ and $\partial\varphi/\partial S=\tfrac12\varphi zz^\top$.

On the sphere the columns of $R$ are two tangent vectors. With $h=x\cdot\mu$ and $z=R^+x$ a Gaussian is
$e^{-(|z|^2+(1-h)^2/s^2)/2}$, $s^4=\det R^\top R$; an isotropic one depends on the chord length alone.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo_mixture.images import periodic_images

Covariance = Literal["full", "diagonal"]

CUTOFF = 5.5
"""Standard deviations beyond which periodic images are neglected during a fit."""
OFF_DIAGONAL = 2**-0.5
"""Factor of the off-diagonal entries of S: steps of equal length then stretch equally in any direction."""
MAX_STEP = 1.0
"""Largest step: of a center in standard deviations, of the logarithm of a variance."""


@dataclass(frozen=True)
class AbstractShapes(ABC):
    """Centers and covariance roots of Gaussians, with the steps of a fit."""

    centers: Float[Tensor, "particles dim"]
    roots: Float[Tensor, "particles dim axes"]
    domain: Domain
    covariance: Covariance = "full"

    def __len__(self) -> int:
        return len(self.centers)

    @property
    def num_axes(self) -> int:
        """Number of principal axes of a Gaussian."""
        return self.roots.shape[-1]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The free entries of S."""
        axes = range(self.num_axes)
        is_full = self.covariance == "full"
        return [(i, j) for i in axes for j in axes if i == j or (is_full and i < j)]

    @property
    def num_free(self) -> int:
        """Degrees of freedom of the center and covariance of a Gaussian."""
        return self.num_axes + len(self.pairs)

    @abstractmethod
    def basis(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "particles points"]:
        """Evaluates every Gaussian at every point."""

    @abstractmethod
    def tangents(
        self, points: Float[Tensor, "points dim"], dtype: torch.dtype = torch.float64
    ) -> tuple[Float[Tensor, "particles points"], Float[Tensor, "particles free points"]]:
        """Returns every Gaussian and its derivatives by the entries of a step, in `dtype`."""

    @abstractmethod
    def transported(
        self, offsets: Float[Tensor, "particles axes"], roots: Float[Tensor, "particles dim axes"]
    ) -> "AbstractShapes":
        """Returns Gaussians with centers moved by `R offsets` and `roots` carried along.

        Args:
            offsets: Whitened displacements.
            roots: New roots, expressed at the old centers.
        """

    @abstractmethod
    def factors(self) -> Float[Tensor, "particles dim dim"]:
        """Returns the Cholesky factors of the covariances."""

    @abstractmethod
    def whitened(
        self, points: Float[Tensor, "points dim"]
    ) -> Float[Tensor, "particles axes points"]:
        """Returns whitened offsets of the points from every center; minimum image on periodic axes."""

    def stepped(self, step: Float[Tensor, "particles free"]) -> "AbstractShapes":
        """Returns the Gaussians after a step, shortened to `MAX_STEP` where necessary."""
        offsets, entries = step[:, : self.num_axes], step[:, self.num_axes :]
        length = offsets.detach().norm(dim=-1, keepdim=True)
        offsets = offsets * (MAX_STEP / length.clamp_min(MAX_STEP))
        symmetric = step.new_zeros(len(step), self.num_axes, self.num_axes)
        for number, (i, j) in enumerate(self.pairs):
            entry = entries[:, number] * (1.0 if i == j else OFF_DIAGONAL)
            symmetric[:, i, j] = symmetric[:, j, i] = entry
        size = torch.linalg.matrix_norm(symmetric.detach(), ord=2)[:, None, None]
        symmetric = symmetric * (MAX_STEP / size.clamp_min(MAX_STEP))
        return self.transported(offsets, self.roots @ torch.linalg.matrix_exp(symmetric / 2))

    def clamped(self, smallest: Float[Tensor, " particles"], largest: float) -> "AbstractShapes":
        """Returns Gaussians with all standard deviations between the bounds."""
        u, scales, v = torch.linalg.svd(self.roots, full_matrices=False)
        clamped = scales.clamp(max=largest).maximum(smallest.unsqueeze(-1))
        is_outside = ((clamped - scales).abs() > 0).any(-1)
        roots = torch.where(is_outside[:, None, None], u * clamped.unsqueeze(-2) @ v, self.roots)
        return replace(self, roots=roots)

    def rows(self, rows: Tensor) -> "AbstractShapes":
        """Returns the Gaussians of a mask or of row indices."""
        return replace(self, centers=self.centers[rows], roots=self.roots[rows])

    def joined(self, other: "AbstractShapes") -> "AbstractShapes":
        """Returns these Gaussians followed by the others."""
        return replace(
            self,
            centers=torch.cat([self.centers, other.centers]),
            roots=torch.cat([self.roots, other.roots]),
        )

    def _stretches(self, z: Tensor) -> list[Tensor]:
        """Returns the derivatives by the free entries of S, divided by the Gaussian."""
        return [z[:, i] * z[:, j] * (0.5 if i == j else OFF_DIAGONAL) for i, j in self.pairs]


@dataclass(frozen=True)
class BoxShapes(AbstractShapes):
    """Gaussians in a box."""

    def basis(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "particles points"]:
        """Evaluates every Gaussian at every point."""
        indices, z = self._image_offsets(points)
        return self._sum_images(indices, torch.exp(-0.5 * z.square().sum(1)))

    def tangents(
        self, points: Float[Tensor, "points dim"], dtype: torch.dtype = torch.float64
    ) -> tuple[Float[Tensor, "particles points"], Float[Tensor, "particles free points"]]:
        """Returns every Gaussian and its derivatives by the entries of a step, in `dtype`."""
        indices, z = self._image_offsets(points)
        z = z.to(dtype)
        basis = torch.exp(-0.5 * z.square().sum(1))
        tangents = torch.stack([*z.unbind(1), *self._stretches(z)], 1) * basis.unsqueeze(1)
        return self._sum_images(indices, basis), self._sum_images(indices, tangents)

    def whitened(
        self, points: Float[Tensor, "points dim"]
    ) -> Float[Tensor, "particles axes points"]:
        """Returns whitened offsets of the points from every center; minimum image on periodic axes."""
        offsets = self.domain.offset(points, self.centers.unsqueeze(1))
        return torch.linalg.solve(self.roots, offsets.mT)

    def transported(
        self, offsets: Float[Tensor, "particles axes"], roots: Float[Tensor, "particles dim axes"]
    ) -> "BoxShapes":
        """Returns Gaussians with centers moved by `R offsets`, clamped to the box on non-periodic axes."""
        centers = self.centers + (self.roots @ offsets.unsqueeze(-1)).squeeze(-1)
        is_periodic = torch.tensor(self.domain.periodic, device=centers.device)
        clamped = centers.clamp(
            torch.tensor(self.domain.lower).to(centers), torch.tensor(self.domain.upper).to(centers)
        )
        centers = torch.where(is_periodic, self.domain.wrap(centers), clamped)
        return replace(self, centers=centers, roots=roots)

    def factors(self) -> Float[Tensor, "particles dim dim"]:
        """Returns the Cholesky factors of the covariances."""
        return _cholesky_factors(self.roots)

    def _image_offsets(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the Gaussian of every periodic image, and whitened offsets from the image."""
        images = periodic_images(self.centers, CUTOFF * self.roots.norm(dim=-1), self.domain)
        inverse = torch.linalg.inv(self.roots)[images.indices]
        # A single matrix product for all images: coordinates are in units of the site spacing,
        # so the difference of the two products loses no accuracy.
        z = (inverse.flatten(0, 1) @ points.mT).unflatten(0, inverse.shape[:2])
        return images.indices, z - inverse @ images.centers.unsqueeze(-1)

    def _sum_images(self, indices: Tensor, parts: Tensor) -> Tensor:
        if len(indices) == len(self):
            return parts
        return parts.new_zeros(len(self), *parts.shape[1:]).index_add_(0, indices, parts)


@dataclass(frozen=True)
class SphereShapes(AbstractShapes):
    """Gaussians on the sphere, whose roots are tangent vectors."""

    def basis(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "particles points"]:
        """Evaluates every Gaussian at every point."""
        z, _, normal, _ = self._coordinates(points)
        return torch.exp(-0.5 * (z.square().sum(1) + normal.square()))

    def tangents(
        self, points: Float[Tensor, "points dim"], dtype: torch.dtype = torch.float64
    ) -> tuple[Float[Tensor, "particles points"], Float[Tensor, "particles free points"]]:
        """Returns every Gaussian and its derivatives by the entries of a step, in `dtype`."""
        z, height, normal, scale = (part.to(dtype) for part in self._coordinates(points))
        basis = torch.exp(-0.5 * (z.square().sum(1) + normal.square()))
        # Moving a center also changes the height of every point above its tangent plane.
        tilted = (self.roots.mT @ self.roots).to(dtype) @ z
        shifts = height.unsqueeze(1) * z - (normal / scale).unsqueeze(1) * tilted
        stretches = self._stretches(z)
        for number, (i, j) in enumerate(self.pairs):
            if i == j:
                stretches[number] = stretches[number] + normal.square() / 4
        return basis, torch.stack([*shifts.unbind(1), *stretches], 1) * basis.unsqueeze(1)

    def whitened(
        self, points: Float[Tensor, "points dim"]
    ) -> Float[Tensor, "particles axes points"]:
        """Returns whitened offsets in the tangent plane; large beyond a quarter turn."""
        z, height, _, _ = self._coordinates(points)
        return torch.where(height.unsqueeze(1) > 0, z, 1e3)

    def transported(
        self, offsets: Float[Tensor, "particles axes"], roots: Float[Tensor, "particles dim axes"]
    ) -> "SphereShapes":
        """Returns Gaussians moved along great circles, with roots by parallel transport."""
        path = (self.roots @ offsets.unsqueeze(-1)).squeeze(-1)
        angle = path.norm(dim=-1, keepdim=True)
        direction = path / angle.clamp_min(1e-300)
        centers = self.domain.wrap(self.centers * angle.cos() + direction * angle.sin())
        # Parallel transport rotates the component along the path and keeps the one across it.
        along = (direction.unsqueeze(-2) @ roots).squeeze(-2).unsqueeze(1)
        rotation = direction * (angle.cos() - 1) - self.centers * angle.sin()
        return replace(self, centers=centers, roots=roots + rotation.unsqueeze(-1) * along)

    def factors(self) -> Float[Tensor, "particles dim dim"]:
        """Returns the Cholesky factors of the covariances in space."""
        scale = self._normal_scale().unsqueeze(-1).unsqueeze(-1)
        return _cholesky_factors(torch.cat([self.roots, scale * self.centers.unsqueeze(-1)], -1))

    def _coordinates(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns tangential z, height h, the whitened normal offset (h - 1) / s, and s."""
        z = torch.linalg.pinv(self.roots) @ points.mT
        height, scale = self.centers @ points.mT, self._normal_scale().unsqueeze(-1)
        return z, height, (height - 1) / scale, scale

    def _normal_scale(self) -> Tensor:
        r"""Returns the standard deviation along the normal, $s=(\det R^\top R)^{1/4}$."""
        return torch.linalg.det(self.roots.mT @ self.roots).clamp_min(1e-300) ** 0.25


def _cholesky_factors(roots: Tensor) -> Tensor:
    """Returns the Cholesky factors of $RR^T$ by the QR decomposition of $R^T$, without squaring R."""
    upper = torch.linalg.qr(roots.mT).R
    return upper.mT * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


def make_shapes(
    centers: Float[Tensor, "particles dim"],
    covariances: Float[Tensor, "particles dim dim"],
    domain: Domain,
    covariance: Covariance = "full",
) -> AbstractShapes:
    """Returns Gaussians to fit, with these initial centers and covariances."""
    if covariance == "diagonal" and not domain.is_sphere:
        roots = torch.diag_embed(covariances.diagonal(dim1=-2, dim2=-1).sqrt())
        return BoxShapes(centers, roots, domain, covariance)
    if not domain.is_sphere:
        return BoxShapes(centers, torch.linalg.cholesky(covariances), domain)
    projection = torch.eye(3).to(centers) - centers.unsqueeze(-1) * centers.unsqueeze(-2)
    squares, axes = torch.linalg.eigh(projection @ covariances @ projection)
    roots = axes[..., 1:] * squares[..., 1:].clamp_min(0).sqrt().unsqueeze(-2)
    return SphereShapes(centers, roots, domain)
