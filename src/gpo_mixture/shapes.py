r"""Gaussians while they are fitted: centers $\mu$ and roots $R$ of covariances, $\Sigma=RR^\top$.

A step is taken in coordinates in which the Gaussian itself is round: $\mu\leftarrow\mu+R\varepsilon$
and $R\leftarrow Re^{S/2}$ with a symmetric $S$. So covariances stay positive, and steps know neither
units nor axes. With $z=R^{-1}(x-\mu)$ and $\varphi=e^{-|z|^2/2}$ the derivatives are
$\partial\varphi/\partial\varepsilon=\varphi z$ and $\partial\varphi/\partial S=\tfrac12\varphi zz^\top$.

On the sphere $R$ holds two tangent vectors. With the height $h=x\cdot\mu$ and $z=R^+x$ a Gaussian is
$e^{-(|z|^2+(1-h)^2/s^2)/2}$, $s^4=\det R^\top R$, which for round ones is that of the chord.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo_mixture.images import images_of

Covariance = Literal["full", "diagonal"]

REACH = 5.5
"""Standard deviations from which on images are left out while fitting."""
ACROSS = 2**-0.5
"""Of an entry of S beside the diagonal, so that steps of one length stretch by as much in any direction."""
LONGEST_STEP = 1.0
"""Bound of the steps: of a center in standard deviations, of the logarithm of a variance."""


@dataclass(frozen=True)
class AbstractShapes(ABC):
    """Centers and roots of covariances, and how they move."""

    centers: Float[Tensor, "particles dim"]
    roots: Float[Tensor, "particles dim axes"]
    domain: Domain
    covariance: Covariance = "full"

    def __len__(self) -> int:
        return len(self.centers)

    @property
    def num_axes(self) -> int:
        """Directions in which a Gaussian can be long."""
        return self.roots.shape[-1]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The entries of S that are free."""
        axes = range(self.num_axes)
        is_full = self.covariance == "full"
        return [(i, j) for i in axes for j in axes if i == j or (is_full and i < j)]

    @property
    def num_free(self) -> int:
        """Free numbers of every particle's place and shape."""
        return self.num_axes + len(self.pairs)

    @abstractmethod
    def basis(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "particles points"]:
        """Returns every Gaussian at every point."""

    @abstractmethod
    def tangents(
        self, points: Float[Tensor, "points dim"], dtype: torch.dtype = torch.float64
    ) -> tuple[Float[Tensor, "particles points"], Float[Tensor, "particles free points"]]:
        """Returns every Gaussian, and its derivatives along a step, in a given precision."""

    @abstractmethod
    def carried(
        self, ways: Float[Tensor, "particles axes"], roots: Float[Tensor, "particles dim axes"]
    ) -> "AbstractShapes":
        """Returns particles moved along `R ways`, with other roots at their old place."""

    @abstractmethod
    def factors(self) -> Float[Tensor, "particles dim dim"]:
        """Returns the Cholesky factors of the covariances."""

    @abstractmethod
    def whitened(
        self, points: Float[Tensor, "points dim"]
    ) -> Float[Tensor, "particles axes points"]:
        """Returns offsets from every center in its own half axes: the shortest on periodic axes."""

    def moved(self, step: Float[Tensor, "particles free"]) -> "AbstractShapes":
        """Returns particles after a step, which is shortened where it is too long."""
        ways, stretch = step[:, : self.num_axes], step[:, self.num_axes :]
        length = ways.detach().norm(dim=-1, keepdim=True)
        ways = ways * (LONGEST_STEP / length.clamp_min(LONGEST_STEP))
        symmetric = step.new_zeros(len(step), self.num_axes, self.num_axes)
        for number, (i, j) in enumerate(self.pairs):
            entry = stretch[:, number] * (1.0 if i == j else ACROSS)
            symmetric[:, i, j] = symmetric[:, j, i] = entry
        size = torch.linalg.matrix_norm(symmetric.detach(), ord=2)[:, None, None]
        symmetric = symmetric * (LONGEST_STEP / size.clamp_min(LONGEST_STEP))
        return self.carried(ways, self.roots @ torch.linalg.matrix_exp(symmetric / 2))

    def bounded(self, smallest: Float[Tensor, " particles"], largest: float) -> "AbstractShapes":
        """Returns particles none of whose half axes is shorter or longer than this."""
        u, sizes, v = torch.linalg.svd(self.roots, full_matrices=False)
        within = sizes.clamp(max=largest).maximum(smallest.unsqueeze(-1))
        is_out = ((within - sizes).abs() > 0).any(-1)
        roots = torch.where(is_out[:, None, None], u * within.unsqueeze(-2) @ v, self.roots)
        return replace(self, roots=roots)

    def rows(self, rows: Tensor) -> "AbstractShapes":
        """Returns some of the particles."""
        return replace(self, centers=self.centers[rows], roots=self.roots[rows])

    def joined(self, other: "AbstractShapes") -> "AbstractShapes":
        """Returns these particles and then others."""
        return replace(
            self,
            centers=torch.cat([self.centers, other.centers]),
            roots=torch.cat([self.roots, other.roots]),
        )

    def _stretches(self, z: Tensor) -> list[Tensor]:
        return [z[:, i] * z[:, j] * (0.5 if i == j else ACROSS) for i, j in self.pairs]


@dataclass(frozen=True)
class BoxShapes(AbstractShapes):
    """Gaussians in a box."""

    def basis(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "particles points"]:
        """Returns every Gaussian at every point."""
        owners, z = self._whitened(points)
        return self._summed(owners, torch.exp(-0.5 * z.square().sum(1)))

    def tangents(
        self, points: Float[Tensor, "points dim"], dtype: torch.dtype = torch.float64
    ) -> tuple[Float[Tensor, "particles points"], Float[Tensor, "particles free points"]]:
        """Returns every Gaussian, and its derivatives along a step, in a given precision."""
        owners, z = self._whitened(points)
        z = z.to(dtype)
        peaks = torch.exp(-0.5 * z.square().sum(1))
        slopes = torch.stack([*z.unbind(1), *self._stretches(z)], 1) * peaks.unsqueeze(1)
        return self._summed(owners, peaks), self._summed(owners, slopes)

    def whitened(
        self, points: Float[Tensor, "points dim"]
    ) -> Float[Tensor, "particles axes points"]:
        """Returns offsets from every center in its own half axes: the shortest on periodic axes."""
        offsets = self.domain.offset(points, self.centers.unsqueeze(1))
        return torch.linalg.solve(self.roots, offsets.mT)

    def carried(
        self, ways: Float[Tensor, "particles axes"], roots: Float[Tensor, "particles dim axes"]
    ) -> "BoxShapes":
        """Returns particles moved along `R ways`, no farther out than the ends of open axes."""
        centers = self.centers + (self.roots @ ways.unsqueeze(-1)).squeeze(-1)
        wraps = torch.tensor(self.domain.periodic, device=centers.device)
        inside = centers.clamp(
            torch.tensor(self.domain.lower).to(centers), torch.tensor(self.domain.upper).to(centers)
        )
        centers = torch.where(wraps, self.domain.wrap(centers), inside)
        return replace(self, centers=centers, roots=roots)

    def factors(self) -> Float[Tensor, "particles dim dim"]:
        """Returns the Cholesky factors of the covariances."""
        # The factor of RR^T is that of R^T's QR decomposition, which loses no digits.
        upper = torch.linalg.qr(self.roots.mT).R
        return upper.mT * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)

    def _whitened(self, points: Tensor) -> tuple[Tensor, Tensor]:
        images = images_of(self.centers, REACH * self.roots.norm(dim=-1), self.domain)
        inverse = torch.linalg.inv(self.roots)[images.owners]
        # One product for all images: points and centers are in units of the sites' distance.
        z = (inverse.flatten(0, 1) @ points.mT).unflatten(0, inverse.shape[:2])
        return images.owners, z - inverse @ images.centers.unsqueeze(-1)

    def _summed(self, owners: Tensor, parts: Tensor) -> Tensor:
        if len(owners) == len(self):
            return parts
        return parts.new_zeros(len(self), *parts.shape[1:]).index_add_(0, owners, parts)


@dataclass(frozen=True)
class SphereShapes(AbstractShapes):
    """Gaussians on the sphere, whose roots are tangent vectors."""

    def basis(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "particles points"]:
        """Returns every Gaussian at every point."""
        z, _, deep, _ = self._whitened(points)
        return torch.exp(-0.5 * (z.square().sum(1) + deep.square()))

    def tangents(
        self, points: Float[Tensor, "points dim"], dtype: torch.dtype = torch.float64
    ) -> tuple[Float[Tensor, "particles points"], Float[Tensor, "particles free points"]]:
        """Returns every Gaussian, and its derivatives along a step, in a given precision."""
        z, height, deep, depth = (part.to(dtype) for part in self._whitened(points))
        peaks = torch.exp(-0.5 * (z.square().sum(1) + deep.square()))
        # Moving a center turns the sphere below it: what is far sinks or rises, too.
        turned = (self.roots.mT @ self.roots).to(dtype) @ z
        ways = height.unsqueeze(1) * z - (deep / depth).unsqueeze(1) * turned
        stretches = self._stretches(z)
        for number, (i, j) in enumerate(self.pairs):
            if i == j:
                stretches[number] = stretches[number] + deep.square() / 4
        return peaks, torch.stack([*ways.unbind(1), *stretches], 1) * peaks.unsqueeze(1)

    def whitened(
        self, points: Float[Tensor, "points dim"]
    ) -> Float[Tensor, "particles axes points"]:
        """Returns offsets along the tangent plane; what is on the far side is far."""
        z, height, _, _ = self._whitened(points)
        return torch.where(height.unsqueeze(1) > 0, z, 1e3)

    def carried(
        self, ways: Float[Tensor, "particles axes"], roots: Float[Tensor, "particles dim axes"]
    ) -> "SphereShapes":
        """Returns particles moved along great circles, their roots carried with them."""
        way = (self.roots @ ways.unsqueeze(-1)).squeeze(-1)
        angle = way.norm(dim=-1, keepdim=True)
        ahead = way / angle.clamp_min(1e-300)
        centers = self.domain.wrap(self.centers * angle.cos() + ahead * angle.sin())
        # Parallel transport turns the part along the way, and leaves the part across it.
        along = (ahead.unsqueeze(-2) @ roots).squeeze(-2).unsqueeze(1)
        turn = ahead * (angle.cos() - 1) - self.centers * angle.sin()
        return replace(self, centers=centers, roots=roots + turn.unsqueeze(-1) * along)

    def factors(self) -> Float[Tensor, "particles dim dim"]:
        """Returns the Cholesky factors of the covariances in space."""
        depth = self._depth().unsqueeze(-1).unsqueeze(-1)
        whole = torch.cat([self.roots, depth * self.centers.unsqueeze(-1)], -1)
        upper = torch.linalg.qr(whole.mT).R
        return upper.mT * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)

    def _whitened(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        z = torch.linalg.pinv(self.roots) @ points.mT
        height, depth = self.centers @ points.mT, self._depth().unsqueeze(-1)
        return z, height, (height - 1) / depth, depth

    def _depth(self) -> Tensor:
        r"""Returns the standard deviation along the normal, $s=(\det R^\top R)^{1/4}$."""
        return torch.linalg.det(self.roots.mT @ self.roots).clamp_min(1e-300) ** 0.25


def shapes_of(
    centers: Float[Tensor, "particles dim"],
    covariances: Float[Tensor, "particles dim dim"],
    domain: Domain,
    covariance: Covariance = "full",
) -> AbstractShapes:
    """Returns particles to fit, of given centers and covariances."""
    if covariance == "diagonal" and not domain.is_sphere:
        roots = torch.diag_embed(covariances.diagonal(dim1=-2, dim2=-1).sqrt())
        return BoxShapes(centers, roots, domain, covariance)
    if not domain.is_sphere:
        return BoxShapes(centers, torch.linalg.cholesky(covariances), domain)
    flat = torch.eye(3).to(centers) - centers.unsqueeze(-1) * centers.unsqueeze(-2)
    squares, turns = torch.linalg.eigh(flat @ covariances @ flat)
    roots = turns[..., 1:] * squares[..., 1:].clamp_min(0).sqrt().unsqueeze(-2)
    return SphereShapes(centers, roots, domain)
