r"""A learned encoder, which predicts the Gaussians of a field in a single pass.

It starts from isotropic Gaussians at the peaks of the field, as the plain fit does. Around each, it
computes moments $m_{s\alpha}=\sum_jq_j\varphi_s(x_j)H_\alpha(z_j)u(x_j)\big/\sum_jq_j\varphi_s(x_j)$ of
the field in windows $\varphi_s$ of several widths, with monomials $H_\alpha$ of the coordinates up to
third order. A perceptron maps them to a step of center and covariance. Amplitudes are a ridge solve.
The encoder is independent of the discretisation and works on unstructured points.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.numerics.domain import Domain
from gpo.numerics.footprints import tangent_frame
from gpo_mixture.fitting import shapes_at_peaks, to_mixture
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.projection import improve, solve
from gpo_mixture.shapes import AbstractShapes
from gpo_mixture.target import Target

WINDOWS = (1.0, 2.0, 4.0)
"""Widths of the windows, relative to the initial Gaussians."""
ORDER = 3
"""Highest order of a moment."""
NUM_MOVES = 2
"""Number of times that the predicted step, which has bounded length, is applied."""


class MixtureEncoder(nn.Module):
    """Predicts the Gaussians of a field in a single pass.

    Args:
        num_axes: Axes of the domain; 2 on the sphere.
        num_channels: Variables of the field.
        width: Hidden units.
    """

    def __init__(self, num_axes: int, num_channels: int = 1, width: int = 64) -> None:
        super().__init__()
        self.num_axes, self.num_channels = num_axes, num_channels
        orders = itertools.product(range(ORDER + 1), repeat=num_axes)
        self.orders = [order for order in orders if sum(order) <= ORDER]
        num_free = num_axes + num_axes * (num_axes + 1) // 2
        num_features = len(WINDOWS) * len(self.orders) * num_channels
        self.layers = nn.Sequential(
            nn.Linear(num_features, width), nn.GELU(),
            nn.Linear(width, width), nn.GELU(),
            nn.Linear(width, num_free),
        ).double()  # fmt: skip
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        # The initial steps are small.
        nn.init.normal_(last.weight, std=1e-2)
        nn.init.zeros_(last.bias)

    def forward(self, target: Target, num_particles: int) -> AbstractShapes:
        """Returns the centers and covariances of the Gaussians of a field."""
        shapes = _at_peaks(target, num_particles)
        step = torch.tanh(self.layers(self._moments(shapes, target)))
        for _ in range(NUM_MOVES):
            shapes = shapes.stepped(step)
        return shapes

    def encode(
        self,
        values: Float[Tensor, "points channels"],
        coords: Float[Tensor, "points dim"],
        weights: Float[Tensor, " points"] | None = None,
        num_particles: int = 100,
        *,
        domain: Domain | None = None,
        num_steps: int = 0,
    ) -> GaussianMixture:
        """Returns the mixture of a field in a single pass.

        Args:
            values: The field at its sites.
            coords: Coordinates of the sites; unit vectors on the sphere.
            weights: Quadrature weights; 0 masks a site.
            num_particles: Number of Gaussians.
            domain: Domain of the field; the bounding box of the sites if None.
            num_steps: Steps of the plain fit that refine the prediction.
        """
        if values.shape[1] != self.num_channels:
            raise ValueError(
                f"`values` must have the variables of the encoder ({self.num_channels}), "
                f"got {values.shape[1]}."
            )
        target = Target.of(values, coords, weights, domain)
        sites = target.subsampled()
        with torch.no_grad():
            shapes = sites.clamp(self(sites, num_particles))
        solution = improve(solve(shapes, sites), sites, num_steps)
        return to_mixture(solution, target, torch.arange(num_particles))

    def train_on(
        self,
        frames: Sequence[Float[Tensor, "points channels"]],
        coords: Float[Tensor, "points dim"],
        weights: Float[Tensor, " points"] | None = None,
        num_particles: int = 100,
        *,
        domain: Domain | None = None,
        num_steps: int = 300,
        learning_rate: float = 3e-3,
        seed: int = 0,
    ) -> list[float]:
        """Trains on frames of a data set, one per step; returns the loss of every step.

        The loss is that of the plain fit, with amplitudes by a ridge solve.
        """
        targets = [Target.of(values, coords, weights, domain).subsampled() for values in frames]
        optimizer = torch.optim.AdamW(self.parameters(), lr=learning_rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, num_steps)
        generator = torch.Generator().manual_seed(seed)
        losses: list[float] = []
        for _ in range(num_steps):
            target = targets[int(torch.randint(len(targets), (), generator=generator))]
            loss = self._loss(target, num_particles)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
        return losses

    def _loss(self, target: Target, num_particles: int) -> Tensor:
        """Returns the logarithm of the squared residual, with constant amplitudes.

        Amplitudes are optimal, so the derivative of the loss by them is zero.
        """
        shapes = self(target, num_particles)
        with torch.no_grad():
            solution = solve(shapes, target)
        parts = []
        for part in target.chunks():
            prediction = solution.offset + shapes.basis(part.points).mT @ solution.amplitudes
            parts.append((part.weights @ (part.values - prediction).square()).sum())
        # The logarithm gives fields of different difficulty equal weight.
        return torch.stack(parts).sum().log()

    def _moments(self, shapes: AbstractShapes, target: Target) -> Tensor:
        """Returns the moments of the field around every Gaussian, in all windows."""
        moments = []
        with torch.no_grad():
            for width in WINDOWS:
                wider = replace(shapes, roots=width * shapes.roots)
                totals, sums = [], []
                for part in target.chunks():
                    z = wider.whitened(part.points)
                    window = torch.exp(-0.5 * z.square().sum(1)) * part.weights
                    totals.append(window.sum(-1))
                    monomials = torch.stack([_monomial(z, order) for order in self.orders], 1)
                    sums.append((monomials * window.unsqueeze(1)) @ part.values)
                total = sum(totals[1:], totals[0]).clamp_min(1e-300)
                moments.append((sum(sums[1:], sums[0]) / total[:, None, None]).flatten(1))
        return torch.cat(moments, -1)


def _monomial(z: Tensor, order: tuple[int, ...]) -> Tensor:
    product = torch.ones_like(z[:, 0])
    for axis, exponent in enumerate(order):
        product = product * z[:, axis] ** exponent
    return product


def _at_peaks(target: Target, num_particles: int) -> AbstractShapes:
    """Returns isotropic Gaussians at the peaks of a field; on the sphere, with axes east and north."""
    shapes = shapes_at_peaks(target, target.values, num_particles, num_particles, "full")
    if not target.domain.is_sphere:
        return shapes
    frame = tangent_frame(shapes.centers).mT
    return replace(shapes, roots=frame * shapes.roots.norm(dim=1).mean(-1)[:, None, None])
