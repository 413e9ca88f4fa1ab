"""Does splitting Gaussians improve a fit? Three frames each of ns2d, ERA5 and a masked sea.

    python benchmarks/represent_split.py --files FOLDER

Every frame is fitted by `gpo_mixture.fit`. Three continuations of the fit then take half of its CPU
time each: steps alone, a relocation (the Gaussians with least removal costs move to peaks of the
residual) and steps, or a split and steps. A split halves the Gaussians with the largest residual in
their footprint along their long axis, and removes as many of those with least removal costs. A
relocation or a split that does not reduce the loss is undone before the steps.
"""

import time
from pathlib import Path

import numpy as np
import torch
import tyro
from represent import RESULTS, Case, error, from_file, turbulence

from gpo.atomic_files import write_text
from gpo_bench.protocol import describe_machine
from gpo_mixture import fit
from gpo_mixture.fitting import RELOCATED_FRACTION, mixture_shapes, shapes_at_peaks, to_mixture
from gpo_mixture.projection import Solution, StopCondition, improve, solve
from gpo_mixture.shapes import AbstractShapes
from gpo_mixture.target import Target

COUNT = 100
NUM_STEPS = 20
"""Steps after a split or a relocation; as many as in the last round of an initial fit."""
SEPARATION, NARROWING = 0.7, 0.6
"""Distance of the halves from the old center in semi-axes, and the factor of that semi-axis."""
HEAD = (
    "| data | frame | fit | CPU s | + steps | + relocation | + split | split / steps | split / relocation | "
    "split kept |\n|" + "---|" * 10
)


def halved(shapes: AbstractShapes) -> AbstractShapes:
    """Returns two Gaussians for each, side by side along its long axis."""
    # A root maps the first right singular vector to the long axis.
    long_axis = torch.linalg.svd(shapes.roots, full_matrices=False).Vh[:, 0]
    eye = torch.eye(shapes.num_axes, dtype=long_axis.dtype)
    squeeze = eye - (1 - NARROWING) * long_axis.unsqueeze(-1) * long_axis.unsqueeze(-2)
    narrow = shapes.roots @ squeeze
    first, second = (shapes.transported(s * SEPARATION * long_axis, narrow) for s in (1, -1))
    return first.joined(second)


def local_residuals(solution: Solution, target: Target) -> torch.Tensor:
    """Returns the squared residual in the footprint of every Gaussian."""
    squared = solution.residual(target).square().sum(-1) * target.weights
    return solution.shapes.basis(target.points).square() @ squared


def split(solution: Solution, target: Target, stop: StopCondition) -> Solution:
    """Halves a tenth of the Gaussians and removes as many."""
    count = round(RELOCATED_FRACTION * len(solution.shapes))
    rows = local_residuals(solution, target).argsort(descending=True)[:count]
    is_kept = torch.ones(len(solution.shapes), dtype=torch.bool)
    is_kept[rows] = False
    joined = solution.shapes.rows(is_kept).joined(halved(solution.shapes.rows(rows)))
    larger = solve(target.clamp(joined), target)
    smaller = solve(larger.shapes.rows(larger.without_cheapest(count)), target)
    return improve(smaller, target, NUM_STEPS, should_stop=stop)


def relocate(solution: Solution, target: Target, stop: StopCondition) -> Solution:
    """Moves the tenth of the Gaussians with least removal costs to peaks of the residual."""
    count = round(RELOCATED_FRACTION * len(solution.shapes))
    rest = solve(solution.shapes.rows(solution.without_cheapest(count)), target)
    new = shapes_at_peaks(target, rest.residual(target), count, COUNT, "full")
    relocated = solve(rest.shapes.joined(new), target)
    return improve(relocated, target, NUM_STEPS, should_stop=stop)


def steps(solution: Solution, target: Target, stop: StopCondition) -> Solution:
    """Takes steps until the loss no longer decreases or time is up."""
    previous_loss = np.inf
    while solution.loss < previous_loss and not stop():
        previous_loss = solution.loss
        solution = improve(solution, target, NUM_STEPS, 1e-5, should_stop=stop)
    return solution


def compare(case: Case, values: np.ndarray) -> tuple[list[float], float, bool]:
    """Returns the errors of the fit and its continuations, its CPU seconds, and whether the split was kept."""
    geometry = case.geometry
    field = torch.from_numpy(np.nan_to_num(values))
    coords, weights = (torch.from_numpy(part) for part in (geometry.coords, geometry.weights))
    begin = time.process_time()
    plain = fit(field, coords, weights, COUNT, domain=geometry.domain)
    seconds = time.process_time() - begin
    target = Target.of(field, coords, weights, geometry.domain)
    sites = target.subsampled()
    start = solve(mixture_shapes(plain, sites), sites)
    errors, is_split_kept = [error(plain(coords).numpy(), values, geometry)], False
    for change in (None, relocate, split):
        deadline = time.process_time() + seconds / 2

        def stop(deadline: float = deadline) -> bool:
            return time.process_time() > deadline

        trial = start if change is None else change(start, sites, stop)
        is_better = trial.loss < start.loss
        is_split_kept = is_better if change is split else is_split_kept
        solution = steps(trial if is_better else start, sites, stop)
        mixture = to_mixture(solution, target, torch.arange(COUNT))
        errors.append(error(mixture(coords).numpy(), values, geometry))
    return errors, seconds, is_split_kept


def main(files: Path, out: Path = RESULTS) -> None:
    """Computes and writes the table.

    Args:
        files: Folder of the real data sets.
        out: Folder for the table.
    """
    torch.set_num_threads(1)
    sea = files / "ssh_med" / "dt_med_allsat_phy_l4_2005T2.nc"
    cases = [
        turbulence(1e-4),
        from_file("ERA5 2 m temperature, UK", files / "era5" / "era5-2mt-2019-03-uk.grib"),
        from_file("sea level, Mediterranean (masked)", sea, "adt", 2),
    ]
    rows, ratios = [], []
    for case in cases:
        for number, values in enumerate([*case.test, case.train[-1]]):
            (initial, *continued), seconds, is_split_kept = compare(case, values)
            alone, relocated, divided = continued
            ratios.append((divided / alone, divided / relocated))
            cells = [case.name, f"{number + 1}", f"{initial:.3g}", f"{seconds:.1f}"]
            cells += [f"{value:.3g}" for value in continued]
            cells += [f"{ratio:.2f}" for ratio in ratios[-1]] + ["yes" if is_split_kept else "no"]
            rows.append("| " + " | ".join(cells) + " |")
            print(rows[-1], flush=True)
    means = np.exp(np.log(ratios).mean(0))
    rows.append(f"| geometric mean | | | | | | | {means[0]:.2f} | {means[1]:.2f} | |")
    meaning = (__doc__ or "").split("\n\n")[2].replace("\n", " ").strip()
    lines = ["### Does splitting help?", "", f"{COUNT} Gaussians. {meaning}", "", HEAD, *rows, ""]
    lines += describe_machine("python benchmarks/represent_split.py --files FOLDER")
    write_text(out / "split.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
