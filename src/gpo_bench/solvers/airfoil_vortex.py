r"""A vortex that drifts past an airfoil: an unsteady series on triangular meshes.

Euler's equations in time on C-meshes, whose cells are cut into triangles for the file. A steady
flow is disturbed upstream by a vortex in equilibrium; it drifts onto the airfoil, is cut, moves
the shocks and sends out sound.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import Trajectories, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.mesh_series import write_mesh_series
from gpo.data.solvers.base import Portion, stacked
from gpo_bench.solvers.airfoil_mesh import mesh_triangles
from gpo_bench.solvers.airfoils import AbstractAirfoils
from gpo_bench.solvers.body_fitted_flow import BodyFittedFlow, Cells
from gpo_bench.solvers.runge_kutta import solve_with_retries

FIELDS = ("velocity_x", "velocity_y", "density", "pressure")


@dataclass(frozen=True, kw_only=True)
class AirfoilVortex(AbstractAirfoils):
    """Deformed airfoils, each met by a vortex of its own strength, size and height."""

    deformation: float = 0.015
    mach: float = 0.7
    num_around: int = 132
    num_out: int = 48
    radius: float = 6.0
    strengths: tuple[float, ...] = (0.15, 0.35)
    """Least and largest speed of a vortex, in either sense; sound has speed one."""
    sizes: tuple[float, ...] = (0.15, 0.3)
    """Least and largest distance from its centre at which it is fastest."""
    heights: tuple[float, ...] = (-0.4, 0.4)
    """Lowest and highest place where it starts."""
    start: float = -1.0
    """Where along the stream it starts, seen from the nose."""
    num_trajectories: int = 200
    """Series to make."""
    num_frames: int = 41
    """Frames to record, the first at t = 0."""
    frame_step: float = 0.1
    """Time between frames; sound needs one unit of time for the chord."""
    courant: float = 0.8
    """Cells that the fastest wave may cross in a step, summed over directions."""
    portion_size: int = 4
    """Series solved side by side, in steps that suit all of them."""

    suffix = ".h5"

    def __post_init__(self) -> None:
        """Refuses numbers that no series has."""
        super().__post_init__()
        for name in ("strengths", "sizes", "heights"):
            ends = getattr(self, name)
            if len(ends) != 2 or ends[0] > ends[1]:
                raise ValueError(f"`{name}` must be the least and the largest, got {ends}.")
        if self.strengths[0] < 0 or self.sizes[0] <= 0:
            raise ValueError(
                "`strengths` must not be negative and `sizes` must be positive, "
                f"got {self.strengths} and {self.sizes}."
            )
        if self.frame_step <= 0 or not 0 < self.courant <= 1 or self.num_frames < 1:
            raise ValueError(
                "`frame_step` must be positive, `courant` between 0 and 1 and `num_frames` at "
                f"least 1, got {self.frame_step}, {self.courant} and {self.num_frames}."
            )

    def solve(self, trajectories: range) -> Portion:
        """Returns nodes (trajectories, points, 2) and fields (trajectories, times, points, 4)."""
        kept, _ = mesh_triangles(self.num_around, self.num_out)
        nodes = [self.mesh(number).reshape(-1, 2)[kept] for number in trajectories]
        steady = solve_with_retries(self._steady, trajectories, self.steady_courant)

        def record(numbers: Sequence[int], courant: float) -> Tensor:
            rows = [number - trajectories.start for number in numbers]
            return self._record(numbers, steady[rows].movedim(1, 0), courant)

        fields = solve_with_retries(record, trajectories, self.courant)
        return {"nodes": np.stack(nodes), "fields": fields.cpu().numpy()}

    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes one group per series."""
        _, triangles = mesh_triangles(self.num_around, self.num_out)
        with stacked(path, self.num_trajectories, portions) as arrays:
            series = Trajectories(
                layout="mesh-series",
                source=path,
                variables=tuple(Variable(name) for name in FIELDS),
                geometries=tuple(Geometry.scattered(nodes, triangles) for nodes in arrays["nodes"]),
                time=np.arange(self.num_frames) * self.frame_step,
                time_units="",
                num_trajectories=self.num_trajectories,
                fetch=lambda number, times: arrays["fields"][number, times],
            )
            write_mesh_series(path, series)

    def vortex(self, number: int) -> tuple[float, float, float]:
        """Returns the speed, with its sense, the size and the height of one series' vortex."""
        generator = self.generator(number).spawn(1)[0]
        ends = (self.strengths, self.sizes, self.heights)
        speed, size, height = (float(generator.uniform(low, high)) for low, high in ends)
        return speed * float(generator.choice((-1, 1))), size, height

    def disturbed(self, flow: BodyFittedFlow, state: Cells, numbers: Sequence[int]) -> Cells:
        r"""Adds to every flow its vortex, with swirl $v_m\frac r\ell e^{(1-r^2/\ell^2)/2}$.

        Density and pressure drop towards its centre at equal entropy, so that in a uniform
        stream pressure balances the swirl and the vortex only drifts.
        """
        centers = (flow.nodes[:, 1:, 1:] + flow.nodes[:, :-1, :-1]) / 2
        drawn = torch.tensor([self.vortex(number) for number in numbers], dtype=state.dtype)
        speed, size, height = drawn.to(state.device).T[..., None, None]
        x, y = (centers[..., 0] - self.start) / size, (centers[..., 1] - height) / size
        swirl = speed * torch.exp((1 - x**2 - y**2) / 2)
        heat = 1 - (flow.gamma - 1) / 2 * swirl**2
        density, u, v, pressure = state
        power = 1 / (flow.gamma - 1)
        return torch.stack(
            [density * heat**power, u - swirl * y, v + swirl * x, pressure * heat ** (power + 1)]
        )

    def _steady(self, numbers: Sequence[int], courant: float) -> Float[Tensor, "batch ..."]:
        return self.steady_flow(self.flow(numbers), courant).movedim(0, 1)

    def _record(
        self, numbers: Sequence[int], steady: Cells, courant: float
    ) -> Float[Tensor, "batch times points 4"]:
        flow = self.flow(numbers, torch.float32)
        kept = torch.from_numpy(mesh_triangles(self.num_around, self.num_out)[0]).to(steady.device)
        state = self.disturbed(flow, steady, numbers).float()
        frames = []
        for number in range(self.num_frames):
            if number:
                state = flow.advanced(state, self.frame_step, courant)
            nodal = flow.at_nodes(state)[[1, 2, 0, 3]].flatten(2)[..., kept]
            frames.append(nodal.movedim(0, -1))
        return torch.stack(frames, 1)


PRESETS = {
    "quick": AirfoilVortex(num_trajectories=10),
    "default": AirfoilVortex(num_trajectories=60),
    "paper": AirfoilVortex(num_trajectories=1000, num_around=220, num_out=80),
}
"""Sizes of `gpo data make airfoil-series`."""
