r"""Steady transonic flow around deformed airfoils, as in Geo-FNO's data.

Euler's equations $\nabla\cdot F(U)=0$ at Mach 0.8 on C-meshes of 221 by 51 nodes that follow the
shape, by finite volumes (`body_fitted_flow.py`) and implicit steps (`steady_state.py`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gpo.data.readers.airfoil import write_airfoil
from gpo.data.solvers.airfoils import AbstractAirfoils
from gpo.data.solvers.base import Portion
from gpo.data.solvers.runge_kutta import solve_with_retries
from gpo.data.solvers.stacked import stacked


@dataclass(frozen=True, kw_only=True)
class TransonicAirfoil(AbstractAirfoils):
    """Shapes and the steady flow around each."""

    num_trajectories: int = 1000
    """Airfoils to make."""
    portion_size: int = 8
    """Airfoils solved side by side; each takes its own steps all the same."""

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
