r"""A learned encoder: from neighbourhoods of a field to its Gaussians in one pass.

Round Gaussians begin at the peaks of a field, where the plain fit begins, too. Around each, moments
$m_{s\alpha}=\sum_jq_j\varphi_s(x_j)H_\alpha(z_j)u(x_j)\big/\sum_jq_j\varphi_s(x_j)$ of the field are
taken in windows $\varphi_s$ of several widths, with the products $H_\alpha$ of coordinates up to third
order. A perceptron reads from them where the Gaussian moves and how it stretches. Amplitudes are a
ridge solve. A site doubled at half its weight changes nothing, and any sites will do.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.numerics.domain import Domain
from gpo.numerics.footprints import tangent_frame
from gpo_mixture.fit import finished, new_particles
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.projection import improve, solve
from gpo_mixture.shapes import AbstractShapes
from gpo_mixture.target import Target

WINDOWS = (1.0, 2.0, 4.0)
"""Widths of the windows, in those of the round Gaussians."""
ORDER = 3
"""Highest order of a moment."""
NUM_MOVES = 2
"""Steps, each of bounded length, that one answer is taken for."""


class MixtureEncoder(nn.Module):
    """Gives the Gaussians of a field in one pass.

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
        # At first Gaussians nearly stay as they begin.
        nn.init.normal_(last.weight, std=1e-2)
        nn.init.zeros_(last.bias)

    def forward(self, target: Target, num_particles: int) -> AbstractShapes:
        """Returns places and shapes of the particles of a field."""
        shapes = _at_peaks(target, num_particles)
        step = torch.tanh(self.layers(self._moments(shapes, target)))
        for _ in range(NUM_MOVES):
            shapes = shapes.moved(step)
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
        """Returns the Gaussians of a field in one pass.

        Args:
            values: The field at its sites.
            coords: The sites; unit vectors on the sphere.
            weights: Quadrature weights; 0 masks a site.
            num_particles: How many Gaussians.
            domain: Where the sites lie; the smallest open box around them when not given.
            num_steps: Steps of the plain fit by which the answer is refined.
        """
        if values.shape[1] != self.num_channels:
            raise ValueError(
                f"`values` must have the {self.num_channels} variables that the encoder was made "
                f"for, got {values.shape[1]}."
            )
        domain = domain or Domain.around(coords if weights is None else coords[weights > 0])
        whole = Target.of(values, coords, weights, domain)
        target = whole.thinned()
        with torch.no_grad():
            shapes = target.bounded(self(target, num_particles))
        solved = improve(solve(shapes, target), target, num_steps)
        return finished(solved, whole, torch.arange(num_particles), domain, ())

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
        """Trains on fields of one kind; returns the loss of every step, one field each.

        The loss is that of the plain fit, with amplitudes by a ridge solve.
        """
        targets = [Target.of(values, coords, weights, domain).thinned() for values in frames]
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
        """Returns what is left; its derivative by amplitudes is zero, so they are held fixed."""
        shapes = self(target, num_particles)
        with torch.no_grad():
            solved = solve(shapes, target)
        parts = []
        for part in target.chunks():
            made = solved.offset + shapes.basis(part.points).mT @ solved.amplitudes
            parts.append((part.weights @ (part.values - made).square()).sum())
        # Fields differ in how hard they are: each counts by the ratio.
        return torch.stack(parts).sum().log()

    def _moments(self, shapes: AbstractShapes, target: Target) -> Tensor:
        """Returns the moments of the field around every particle, in all windows."""
        found = []
        with torch.no_grad():
            for width in WINDOWS:
                wide = replace(shapes, roots=width * shapes.roots)
                totals, sums = [], []
                for part in target.chunks():
                    z = wide.whitened(part.points)
                    window = torch.exp(-0.5 * z.square().sum(1)) * part.weights
                    totals.append(window.sum(-1))
                    powers = torch.stack([_power(z, order) for order in self.orders], 1)
                    sums.append((powers * window.unsqueeze(1)) @ part.values)
                total = sum(totals[1:], totals[0]).clamp_min(1e-300)
                found.append((sum(sums[1:], sums[0]) / total[:, None, None]).flatten(1))
        return torch.cat(found, -1)


def _power(z: Tensor, order: tuple[int, ...]) -> Tensor:
    product = torch.ones_like(z[:, 0])
    for axis, exponent in enumerate(order):
        product = product * z[:, axis] ** exponent
    return product


def _at_peaks(target: Target, num_particles: int) -> AbstractShapes:
    """Returns round particles at the peaks of a field, with axes that the domain knows."""
    shapes = new_particles(target, target.values, num_particles, num_particles, "full")
    if not target.domain.is_sphere:
        return shapes
    frame = tangent_frame(shapes.centers).mT
    return replace(shapes, roots=frame * shapes.roots.norm(dim=1).mean(-1)[:, None, None])
