r"""Steady transonic flow around deformed airfoils, as in the data set of Geo-FNO.

The solver finds steady solutions of the Euler equations, $\nabla\cdot F(U)=0$, at Mach 0.8 on
body-fitted C-meshes of 221 by 51 nodes (`airfoil_mesh.py`), by finite volumes
(`body_fitted_flow.py`) and implicit steps (`steady_state.py`). `AbstractAirfoils` provides shapes,
meshes and steady flows for all airfoil solvers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.solvers.base import AbstractSolver, Portion, stacked
from gpo_bench.solvers.airfoil_mesh import Section, c_mesh, deformed, named_section, num_wake
from gpo_bench.solvers.body_fitted_flow import BodyFittedFlow, Cells
from gpo_bench.solvers.published_files import write_airfoil
from gpo_bench.solvers.runge_kutta import solve_with_retries
from gpo_bench.solvers.steady_state import steady_state


@dataclass(frozen=True, kw_only=True)
class AbstractAirfoils(AbstractSolver):
    """Deformed sections in a uniform stream, each with its own mesh."""

    section: str = "0012"
    """Four digits of a NACA section, or a file of coordinates."""
    deformation: float = 0.025
    """Strength of the random deformation (see `airfoil_mesh.deformed`); 0 for none."""
    mach: float = 0.8
    """Mach number of the stream."""
    angle: float = 0.0
    """Angle of attack in degrees."""
    num_around: int = 220
    """Number of cells around the airfoil and along both sides of its wake."""
    num_out: int = 50
    """Number of cells from the airfoil to the outer boundary."""
    radius: float = 25.0
    """Distance of the outer boundary, in chords."""
    drop: float = 1e-4
    """Mass residual of a converged flow, relative to that of the uniform stream."""
    steady_courant: float = 30.0
    """Courant number of the implicit steps to the steady flow."""
    seed: int = 0
    """Random seed."""

    def __post_init__(self) -> None:
        """Validates all parameters."""
        if self.num_around % 4 or self.num_around < 44 or self.num_out % 2 or self.num_out < 8:
            raise ValueError(
                "`num_around` must be a multiple of 4 and at least 44, and `num_out` must be even "
                f"and at least 8, got {self.num_around} and {self.num_out}."
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
        """Returns the random generator of a sample, which depends only on `seed` and its number."""
        return np.random.default_rng((self.seed, number))

    def shape(self, number: int) -> Section:
        """Returns the section of a sample."""
        base = named_section(self.section)
        if self.deformation == 0:
            return base
        return deformed(base, self.generator(number), self.deformation)

    def mesh(self, number: int) -> Float[np.ndarray, "around out 2"]:
        """Returns the mesh nodes of a sample."""
        return c_mesh(self.shape(number), self.num_around, self.num_out, radius=self.radius)

    def flow(self, numbers: Sequence[int], dtype: torch.dtype = torch.float64) -> BodyFittedFlow:
        """Returns the discretised flow around some airfoils; steady flows need double precision."""
        nodes = torch.from_numpy(np.stack([self.mesh(number) for number in numbers]))
        nodes = nodes.to(torch.get_default_device())
        wake = num_wake(self.num_around)
        return BodyFittedFlow(nodes, wake, mach=self.mach, angle=self.angle, dtype=dtype)

    def steady_flow(self, flow: BodyFittedFlow, courant: float) -> Cells:
        """Returns the steady flow; NaN where the iteration did not converge.

        A solution on every second mesh line is the initial guess on the full mesh.
        """
        coarse = flow.with_mesh(flow.nodes[:, ::2, ::2], flow.num_wake // 2)
        guess, _ = steady_state(coarse, coarse.uniform(), courant=courant, drop=1e-2)
        start = guess.repeat_interleave(2, 2).repeat_interleave(2, 3)
        start = torch.where(start.isnan(), flow.uniform(), start)
        return steady_state(flow, start, courant=courant, drop=self.drop)[0]


@dataclass(frozen=True, kw_only=True)
class TransonicAirfoil(AbstractAirfoils):
    """Deformed airfoils and the steady flow around each."""

    num_trajectories: int = 1000
    """Number of airfoils."""
    portion_size: int = 8
    """Airfoils solved in one batch, each with its own time steps."""

    suffix = ""

    def solve(self, trajectories: range) -> Portion:
        """Returns nodes `x`, `y` and fields `q`: density, velocity, pressure and Mach number."""

        def attempt(numbers: Sequence[int], courant: float) -> Tensor:
            flow = self.flow(numbers)
            density, u, v, pressure = nodal = flow.at_nodes(self.steady_flow(flow, courant))
            mach = ((u**2 + v**2) * density / (flow.gamma * pressure)).sqrt()
            return torch.cat([nodal, mach[None]]).movedim(1, 0)

        nodes = np.stack([self.mesh(number) for number in trajectories]).astype(np.float32)
        solved = solve_with_retries(attempt, trajectories, self.steady_courant)
        return {"x": nodes[..., 0], "y": nodes[..., 1], "q": solved.float().cpu().numpy()}

    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes a folder in the layout of Geo-FNO."""
        with stacked(path, self.num_trajectories, portions) as arrays:
            write_airfoil(path, arrays["x"], arrays["y"], arrays["q"])


PRESETS = {
    "quick": TransonicAirfoil(num_trajectories=40),
    "default": TransonicAirfoil(num_trajectories=400),
    "paper": TransonicAirfoil(num_trajectories=2490),
}
"""Presets of `gpo data make airfoil`."""
