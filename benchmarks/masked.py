"""What a mask costs: CPU seconds of a training step, on whole grids and behind masks.

    python benchmarks/masked.py --files FOLDER

`FOLDER` holds `ssh_med`, sea surface height over the Mediterranean; without it a coast is made up.
Every row is the default model, forward and backward on one thread. "As points" is the same grid
with one more masked site beside it, which makes it a set of points with a dense least-squares fit:
what every masked grid was before gpo 0.4.0.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from rich.console import Console

from gpo import open_data
from gpo.model.losses import operator_losses
from gpo.model.operator import GaussianParticleOperator
from gpo.model.problem import Problem
from gpo.numerics.domain import Domain, unit_vectors
from gpo_bench.cost import in_new_process
from gpo_bench.protocol import describe_machine
from gpo_bench.table import Entry, Table

RESULTS = Path(__file__).parent / "results" / "masked"
SEA = Path("ssh_med") / "dt_med_allsat_phy_l4_2005T2.nc"
BATCH, STEPS = 8, 4
SEA_SHAPE = (128, 344)


@dataclass(frozen=True)
class Grid:
    """A grid and which of its nodes are masked; can be sent to another process."""

    domain: Domain
    shape: tuple[int, int]
    coords: torch.Tensor
    weights: torch.Tensor
    are_points: bool = False
    """Whether one more masked site keeps it from being a grid."""

    def masked(self, is_dry: torch.Tensor, *, are_points: bool = False) -> "Grid":
        """Returns the grid with some nodes masked."""
        weights = torch.where(is_dry, 0.0, self.weights)
        return Grid(self.domain, self.shape, self.coords, weights, are_points)

    def sites(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns coordinates and weights."""
        if not self.are_points:
            return self.coords, self.weights
        # Between two nodes, where no line of the grid goes.
        beside = self.coords[:2].mean(0, keepdim=True)
        if self.domain.is_sphere:
            beside = beside / beside.norm()
        return torch.cat([self.coords, beside]), torch.cat([self.weights, torch.zeros(1)])


@dataclass(frozen=True)
class Time:
    """What one grid takes, in CPU seconds."""

    set_up: float
    """Once per mask: all that is solved or searched for."""
    step: float
    """Forward and backward of one batch, the shortest of several."""


def measure(grid: Grid) -> Time:
    """Returns what training on a grid takes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GaussianParticleOperator(Problem(1, 1, grid.domain, grid.shape))
    coords, weights = grid.sites()
    values, target = torch.randn(2, BATCH, len(coords), 1)
    start = time.process_time()
    model.sites(values, coords, weights)
    set_up, steps = time.process_time() - start, []
    for _ in range(STEPS):
        start = time.process_time()
        losses = operator_losses(model, values, coords, target, weights=weights)
        losses["total"].backward()
        steps.append(time.process_time() - start)
    return Time(set_up, min(steps))


def torus(size: int) -> Grid:
    """Returns a periodic square grid."""
    domain = Domain.unit_box(2, periodic=True)
    coords, weights = (part.float() for part in domain.grid(size, size))
    return Grid(domain, (size, size), coords, weights)


def sea(files: Path | None) -> tuple[Grid, torch.Tensor]:
    """Returns the Mediterranean and where its land is, made up where there is no file."""
    if files is not None and (files / SEA).exists():
        geometry = open_data(files / SEA).geometry()
        coords = torch.from_numpy(geometry.coords).float()
        latitude = torch.asin(coords[:, 2].double().clamp(-1, 1))
        is_dry = torch.from_numpy(geometry.is_masked)
        return Grid(geometry.domain, SEA_SHAPE, coords, latitude.cos().float()), is_dry
    degrees = torch.cartesian_prod(
        torch.linspace(30, 46, SEA_SHAPE[0]), torch.linspace(-6, 37, SEA_SHAPE[1])
    )
    coords = unit_vectors(degrees[:, 1], degrees[:, 0])
    coast = 36 + 3 * torch.sin(degrees[:, 1] / 4)
    is_dry = (degrees[:, 0] - coast).abs() > 3
    grid = Grid(Domain.sphere(coords), SEA_SHAPE, coords, degrees[:, 0].deg2rad().cos())
    return grid, is_dry


def cases(files: Path | None, *, has_dense_sea: bool) -> dict[str, Grid]:
    """Returns all grids by name; each masked one follows the whole one that it is compared with."""
    square, (whole, is_land) = torus(64), sea(files)
    generator = torch.Generator().manual_seed(0)
    has_gap = torch.rand(len(square.coords), generator=generator) < 0.03
    in_disc = (square.coords - 0.5).norm(dim=-1) < 0.2
    found = {
        "64 x 64, whole": square,
        "64 x 64, 3 % random gaps": square.masked(has_gap),
        "64 x 64, a disc": square.masked(in_disc),
        "64 x 64, 3 % random gaps, as points": square.masked(has_gap, are_points=True),
        "sea of 128 x 344, whole": whole,
        "sea of 128 x 344, its land masked": whole.masked(is_land),
    }
    if has_dense_sea:
        found["sea of 128 x 344, its land masked, as points"] = whole.masked(
            is_land, are_points=True
        )
    return found


def tabulate(grids: dict[str, Grid], say: Callable[[str], None]) -> Table:
    """Returns the times of all grids beside each other."""
    columns = ["masked, %", "set-up, s", "step, s", "us per site", "us per counted site", "ratio"]
    table = Table(f"A training step behind masks, batch {BATCH}", "grid", columns, best="none")
    per_site_whole = 1.0
    for name, grid in grids.items():
        say(name)
        found = in_new_process(measure, grid)
        num_sites, num_counted = len(grid.weights), int((grid.weights > 0).sum())
        per_site, per_counted = (1e6 * found.step / BATCH / n for n in (num_sites, num_counted))
        if num_counted == num_sites:
            per_site_whole = per_site
        table.add(
            name,
            [
                Entry(100 * (1 - num_counted / num_sites)), Entry(found.set_up), Entry(found.step),
                Entry(per_site), Entry(per_counted), Entry(per_site / per_site_whole),
            ],
        )  # fmt: skip
    table.notes += [
        "CPU seconds of forward and backward of the default model on one thread, the shortest of "
        f"{STEPS}; set-up is once per mask. A site is a node of the grid, masked or not. Ratio: per "
        "site, to the whole grid above.",
        "As points: one more masked site beside the grid makes it a set of points, fitted by dense "
        "least squares.",
    ]
    return table


def main(files: Path | None = None, has_dense_sea: bool = False) -> None:
    """Measures and writes.

    Args:
        files: Where the real files are.
        has_dense_sea: Whether the sea is also measured as points, which takes minutes.
    """
    console = Console()
    table = tabulate(
        cases(files, has_dense_sea=has_dense_sea), lambda text: console.print(text, style="dim")
    )
    command = "python benchmarks/masked.py" + (" --files FOLDER" if files else "")
    text = "\n\n".join([table.markdown(), *describe_machine(command)])
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "table.md").write_text(text + "\n", encoding="utf-8")
    console.print(text, markup=False)


if __name__ == "__main__":
    tyro.cli(main)
