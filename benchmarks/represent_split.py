"""Does splitting Gaussians help a fit? Three frames each of ns2d, ERA5 and a masked sea.

    python benchmarks/represent_split.py --files FOLDER

Every frame is fitted as `GaussianMixture.fit` does it. From there three ways go on for as many CPU
seconds, half of those that the fit took: steps alone, an exchange (the least needed Gaussians move
to the peaks of what is left) and steps, or a split and steps. A split halves those Gaussians in
whose footprint most is left, along their long axis, and takes out as many of the least needed. An
exchange or a split that does not lower the loss is undone, and steps go on from before it.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import tyro
from represent import RESULTS, Case, error, from_file, turbulence

from gpo.atomic_files import write_text
from gpo_bench.protocol import describe_machine
from gpo_mixture.fit import EXCHANGED, finished, fit_mixture, new_particles, scaled
from gpo_mixture.projection import Solved, improve, solve
from gpo_mixture.shapes import AbstractShapes
from gpo_mixture.target import Target

COUNT = 100
NUM_STEPS = 20
"""Of the round after a split or an exchange; a fit of `GaussianMixture` ends its start with as many."""
APART, NARROWER = 0.7, 0.6
"""Halves lie this many half axes from the old center, and are this much shorter along it."""
HEAD = (
    "| data | frame | fit | CPU s | + steps | + exchange | + split | split / steps | split / exchange | "
    "split kept |\n|" + "---|" * 10
)

Stop = Callable[[], bool]


def halved(shapes: AbstractShapes) -> AbstractShapes:
    """Returns two Gaussians for each, side by side along its long axis."""
    _, sizes, turns = torch.linalg.svd(shapes.roots, full_matrices=False)
    assert bool((sizes[:, 0] >= sizes[:, -1]).all())
    # A root maps the first right singular vector to the long axis.
    long = turns[:, 0]
    eye = torch.eye(shapes.num_axes, dtype=long.dtype)
    squeeze = eye - (1 - NARROWER) * long.unsqueeze(-1) * long.unsqueeze(-2)
    narrow = shapes.roots @ squeeze
    first, second = (shapes.carried(side * APART * long, narrow) for side in (1, -1))
    return first.joined(second)


def left_inside(solved: Solved, target: Target) -> torch.Tensor:
    """Returns the squared field that is left in the footprint of every Gaussian."""
    squared = solved.left(target).square().sum(-1) * target.weights
    return solved.shapes.basis(target.points).square() @ squared


def split(solved: Solved, target: Target, stop: Stop) -> Solved:
    """Returns the fit after a tenth was halved and as many taken out."""
    count = round(EXCHANGED * len(solved.shapes))
    most = left_inside(solved, target).argsort(descending=True)[:count]
    rest = torch.ones(len(solved.shapes), dtype=torch.bool)
    rest[most] = False
    others = rest.nonzero().flatten()
    joined = solved.shapes.rows(others).joined(halved(solved.shapes.rows(most)))
    more = solve(target.bounded(joined), target)
    kept = more.needs().argsort(descending=True)[:-count].sort().values
    return improve(solve(more.shapes.rows(kept), target), target, NUM_STEPS, should_stop=stop)


def exchange(solved: Solved, target: Target, stop: Stop) -> Solved:
    """Returns the fit after a tenth of the Gaussians, the least needed, moved to peaks."""
    count = round(EXCHANGED * len(solved.shapes))
    kept = solved.needs().argsort(descending=True)[:-count].sort().values
    fewer = solve(solved.shapes.rows(kept), target)
    new = new_particles(target, fewer.left(target), count, COUNT, "full")
    tried = solve(fewer.shapes.joined(new), target)
    return improve(tried, target, NUM_STEPS, should_stop=stop)


def steps(solved: Solved, target: Target, stop: Stop) -> Solved:
    """Returns the fit after steps alone, until they lower the loss no more or time is over."""
    before = np.inf
    while solved.loss < before and not stop():
        before = solved.loss
        solved = improve(solved, target, NUM_STEPS, 1e-5, should_stop=stop)
    return solved


def compare(case: Case, values: np.ndarray) -> tuple[list[float], float, bool]:
    """Returns errors of the fit and of the three ways on, its CPU seconds, whether the split stayed."""
    geometry = case.geometry
    field = torch.from_numpy(np.nan_to_num(values))
    coords, weights = (torch.from_numpy(part) for part in (geometry.coords, geometry.weights))
    begin = time.process_time()
    plain = fit_mixture(field, coords, weights, COUNT, domain=geometry.domain)
    seconds = time.process_time() - begin
    whole = Target.of(field, coords, weights, geometry.domain)
    target = whole.thinned()
    start = solve(scaled(plain, target, "full"), target)
    errors, stays = [error(plain(coords).numpy(), values, geometry)], False
    for way in (None, exchange, split):
        deadline = time.process_time() + seconds / 2

        def stop(deadline: float = deadline) -> bool:
            return time.process_time() > deadline

        tried = start if way is None else way(start, target, stop)
        is_better = tried.loss < start.loss
        stays = is_better if way is split else stays
        found = steps(tried if is_better else start, target, stop)
        made = finished(found, whole, torch.arange(COUNT), geometry.domain, ())
        errors.append(error(made(coords).numpy(), values, geometry))
    return errors, seconds, stays


def main(files: Path, out: Path = RESULTS) -> None:
    """Makes the table.

    Args:
        files: Folder of the real files.
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
        for number, values in enumerate([*case.tested, case.others[-1]]):
            (fit, *ways), seconds, stays = compare(case, values)
            alone, moved, halves = ways
            ratios.append((halves / alone, halves / moved))
            cells = [case.name, f"{number + 1}", f"{fit:.3g}", f"{seconds:.1f}"]
            cells += [f"{one:.3g}" for one in ways]
            cells += [f"{one:.2f}" for one in ratios[-1]] + ["yes" if stays else "no"]
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
