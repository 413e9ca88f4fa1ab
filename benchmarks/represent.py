"""A field as few Gaussians, beside other ways to store it in as few numbers; figures and tables.

    python benchmarks/represent.py --files FOLDER

`FOLDER` holds the real files: `era5`, `ssh_med`, `cylinder_channel`. ns2d is solved anew. Parts that
were made before are not made again: delete their `.json` in `results/represent`. Beside error against
numbers stored: do Gaussians follow structures (alignment and density, with null bands), what does the
learned encoder cost and give, what is between the sites (the field at four times the sites of
ns2d, solved there), and do Gaussians that are followed move with the flow.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import represent_tracks
import torch
import tyro
from matplotlib import pyplot as plt
from mixture_encoder import MixtureEncoder
from represent_baselines import fourier, lattice, pod, wavelets
from represent_figures import draw_errors
from rich.console import Console

from gpo import Geometry, ReadOptions, Trajectories, Variable, coarsen, open_data
from gpo.atomic_files import write_text
from gpo.data.solvers.navier_stokes_2d import NavierStokes2D
from gpo_bench.protocol import describe_machine
from gpo_mixture import GaussianMixture
from gpo_mixture.fit import finished, new_particles
from gpo_mixture.pictures import draw_mixtures
from gpo_mixture.projection import improve, solve
from gpo_mixture.represented import RepresentedField, describe_mixtures
from gpo_mixture.target import Target

RESULTS = Path(__file__).parent / "results" / "represent"
DOCS = Path(__file__).parents[1] / "docs"
COUNTS = (25, 50, 100, 200)
TRAINED, TESTED = 12, 2
"""Trajectories of ns2d for POD and the encoder, and others to test on."""


@dataclass(frozen=True)
class Case:
    """Fields of one kind: some to test on, others that POD may learn from."""

    name: str
    geometry: Geometry
    tested: np.ndarray
    """Frames by points by variables."""
    others: np.ndarray
    variables: tuple[Variable, ...]


def turbulence(viscosity: float, size: int = 64) -> Case:
    """Returns forced turbulence on a torus: last frames of test trajectories, frames of others."""
    solver = NavierStokes2D(viscosity=viscosity, size=size, num_trajectories=TRAINED + TESTED)
    frames = np.moveaxis(solver.solve(range(TRAINED + TESTED))["u"], -1, 1)
    frames = frames.reshape(*frames.shape[:2], -1, 1).astype(np.float64)
    axis = np.arange(size) / size
    geometry = Geometry.rectilinear([axis, axis], periodic=True)
    others = frames[:TRAINED].reshape(-1, *frames.shape[2:])
    name, vorticity = f"ns2d, viscosity {viscosity:g}", (Variable("vorticity", "1/s"),)
    return Case(name, geometry, frames[TRAINED:, -1], others, vorticity)


def from_file(name: str, path: Path, variable: str | None = None, factor: int = 1) -> Case:
    """Returns two frames of the second half of a file to test on, and those of its first half."""
    opened = open_data(path, ReadOptions(variables=(variable,) if variable else ()))
    assert isinstance(opened, Trajectories)
    data = coarsen(opened, factor) if factor > 1 else opened
    frames = data.frames(0).astype(np.float64)
    missing = ~np.isfinite(frames).all((0, 2))
    geometry = data.geometry()
    geometry = geometry.masked(missing) if missing.any() else geometry
    half = len(frames) // 2
    tested = sorted({(half + len(frames)) // 2, len(frames) - 1})
    return Case(name, geometry, frames[tested], frames[:half], data.variables)


def error(made: np.ndarray, truth: np.ndarray, geometry: Geometry) -> float:
    """Returns the relative L2 error, of the field without its mean over sites."""
    q = np.where(geometry.is_masked, 0.0, geometry.weights)[:, None]
    made, truth = (np.where(q > 0, part, 0.0) for part in (made, truth))
    size = truth - (q * truth).sum(0)
    return float(np.sqrt((q * (made - truth) ** 2).sum() / (q * size**2).sum()))


def fitted(case: Case, values: np.ndarray, count: int, **changes: object) -> GaussianMixture:
    """Returns the Gaussians of one frame."""
    filled = torch.from_numpy(np.nan_to_num(values))
    sites = (torch.from_numpy(part) for part in (case.geometry.coords, case.geometry.weights))
    made = GaussianMixture.fit(filled, *sites, count, domain=case.geometry.domain, **changes)  # type: ignore[arg-type]
    return replace(made, variables=tuple(variable.name for variable in case.variables))


def represented(case: Case, mixture: GaussianMixture, values: np.ndarray) -> RepresentedField:
    """Returns a frame with its Gaussians, to be drawn and measured."""
    units = tuple(variable.units for variable in case.variables)
    return RepresentedField(mixture, case.geometry, values, units)


def at_sites(mixture: GaussianMixture, geometry: Geometry) -> np.ndarray:
    """Returns the field of Gaussians at the sites."""
    return mixture(torch.from_numpy(geometry.coords)).numpy()


def compare(case: Case, console: Console) -> tuple[list[str], list[GaussianMixture]]:
    """Returns rows of the table, and the mixtures of 100 particles."""
    geometry, rows, kept = case.geometry, [], []
    is_grid = bool(geometry.axes) and not geometry.is_masked.any()
    is_box = not geometry.domain.is_sphere
    learned = pod(case.others, geometry) if len(case.others) > 1 else None
    for count in COUNTS:
        begin = time.process_time()
        mixtures = [fitted(case, values, count) for values in case.tested]
        seconds = (time.process_time() - begin) / len(mixtures)
        numbers = mixtures[0].num_numbers
        if count == 100:
            kept = mixtures

        def mean(made: Callable[[np.ndarray], np.ndarray], case: Case = case) -> str:
            errors = [error(made(values), values, case.geometry) for values in case.tested]
            return f"{np.mean(errors):.3g}"

        full = np.mean([error(at_sites(one, geometry), values, geometry)
                        for one, values in zip(mixtures, case.tested, strict=True)])  # fmt: skip
        cells = [
            case.name, f"{count}", f"{numbers}", f"**{full:.3g}**",
            mean(lambda values, count=count: at_sites(
                fitted(case, values, count, covariance="diagonal"), geometry)) if is_box and count <= 100 else "-",
            mean(lambda values, count=count: lattice(values, geometry, (count + 1) * values.shape[1])),
            mean(lambda values, numbers=numbers: lattice(values, geometry, numbers)),
            mean(lambda values, numbers=numbers: fourier(values, geometry, numbers)),
            mean(lambda values, numbers=numbers: wavelets(values, geometry, numbers)) if is_grid else "-",
            mean(lambda values, numbers=numbers: learned(values, geometry, numbers)) if learned else "-",
            f"{seconds:.1f}",
        ]  # fmt: skip
        rows.append("| " + " | ".join(cells) + " |")
        console.print(rows[-1])
    return rows, kept


def structures(case: Case, mixtures: list[GaussianMixture]) -> str:
    """Returns the row of alignment and density with their null bands."""
    fields = [
        represented(case, one, values) for one, values in zip(mixtures, case.tested, strict=True)
    ]
    told = describe_mixtures(fields, np.random.default_rng(0))
    cells = [case.name]
    for name in ("alignment", "density", "footprints"):
        one = told.get(name, {})
        cells.append(
            f"{one['value']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f})"
            if "value" in one
            else "-"
        )
    return "| " + " | ".join([*cells, told["null"]]) + " |"


def encoders(case: Case, console: Console) -> list[str]:
    """Returns the rows of the learned encoder beside the plain fit, on test frames."""
    geometry, domain = case.geometry, case.geometry.domain
    coords, weights = torch.from_numpy(geometry.coords), torch.from_numpy(geometry.weights)
    torch.manual_seed(0)
    encoder = MixtureEncoder(2)
    begin = time.process_time()
    frames = [torch.from_numpy(values) for values in case.others]
    encoder.train_on(frames, coords, weights, domain=domain, num_steps=250)
    trained = time.process_time() - begin

    def started(values: torch.Tensor, steps: int) -> GaussianMixture:
        target = Target.of(values, coords, weights, domain)
        shapes = new_particles(target, target.values, 100, 100, "full")
        solved = improve(solve(shapes, target), target, steps)
        return finished(solved, target, torch.arange(100), domain, ())

    ways: dict[str, Callable[[torch.Tensor], GaussianMixture]] = {
        "round Gaussians at peaks": lambda values: started(values, 0),
        "encoder, one pass": lambda values: encoder.encode(values, coords, weights, domain=domain),
        "round Gaussians at peaks, 4 steps": lambda values: started(values, 4),
        "encoder, 4 steps": lambda values: encoder.encode(
            values, coords, weights, domain=domain, num_steps=4
        ),
        "plain fit": lambda values: GaussianMixture.fit(
            values, coords, weights, 100, domain=domain
        ),
    }
    rows = []
    for name, way in ways.items():
        begin = time.process_time()
        made = [way(torch.from_numpy(values)) for values in case.tested]
        seconds = (time.process_time() - begin) / len(made)
        errors = [error(at_sites(one, geometry), values, geometry)
                  for one, values in zip(made, case.tested, strict=True)]  # fmt: skip
        rows.append(f"| {name} | {np.mean(errors):.3g} | {seconds:.2f} |")
        console.print(rows[-1])
    return [*rows, f"\nThe encoder was trained for {trained:.0f} CPU seconds on {len(frames)} frames of other trajectories."]  # fmt: skip


def between_sites(viscosity: float) -> str:
    """Returns a sentence on the error between the sites of ns2d, of Gaussians and of interpolation."""
    fine = turbulence(viscosity, 128)
    shape, coarse_axis = (128, 128), np.arange(64) / 64
    coarse = Geometry.rectilinear([coarse_axis, coarse_axis], periodic=True)
    is_between = np.ones(shape, dtype=bool)
    is_between[::2, ::2] = False
    found: dict[str, list[float]] = {"at": [], "between": [], "linear": []}
    for values in fine.tested:
        truth = values.reshape(shape)
        sites = truth[::2, ::2].reshape(-1, 1)
        case = replace(fine, geometry=coarse)
        mixture = fitted(case, sites, 200)
        made = at_sites(mixture, fine.geometry).reshape(shape)
        linear = _bilinear(truth[::2, ::2])
        for name, other, where in (
            ("at", made, ~is_between),
            ("between", made, is_between),
            ("linear", linear, is_between),
        ):
            error_there = np.linalg.norm((other - truth)[where]) / np.linalg.norm(truth[where])
            found[name].append(float(error_there))
    at, between, linear = (np.mean(found[name]) for name in ("at", "between", "linear"))
    return (
        f"ns2d at 64², judged on the grid of 128² that it was solved on: 200 Gaussians have "
        f"{at:.3g} at the sites and {between:.3g} between them; interpolating the values linearly "
        f"has {linear:.3g} there."
    )


def _bilinear(values: np.ndarray) -> np.ndarray:
    """Returns a periodic grid with twice as many sites along each axis."""
    for axis in (0, 1):
        middle = (values + np.roll(values, -1, axis)) / 2
        values = np.stack([values, middle], axis + 1).reshape(
            [n * (2 if number == axis else 1) for number, n in enumerate(values.shape)]
        )
    return values


def draw(path: Path, rows: dict[str, RepresentedField], dpi: int = 80) -> None:
    """Writes a figure of the documentation."""
    figure = draw_mixtures(rows)
    figure.savefig(path, dpi=dpi)
    plt.close(figure)


HEAD = (
    "| data | Gaussians | numbers stored | Gaussians, full | axis-aligned, as many | lattice, as many | lattice | "
    "Fourier | wavelets | POD | CPU s |\n|" + "---|" * 11
)


TABLES = {
    "errors": (
        "Error against numbers stored",
        "Relative L2 of what is left when the mean over sites is taken away, mean over two frames "
        "that no method learned from, at equal numbers stored but where it says as many. "
        "Gaussians: center, covariance and amplitudes of each are counted. Lattice: round "
        "Gaussians, the best of three widths; amplitudes are counted. Fourier: the longest waves, "
        "cosines along open axes, spherical harmonics on the globe, by least squares. Wavelets: "
        "the largest of an orthogonal transform (Daubechies, 4 moments), value and place of each "
        "are counted; left out on masks and meshes. POD: modes of other frames of the same data, "
        "which are not counted, and of which there may be fewer than numbers; they know the "
        "data, the others do not. CPU seconds of one full fit.",
        HEAD,
    ),
    "structures": (
        "Do Gaussians follow structures?",
        "100 Gaussians, two frames. Alignment of long axes with the gradient: -1 along fronts, 1 "
        "across. Rank correlation with the gradient of the density of centers, and of the sum of "
        "footprints, each of mass one. In brackets the band of 95 % of a null in which the "
        "gradient is moved against the Gaussians.",
        "| data | alignment | density | footprints | null |\n|---|---|---|---|---|",
    ),
    "encoder": (
        "The learned encoder",
        "ns2d, 100 Gaussians, test frames. Steps are those of the plain fit.",
        "| way | error | CPU s |\n|---|---|---|",
    ),
    "between": ("Between the sites", "", ""),
    "tracks": (
        "Do Gaussians that are followed move with the flow?",
        f"ns2d at {represent_tracks.SIZE}², two trajectories, {represent_tracks.NUM_FRAMES} frames, "
        f"{represent_tracks.NUM_PARTICLES} Gaussians. Vector correlation of their displacements from "
        "frame to frame with the way of the true flow; controls are the velocity of the other "
        "trajectory, and a null in which the true one is moved by random distances (band of 95 %). "
        "Lengths in sides of the box.",
        represent_tracks.HEAD,
    ),
}


def make(part: str, files: Path, docs: Path, console: Console) -> dict[str, list[str]]:
    """Returns lines of the tables that one part gives; draws its figure."""
    if part == "encoder":
        return {"encoder": encoders(turbulence(1e-4), console)}
    if part == "between":
        return {"between": [between_sites(1e-4)]}
    if part == "tracks":
        return {"tracks": represent_tracks.rows()}
    era5 = files / "era5"
    if part == "ns2d":
        case = turbulence(1e-4)
    elif part == "era5":
        case = from_file("ERA5 2 m temperature, UK", era5 / "era5-2mt-2019-03-uk.grib")
    elif part == "sea":
        sea = files / "ssh_med" / "dt_med_allsat_phy_l4_2005T2.nc"
        case = from_file("sea level, Mediterranean (masked)", sea, "adt", 2)
    elif part == "globe":
        vapour = era5 / "era5_tcwv_global025_20220617T09-12.grib"
        case = from_file("ERA5 water vapour, globe", vapour, None, 12)
    else:
        case = from_file("flow around a cylinder (mesh)", files / "cylinder_channel")
    rows, mixtures = compare(case, console)
    fields = {
        f"{case.name}, frame {number + 1}": represented(case, one, values)
        for number, (one, values) in enumerate(zip(mixtures, case.tested, strict=True))
    }
    if part == "ns2d":
        smooth = turbulence(1e-3)
        fields = {case.name: next(iter(fields.values()))}
        other = fitted(smooth, smooth.tested[0], 100)
        fields[smooth.name] = represented(smooth, other, smooth.tested[0])
    draw(docs / f"represent_{part}.png", fields)
    return {"errors": rows, "structures": [structures(case, mixtures)]}


PARTS = ("ns2d", "era5", "sea", "globe", "mesh", "encoder", "between", "tracks")


def main(
    files: Path, out: Path = RESULTS, docs: Path = DOCS, only: tuple[str, ...] = PARTS
) -> None:
    """Makes tables and figures; parts that are there already are not made again.

    Args:
        files: Folder of the real files.
        out: Folder for the tables.
        docs: Folder for the figures.
        only: Parts to make.
    """
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    for part in only:
        path = out / f"{part}.json"
        if not path.exists():
            write_text(path, json.dumps(make(part, files, docs, Console(width=200)), indent=1))
    made = [json.loads((out / f"{part}.json").read_text()) for part in PARTS if (out / f"{part}.json").exists()]  # fmt: skip
    draw_errors(docs / "represent_errors.png", [line for one in made for line in one.get("errors", [])])  # fmt: skip
    text: list[str] = []
    for name, (title, meaning, head) in TABLES.items():
        lines = [line for one in made for line in one.get(name, [])]
        if lines:
            text += [f"### {title}", "", *([meaning, ""] if meaning else []), *([head] if head else []), *lines, ""]  # fmt: skip
    text += describe_machine("python benchmarks/represent.py --files FOLDER")
    write_text(out / "table.md", "\n".join(text) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
