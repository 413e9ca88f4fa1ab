r"""Steady transonic flow around deformed airfoils, as in Geo-FNO's data.

Euler's equations $\nabla\cdot F(U)=0$ at Mach 0.8 on C-meshes of 221 by 51 nodes that follow the
shape (`airfoil_mesh.py`), by finite volumes (`body_fitted_flow.py`) and implicit steps
(`steady_state.py`). `AbstractAirfoils` holds shapes, meshes and steady flows for all solvers
around airfoils.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.readers.airfoil import write_airfoil
from gpo.data.solvers.base import AbstractSolver, Portion, stacked
from gpo_bench.solvers.airfoil_mesh import Section, c_mesh, deformed, named_section, num_wake
from gpo_bench.solvers.body_fitted_flow import BodyFittedFlow, Cells
from gpo_bench.solvers.runge_kutta import solve_with_retries
from gpo_bench.solvers.steady_state import steady_state


@dataclass(frozen=True, kw_only=True)
class AbstractAirfoils(AbstractSolver):
    """Deformed sections in a stream, one mesh each."""

    section: str = "0012"
    """Four digits of a NACA section, or a file of coordinates."""
    deformation: float = 0.025
    """Strength of the deformation, see `airfoil_mesh.py`; 0 for none."""
    mach: float = 0.8
    """Mach number of the stream."""
    angle: float = 0.0
    """Angle of attack in degrees."""
    num_around: int = 220
    """Cells around the airfoil and along both sides of its wake; nodes are one more."""
    num_out: int = 50
    """Cells from the airfoil outwards."""
    radius: float = 25.0
    """Distance of the outer boundary, in chords."""
    drop: float = 1e-4
    """Imbalance of mass at which a flow is steady, relative to that of the uniform stream."""
    steady_courant: float = 30.0
    """Cells that the fastest wave crosses in a step to the steady flow."""
    seed: int = 0
    """Seed of all that is random."""

    def __post_init__(self) -> None:
        """Refuses numbers that no flow has."""
        if self.num_around % 4 or self.num_around < 44 or self.num_out % 2 or self.num_out < 8:
            raise ValueError(
                "`num_around` must be a multiple of 4 from 44 on and `num_out` an even number "
                f"from 8 on, got {self.num_around} and {self.num_out}."
            )
        if not 0 < self.mach < 1 or abs(self.angle) > 10 or self.deformation < 0:
            raise ValueError(
                "`mach` must lie between 0 and 1, `angle` between -10 and 10 degrees, and "
                "`deformation` must not be negative, "
                f"got {self.mach}, {self.angle} and {self.deformation}."
            )
        if self.radius < 3 or not 0 < self.drop < 1 or self.steady_courant <= 0:
            raise ValueError(
                "`radius` must be at least 3, `drop` between 0 and 1 and `steady_courant` "
                f"positive, got {self.radius}, {self.drop} and {self.steady_courant}."
            )
        if self.num_trajectories < 1:
            raise ValueError(f"`num_trajectories` must be at least 1, got {self.num_trajectories}.")

    def generator(self, number: int) -> np.random.Generator:
        """Returns the randomness of one sample, which the seed and its number alone fix."""
        return np.random.default_rng((self.seed, number))

    def shape(self, number: int) -> Section:
        """Returns the section of one sample."""
        base = named_section(self.section)
        if self.deformation == 0:
            return base
        return deformed(base, self.generator(number), self.deformation)

    def mesh(self, number: int) -> Float[np.ndarray, "around out 2"]:
        """Returns the nodes of one sample's mesh."""
        return c_mesh(self.shape(number), self.num_around, self.num_out, radius=self.radius)

    def flow(self, numbers: Sequence[int], dtype: torch.dtype = torch.float64) -> BodyFittedFlow:
        """Returns the gas around some of the airfoils; a steady flow needs double precision."""
        nodes = torch.from_numpy(np.stack([self.mesh(number) for number in numbers]))
        nodes = nodes.to(torch.get_default_device())
        wake = num_wake(self.num_around)
        return BodyFittedFlow(nodes, wake, mach=self.mach, angle=self.angle, dtype=dtype)

    def steady_flow(self, flow: BodyFittedFlow, courant: float) -> Cells:
        """Returns the steady flow: first on every second mesh line, and from there on all.

        Not-a-number where it was not reached.
        """
        coarse = flow.on(flow.nodes[:, ::2, ::2], flow.num_wake // 2)
        rough, _ = steady_state(coarse, coarse.uniform(), courant=courant, drop=1e-2)
        start = rough.repeat_interleave(2, 2).repeat_interleave(2, 3)
        start = torch.where(start.isnan(), flow.uniform(), start)
        return steady_state(flow, start, courant=courant, drop=self.drop)[0]


@dataclass(frozen=True, kw_only=True)
class TransonicAirfoil(AbstractAirfoils):
    """Shapes and the steady flow around each."""

    num_trajectories: int = 1000
    """Airfoils to make."""
    portion_size: int = 8
    """Airfoils solved side by side, each with its own time steps."""

    suffix = ""

    def solve(self, trajectories: range) -> Portion:
        """Returns nodes x, y and q: density, both velocities, pressure, Mach number."""

        def attempt(numbers: Sequence[int], courant: float) -> Tensor:
            flow = self.flow(numbers)
            density, u, v, pressure = nodal = flow.at_nodes(self.steady_flow(flow, courant))
            mach = ((u**2 + v**2) * density / (flow.gamma * pressure)).sqrt()
            return torch.cat([nodal, mach[None]]).movedim(1, 0)

        nodes = np.stack([self.mesh(number) for number in trajectories]).astype(np.float32)
        solved = solve_with_retries(attempt, trajectories, self.steady_courant)
        return {"x": nodes[..., 0], "y": nodes[..., 1], "q": solved.float().cpu().numpy()}

    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes Geo-FNO's folder."""
        with stacked(path, self.num_trajectories, portions) as arrays:
            write_airfoil(path, arrays["x"], arrays["y"], arrays["q"])


PRESETS = {
    "quick": TransonicAirfoil(num_trajectories=40),
    "default": TransonicAirfoil(num_trajectories=400),
    "paper": TransonicAirfoil(num_trajectories=2490),
}
"""Sizes of `gpo data make airfoil`."""
