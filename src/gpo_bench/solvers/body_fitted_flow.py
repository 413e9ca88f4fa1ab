r"""Finite volumes for the Euler equations on C-meshes around airfoils (`airfoil_mesh.py`).

The far field has density one and speed of sound one, so that speeds there are Mach numbers. Arrays
have the axes channels, samples, cells around and cells outwards. The channels of a state are
density, both velocity components and pressure; those of a flux are mass, both momenta and energy.
`finite_volume.py` is the solver for Cartesian grids.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpo_bench.solvers.riemann import hllc, to_conserved, to_primitive

LIMITER_EPSILON = 1e-3
"""Squared jump between cells below which slopes are not limited. Without it the limiter would
switch on and off in the far field, and the residual would not converge."""

MIN_STEP_FRACTION = 1e-6
"""Shortest time step as a fraction of the duration; flows that need shorter ones are NaN."""

Cells = Float[Tensor, "channels batch around out"]


@dataclass(frozen=True)
class Faces:
    """Cell faces normal to one direction of the mesh."""

    normals: Float[Tensor, "2 batch rows columns"]
    """Unit normals that point to the next cell."""
    lengths: Float[Tensor, "batch rows columns"]

    @classmethod
    def between(cls, vectors: Float[Tensor, "2 batch rows columns"]) -> "Faces":
        """Returns faces from normal vectors whose lengths are those of the faces."""
        lengths = torch.linalg.vector_norm(vectors, dim=0)
        return cls(vectors / lengths, lengths)

    def flux(
        self, sides: Float[Tensor, "2 4 batch rows columns"], gamma: float
    ) -> Float[Tensor, "4 batch rows columns"]:
        """Returns the flux through each face from the states on both sides of it."""
        (x, y), u, v = self.normals, sides[:, 1], sides[:, 2]
        rotated = torch.stack([sides[:, 0], u * x + v * y, v * x - u * y, sides[:, 3]], 1)
        mass, across, along, energy = hllc(rotated, gamma) * self.lengths
        return torch.stack([mass, across * x - along * y, across * y + along * x, energy])


class BodyFittedFlow:
    """The flow around a batch of airfoils: meshes, far field and gas.

    Args:
        nodes: Nodes of the C-meshes, in double precision.
        num_wake: Number of cells along the wake at either end of a line around the airfoil.
        mach: Mach number of the far field.
        angle: Angle of attack in degrees.
        gamma: Ratio of specific heats.
        dtype: Precision of the flow.
    """

    def __init__(
        self,
        nodes: Float[Tensor, "batch around out 2"],
        num_wake: int,
        *,
        mach: float = 0.8,
        angle: float = 0.0,
        gamma: float = 1.4,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.nodes, self.num_wake, self.mach, self.gamma = nodes, num_wake, mach, gamma
        self.angle, self.dtype = math.radians(angle), dtype
        x, y = nodes.unbind(-1)
        across = torch.stack([y.diff(dim=2), -x.diff(dim=2)])
        outward = torch.stack([-y.diff(dim=1), x.diff(dim=1)])
        first, second = nodes[:, 1:, 1:] - nodes[:, :-1, :-1], nodes[:, :-1, 1:] - nodes[:, 1:, :-1]
        areas = (first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]) / 2
        if not bool((areas > 0).all()):
            raise ValueError(
                "`nodes` must form cells of positive area, but the mesh folds over itself. "
                "Lower `deformation`."
            )
        self.areas = areas.to(dtype)
        self.around, self.outward = (Faces.between(part.to(dtype)) for part in (across, outward))
        self.mean_around = ((across[:, :, 1:] + across[:, :, :-1]) / 2).to(dtype)
        self.mean_outward = ((outward[..., 1:] + outward[..., :-1]) / 2).to(dtype)
        velocity = [mach * math.cos(self.angle), mach * math.sin(self.angle)]
        self.far = nodes.new_tensor([1, *velocity, 1 / gamma], dtype=dtype)
        self.body = slice(num_wake, areas.shape[1] - num_wake)

    def with_mesh(
        self, nodes: Float[Tensor, "some around out 2"], num_wake: int
    ) -> "BodyFittedFlow":
        """Returns a flow with the same gas and far field on other meshes."""
        return BodyFittedFlow(
            nodes,
            num_wake,
            mach=self.mach,
            angle=math.degrees(self.angle),
            gamma=self.gamma,
            dtype=self.dtype,
        )

    def uniform(self) -> Cells:
        """Returns the far-field state in every cell."""
        return self.far.view(4, 1, 1, 1).expand(4, *self.areas.shape).clone()

    def residual(self, state: Cells) -> Cells:
        """Returns the net flux out of each cell, which is zero in a steady flow."""
        padded = self._with_ghost_cells(state)
        around = self.around.flux(_reconstruct_faces(padded[..., 2:-2], 2), self.gamma)
        outward = self.outward.flux(_reconstruct_faces(padded[:, :, 2:-2], 3), self.gamma)
        # The only flux through the airfoil is its pressure force.
        wall = outward[:, :, self.body, 0]
        wall.zero_()
        wall[1:3] = self._wall_force(state)
        return around.diff(dim=2) + outward.diff(dim=3)

    def advance(self, state: Cells, duration: float, courant: float) -> Cells:
        """Returns the state after `duration`, by steps of Heun's method common to all samples."""
        remaining = duration
        while remaining > 0:
            longest = courant * float((self.areas / self.wave_rates(state).sum(0)).amin())
            if not longest > MIN_STEP_FRACTION * duration:
                return torch.full_like(state, torch.nan)
            step = remaining / math.ceil(remaining / longest)
            remaining = remaining - step if step < remaining else 0.0
            ratio = step / self.areas
            conserved = to_conserved(state, self.gamma)
            first = to_primitive(conserved - ratio * self.residual(state), self.gamma)
            second = to_conserved(first, self.gamma) - ratio * self.residual(first)
            state = to_primitive((conserved + second) / 2, self.gamma)
        return state

    def wall_pressure(self, state: Cells) -> Float[Tensor, "batch body"]:
        """Returns the pressure on the airfoil, extrapolated from the two cells next to it."""
        return 1.5 * state[3, :, self.body, 0] - 0.5 * state[3, :, self.body, 1]

    def forces(self, state: Cells) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Returns the lift and drag coefficients."""
        x, y = -self._wall_force(state).sum(-1) / (self.mach**2 / 2)
        cosine, sine = math.cos(self.angle), math.sin(self.angle)
        return y * cosine - x * sine, x * cosine + y * sine

    def wave_rates(self, state: Cells) -> Float[Tensor, "2 batch around out"]:
        """Returns the area that the fastest wave sweeps per time, around and outwards."""
        sound = (self.gamma * state[3] / state[0]).sqrt()
        return torch.stack(
            [
                (state[1:3] * faces).sum(0).abs() + sound * torch.linalg.vector_norm(faces, dim=0)
                for faces in (self.mean_around, self.mean_outward)
            ]
        )

    def at_nodes(self, state: Cells) -> Float[Tensor, "channels batch around+1 out+1"]:
        """Returns nodal values: means of the four adjacent cells, extrapolated to the airfoil."""
        padded = self._with_ghost_cells(state)[:, :, 1:-1, 1:-1]
        inner = padded[:, :, 1:-1]
        inner[:, :, self.body, 0] = 2 * inner[:, :, self.body, 1] - inner[:, :, self.body, 2]
        rows = (padded[:, :, 1:] + padded[:, :, :-1]) / 2
        return (rows[..., 1:] + rows[..., :-1]) / 2

    def _wall_force(self, state: Cells) -> Float[Tensor, "2 batch body"]:
        """Returns the pressure force of each face of the airfoil on the gas."""
        force = self.wall_pressure(state) * self.outward.lengths[:, self.body, 0]
        return force * self.outward.normals[:, :, self.body, 0]

    def _with_ghost_cells(self, state: Cells) -> Float[Tensor, "channels batch _ _"]:
        """Returns the state with two ghost cells beyond each boundary."""
        batch, around, out = state.shape[1:]
        padded = self.far.view(4, 1, 1, 1).expand(4, batch, around + 4, out + 4).clone()
        padded[:, :, 2:-2, 2:-2] = state
        below = padded[:, :, 2:-2, :2]
        # Ghost cells of the wake are cells of its other side; those of the airfoil are mirrored.
        below.copy_(state[..., :2].flip(2, 3))
        image = state[:, :, self.body, :2].flip(3)
        normal = self.outward.normals[:, :, self.body, :1]
        image[1:3] -= 2 * (image[1:3] * normal).sum(0) * normal
        below[:, :, self.body] = image
        return padded


def _reconstruct_faces(padded: Tensor, dim: int) -> Float[Tensor, "2 4 batch rows columns"]:
    r"""Returns the states on both sides of each face between inner cells along a direction.

    The half slope of a cell uses van Albada's limiter,
    $\frac12\frac{a(b^2+\epsilon)+b(a^2+\epsilon)}{a^2+b^2+2\epsilon}$ with the jumps $a$ and $b$ to
    both neighbours, which is their mean where they are similar or small.
    """
    jumps = padded.diff(dim=dim)
    count = jumps.shape[dim] - 1
    before, after = jumps.narrow(dim, 0, count), jumps.narrow(dim, 1, count)
    weight, other = before.square().add_(LIMITER_EPSILON), after.square().add_(LIMITER_EPSILON)
    half = (before * other).addcmul_(after, weight).div_(weight.add_(other)).mul_(0.5)
    left = padded.narrow(dim, 1, count - 1) + half.narrow(dim, 0, count - 1)
    right = padded.narrow(dim, 2, count - 1) - half.narrow(dim, 1, count - 1)
    return torch.stack([left, right])
