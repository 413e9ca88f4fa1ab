r"""A vortex that is advected past an airfoil: unsteady flow on triangular meshes.

The solver integrates the Euler equations on C-meshes, whose cells are split into triangles for the
file. It adds a vortex in equilibrium to a steady flow, upstream of the airfoil. The flow carries
the vortex onto the airfoil, which splits it; the vortex moves the shocks and emits sound.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.solvers.base import Portion, stacked
from gpo_bench.solvers.airfoil_mesh import mesh_triangles
from gpo_bench.solvers.airfoils import AbstractAirfoils
from gpo_bench.solvers.body_fitted_flow import BodyFittedFlow, Cells
from gpo_bench.solvers.published_files import write_mesh_series
from gpo_bench.solvers.runge_kutta import check_recording, solve_with_retries

FIELDS = ("velocity_x", "velocity_y", "density", "pressure")


@dataclass(frozen=True, kw_only=True)
class AirfoilVortex(AbstractAirfoils):
    """Deformed airfoils, each with a vortex of random strength, size and height."""

    deformation: float = 0.015
    mach: float = 0.7
    num_around: int = 132
    num_out: int = 48
    radius: float = 6.0
    strengths: tuple[float, ...] = (0.15, 0.35)
    """Smallest and largest peak speed of a vortex, of either sign; the speed of sound is one."""
    sizes: tuple[float, ...] = (0.15, 0.3)
    """Smallest and largest distance from the vortex centre at which the speed peaks."""
    heights: tuple[float, ...] = (-0.4, 0.4)
    """Lowest and highest initial position of the vortex."""
    start: float = -1.0
    """Initial position of the vortex along the stream, relative to the nose."""
    num_trajectories: int = 200
    """Number of trajectories."""
    num_frames: int = 41
    """Number of frames; the first is at t = 0."""
    frame_step: float = 0.1
    """Time between frames; sound crosses the chord in one unit of time."""
    courant: float = 0.8
    """Courant number: cells that the fastest wave crosses in a step, summed over directions."""
    portion_size: int = 4
    """Trajectories solved in one batch, with a common time step."""

    suffix = ".h5"

    def __post_init__(self) -> None:
        """Validates all parameters."""
        super().__post_init__()
        for name in ("strengths", "sizes", "heights"):
            limits = getattr(self, name)
            if len(limits) != 2 or limits[0] > limits[1]:
                raise ValueError(
                    f"`{name}` must be the smallest and the largest value, got {limits}."
                )
        if self.strengths[0] < 0 or self.sizes[0] <= 0:
            raise ValueError(
                "`strengths` must not be negative and `sizes` must be positive, "
                f"got {self.strengths} and {self.sizes}."
            )
        check_recording(self.num_trajectories, self.num_frames, self.frame_step, self.courant)

    def solve(self, trajectories: range) -> Portion:
        """Returns `nodes` (trajectories, points, 2), `fields` (trajectories, times, points, 4)."""
        kept, _ = mesh_triangles(self.num_around, self.num_out)
        nodes = [self.mesh(number).reshape(-1, 2)[kept] for number in trajectories]
        steady = solve_with_retries(self._steady, trajectories, self.steady_courant)

        def record(numbers: Sequence[int], courant: float) -> Tensor:
            rows = [number - trajectories.start for number in numbers]
            return self._record(numbers, steady[rows].movedim(1, 0), courant)

        fields = solve_with_retries(record, trajectories, self.courant)
        return {"nodes": np.stack(nodes), "fields": fields.cpu().numpy()}

    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes one group per trajectory."""
        _, triangles = mesh_triangles(self.num_around, self.num_out)
        with stacked(path, self.num_trajectories, portions) as arrays:
            series = FieldData(
                layout="mesh-series",
                source=path,
                variables=tuple(Variable(name) for name in FIELDS),
                geometries=tuple(
                    Geometry.unstructured(nodes, triangles) for nodes in arrays["nodes"]
                ),
                time=np.arange(self.num_frames) * self.frame_step,
                time_units="",
                num_samples=self.num_trajectories,
                fetch=lambda number, times: arrays["fields"][number, times],
            )
            write_mesh_series(path, series)

    def vortex(self, number: int) -> tuple[float, float, float]:
        """Returns the signed peak speed, size and initial height of a trajectory's vortex."""
        generator = self.generator(number).spawn(1)[0]
        limits = (self.strengths, self.sizes, self.heights)
        speed, size, height = (float(generator.uniform(low, high)) for low, high in limits)
        return speed * float(generator.choice((-1, 1))), size, height

    def disturbed(self, flow: BodyFittedFlow, state: Cells, numbers: Sequence[int]) -> Cells:
        r"""Returns each flow plus its vortex, of swirl speed $v_m\frac r\ell e^{(1-r^2/\ell^2)/2}$.

        Density and pressure drop towards the centre at constant entropy, so that in a uniform
        stream pressure balances the rotation and the vortex is advected unchanged.
        """
        centers = (flow.nodes[:, 1:, 1:] + flow.nodes[:, :-1, :-1]) / 2
        vortices = torch.tensor([self.vortex(number) for number in numbers], dtype=state.dtype)
        speed, size, height = vortices.to(state.device).T[..., None, None]
        x, y = (centers[..., 0] - self.start) / size, (centers[..., 1] - height) / size
        swirl = speed * torch.exp((1 - x**2 - y**2) / 2)
        temperature = 1 - (flow.gamma - 1) / 2 * swirl**2
        density, u, v, pressure = state
        power = 1 / (flow.gamma - 1)
        return torch.stack(
            [
                density * temperature**power,
                u - swirl * y,
                v + swirl * x,
                pressure * temperature ** (power + 1),
            ]
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
        for frame in range(self.num_frames):
            if frame:
                state = flow.advance(state, self.frame_step, courant)
            nodal = flow.at_nodes(state)[[1, 2, 0, 3]].flatten(2)[..., kept]
            frames.append(nodal.movedim(0, -1))
        return torch.stack(frames, 1)


PRESETS = {
    "quick": AirfoilVortex(num_trajectories=10),
    "default": AirfoilVortex(num_trajectories=60),
    "paper": AirfoilVortex(num_trajectories=1000, num_around=220, num_out=80),
}
"""Presets of `gpo data make airfoil-series`."""
