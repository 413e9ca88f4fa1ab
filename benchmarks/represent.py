"""Error of Gaussian mixtures against other representations with as many parameters; tables and figures.

    python benchmarks/represent.py --files FOLDER

`FOLDER` holds the real data sets: `era5`, `ssh_med`, `cylinder_channel`. ns2d is solved anew. Parts
that have a `.json` file in `results/represent` are not computed again; delete the file to do so. The
tables also answer: do Gaussians follow structures (alignment and density, with null bands), what
does a learned encoder cost and gain, how large is the error between the sites (ns2d on a grid with
four times as many points), and do tracked Gaussians move with the flow.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
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

from gpo import Geometry, ReadOptions, Variable, coarsen, open_data
from gpo.atomic_files import write_text
from gpo.data.solvers.navier_stokes_2d import NavierStokes2D
from gpo_bench.protocol import describe_machine
from gpo_mixture import GaussianMixture, fit
from gpo_mixture.fitting import shapes_at_peaks, to_mixture
from gpo_mixture.pictures import draw_mixtures
from gpo_mixture.projection import improve, solve
from gpo_mixture.structure import RepresentedField, describe_structure
from gpo_mixture.target import Target

RESULTS = Path(__file__).parent / "results" / "represent"
DOCS = Path(__file__).parents[1] / "docs"
COUNTS = (25, 50, 100, 200)
NUM_TRAIN, NUM_TEST = 12, 2
"""Trajectories of ns2d to train POD and the encoder, and to test."""


@dataclass(frozen=True)
class Case:
    """Frames of a data set: some for testing, others for training POD and the encoder."""

    name: str
    geometry: Geometry
    test: np.ndarray
    """Frames by points by variables."""
    train: np.ndarray
    variables: tuple[Variable, ...]


def turbulence(viscosity: float, size: int = 64) -> Case:
    """Returns forced turbulence on a torus; the test frames are the last of their trajectories."""
    solver = NavierStokes2D(viscosity=viscosity, size=size, num_trajectories=NUM_TRAIN + NUM_TEST)
    frames = np.moveaxis(solver.solve(range(NUM_TRAIN + NUM_TEST))["u"], -1, 1)
    frames = frames.reshape(*frames.shape[:2], -1, 1).astype(np.float64)
    axis = np.arange(size) / size
    geometry = Geometry.rectilinear([axis, axis], periodic=True)
    train = frames[:NUM_TRAIN].reshape(-1, *frames.shape[2:])
    name, vorticity = f"ns2d, viscosity {viscosity:g}", (Variable("vorticity", "1/s"),)
    return Case(name, geometry, frames[NUM_TRAIN:, -1], train, vorticity)


def from_file(name: str, path: Path, variable: str | None = None, factor: int = 1) -> Case:
    """Returns two test frames of the second half of a file, and its first half for training."""
    opened = open_data(path, ReadOptions(variables=(variable,) if variable else ()))
    data = coarsen(opened, factor) if factor > 1 else opened
    frames = data.frames(0).astype(np.float64)
    is_missing = ~np.isfinite(frames).all((0, 2))
    geometry = data.geometry()
    geometry = geometry.masked(is_missing) if is_missing.any() else geometry
    half = len(frames) // 2
    test = sorted({(half + len(frames)) // 2, len(frames) - 1})
    return Case(name, geometry, frames[test], frames[:half], data.variables)


def error(prediction: np.ndarray, truth: np.ndarray, geometry: Geometry) -> float:
    """Returns the relative L2 error, normalised by the field minus its mean over sites."""
    weights = np.where(geometry.is_masked, 0.0, geometry.weights)[:, None]
    prediction, truth = (np.where(weights > 0, part, 0.0) for part in (prediction, truth))
    anomaly = truth - (weights * truth).sum(0)
    squared = (weights * (prediction - truth) ** 2).sum() / (weights * anomaly**2).sum()
    return float(np.sqrt(squared))


def mean_error(case: Case, method: Callable[[np.ndarray], np.ndarray]) -> float:
    """Returns the mean error of a representation over the test frames."""
    errors = [error(method(values), values, case.geometry) for values in case.test]
    return float(np.mean(errors))


def fit_frame(case: Case, values: np.ndarray, count: int, **changes: object) -> GaussianMixture:
    """Returns the mixture of a frame."""
    filled = torch.from_numpy(np.nan_to_num(values))
    sites = (torch.from_numpy(part) for part in (case.geometry.coords, case.geometry.weights))
    mixture = fit(filled, *sites, count, domain=case.geometry.domain, **changes)  # type: ignore[arg-type]
    return replace(mixture, variables=tuple(variable.name for variable in case.variables))


def represented(case: Case, mixture: GaussianMixture, values: np.ndarray) -> RepresentedField:
    """Returns a frame with its mixture and its units."""
    units = tuple(variable.units for variable in case.variables)
    return RepresentedField(mixture, case.geometry, values, units)


def at_sites(mixture: GaussianMixture, geometry: Geometry) -> np.ndarray:
    """Evaluates a mixture at the sites."""
    return mixture(torch.from_numpy(geometry.coords)).numpy()


def mixture_errors(case: Case, mixtures: list[GaussianMixture]) -> list[float]:
    """Returns the errors of the mixtures of the test frames."""
    pairs = zip(mixtures, case.test, strict=True)
    return [error(at_sites(mixture, case.geometry), values, case.geometry) for mixture, values in pairs]  # fmt: skip


def compare(case: Case, console: Console) -> tuple[list[str], list[GaussianMixture]]:
    """Returns rows of the table of errors, and the mixtures of 100 Gaussians."""
    geometry, rows, selected = case.geometry, [], []
    is_grid = bool(geometry.axes) and not geometry.is_masked.any()
    pod_modes = pod(case.train, geometry) if len(case.train) > 1 else None

    def cell(method: Callable | None, numbers: int) -> str:
        if method is None:
            return "-"
        compress = partial(method, geometry=geometry, numbers=numbers)
        return f"{mean_error(case, compress):.3g}"

    def diagonal(values: np.ndarray, geometry: Geometry, numbers: int) -> np.ndarray:
        return at_sites(fit_frame(case, values, numbers, covariance="diagonal"), geometry)

    for count in COUNTS:
        begin = time.process_time()
        mixtures = [fit_frame(case, values, count) for values in case.test]
        seconds = (time.process_time() - begin) / len(mixtures)
        if count == 100:
            selected = mixtures
        numbers, is_box = mixtures[0].num_parameters, not geometry.domain.is_sphere
        cells = [
            case.name, f"{count}", f"{numbers}", f"**{np.mean(mixture_errors(case, mixtures)):.3g}**",
            cell(diagonal if is_box and count <= 100 else None, count),
            cell(lattice, (count + 1) * case.test.shape[2]),
            cell(lattice, numbers),
            cell(fourier, numbers),
            cell(wavelets if is_grid else None, numbers),
            cell(pod_modes, numbers),
            f"{seconds:.1f}",
        ]  # fmt: skip
        rows.append("| " + " | ".join(cells) + " |")
        console.print(rows[-1])
    return rows, selected


def structures(case: Case, mixtures: list[GaussianMixture]) -> str:
    """Returns the row of alignment and density with their null bands."""
    pairs = zip(mixtures, case.test, strict=True)
    fields = [represented(case, mixture, values) for mixture, values in pairs]
    description = describe_structure(fields, np.random.default_rng(0))
    cells = [case.name]
    for name in ("alignment", "density", "footprints"):
        value = description.get(name, {})
        is_known = "value" in value
        cells.append("{value:+.2f} ({low:+.2f} to {high:+.2f})".format(**value) if is_known else "-")  # fmt: skip
    return "| " + " | ".join([*cells, description["null"]]) + " |"


def encoders(case: Case, console: Console) -> list[str]:
    """Returns the rows of the learned encoder and of the plain fit, on test frames."""
    geometry, domain = case.geometry, case.geometry.domain
    coords, weights = torch.from_numpy(geometry.coords), torch.from_numpy(geometry.weights)
    torch.manual_seed(0)
    encoder = MixtureEncoder(2)
    begin = time.process_time()
    frames = [torch.from_numpy(values) for values in case.train]
    encoder.train_on(frames, coords, weights, domain=domain, num_steps=250)
    training_seconds = time.process_time() - begin

    def initial(values: torch.Tensor, num_steps: int) -> GaussianMixture:
        target = Target.of(values, coords, weights, domain)
        shapes = shapes_at_peaks(target, target.values, 100, 100, "full")
        solution = improve(solve(shapes, target), target, num_steps)
        return to_mixture(solution, target, torch.arange(100))

    encode = partial(encoder.encode, coords=coords, weights=weights, domain=domain)
    methods: dict[str, Callable[[torch.Tensor], GaussianMixture]] = {
        "isotropic Gaussians at peaks": partial(initial, num_steps=0),
        "encoder, one pass": encode,
        "isotropic Gaussians at peaks, 4 steps": partial(initial, num_steps=4),
        "encoder, 4 steps": partial(encode, num_steps=4),
        "plain fit": partial(fit, coords=coords, weights=weights, num_particles=100, domain=domain),
    }
    rows = []
    for name, method in methods.items():
        begin = time.process_time()
        mixtures = [method(torch.from_numpy(values)) for values in case.test]
        seconds = (time.process_time() - begin) / len(mixtures)
        rows.append(f"| {name} | {np.mean(mixture_errors(case, mixtures)):.3g} | {seconds:.2f} |")
        console.print(rows[-1])
    return [*rows, f"\nThe encoder was trained for {training_seconds:.0f} CPU seconds on {len(frames)} frames of other trajectories."]  # fmt: skip


def between_sites(viscosity: float) -> str:
    """Returns a sentence on the errors of a mixture and of interpolation between the sites of ns2d."""
    fine = turbulence(viscosity, 128)
    shape, coarse_axis = (128, 128), np.arange(64) / 64
    coarse = Geometry.rectilinear([coarse_axis, coarse_axis], periodic=True)
    is_between = np.ones(shape, dtype=bool)
    is_between[::2, ::2] = False
    errors: dict[str, list[float]] = {"at": [], "between": [], "linear": []}
    for values in fine.test:
        truth = values.reshape(shape)
        sites = truth[::2, ::2].reshape(-1, 1)
        mixture = fit_frame(replace(fine, geometry=coarse), sites, 200)
        evaluated = at_sites(mixture, fine.geometry).reshape(shape)
        for name, prediction, where in (
            ("at", evaluated, ~is_between),
            ("between", evaluated, is_between),
            ("linear", _bilinear(truth[::2, ::2]), is_between),
        ):
            difference = (prediction - truth)[where]
            errors[name].append(float(np.linalg.norm(difference) / np.linalg.norm(truth[where])))
    at, between, linear = (np.mean(errors[name]) for name in ("at", "between", "linear"))
    return (
        f"ns2d at 64², evaluated on the 128² grid of the solver: 200 Gaussians have an error of "
        f"{at:.3g} at the sites and {between:.3g} between them; linear interpolation of the values "
        f"has {linear:.3g} there."
    )


def _bilinear(values: np.ndarray) -> np.ndarray:
    """Interpolates a periodic grid to twice as many points along each axis."""
    for axis in (0, 1):
        middle = (values + np.roll(values, -1, axis)) / 2
        shape = [n * (2 if number == axis else 1) for number, n in enumerate(values.shape)]
        values = np.stack([values, middle], axis + 1).reshape(shape)
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
        "Relative L2 error normalised by the field minus its mean over sites; mean over two frames "
        "that no method was trained on, with equal numbers stored except in the columns 'as many'. "
        "Gaussians: centers, covariances and amplitudes are stored. Lattice: isotropic Gaussians, "
        "best of three widths; amplitudes are stored. Fourier: the longest waves by least squares, "
        "cosines along non-periodic axes, spherical harmonics on the globe. Wavelets: the largest "
        "coefficients of an orthogonal transform (Daubechies, 4 moments), with value and index "
        "stored; not available on masks and meshes. POD: modes of other frames of the same data, "
        "which are not counted and may be fewer than the numbers; unlike the others, they are "
        "trained on the data. CPU seconds of a single full fit.",
        HEAD,
    ),
    "structures": (
        "Do Gaussians follow structures?",
        "100 Gaussians, two frames. Alignment of long axes with the gradient: -1 along fronts, 1 "
        "across. Rank correlation with the gradient of the density of centers, and of the sum of "
        "footprints, each with integral one. In brackets the 95 % band of a null in which the "
        "gradient is displaced relative to the Gaussians.",
        "| data | alignment | density | footprints | null |\n|---|---|---|---|---|",
    ),
    "encoder": (
        "The learned encoder",
        "ns2d, 100 Gaussians, test frames. Steps are those of the plain fit.",
        "| method | error | CPU s |\n|---|---|---|",
    ),
    "between": ("Between the sites", "", ""),
    "tracks": (
        "Do tracked Gaussians move with the flow?",
        f"ns2d at {represent_tracks.SIZE}², two trajectories, {represent_tracks.NUM_FRAMES} frames, "
        f"{represent_tracks.NUM_PARTICLES} Gaussians. Vector correlation of their displacements from "
        "frame to frame with the displacement by the true flow; controls are the velocity of the "
        "other trajectory, and a null in which the true one is shifted by random distances (95 % "
        "band). Lengths in units of the box.",
        represent_tracks.HEAD,
    ),
}


def compute(part: str, files: Path, docs: Path, console: Console) -> dict[str, list[str]]:
    """Returns the table lines of a part, and draws its figure."""
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
        f"{case.name}, frame {number + 1}": represented(case, mixture, values)
        for number, (mixture, values) in enumerate(zip(mixtures, case.test, strict=True))
    }
    if part == "ns2d":
        smooth = turbulence(1e-3)
        fields = {case.name: next(iter(fields.values()))}
        mixture = fit_frame(smooth, smooth.test[0], 100)
        fields[smooth.name] = represented(smooth, mixture, smooth.test[0])
    draw(docs / f"represent_{part}.png", fields)
    return {"errors": rows, "structures": [structures(case, mixtures)]}


PARTS = ("ns2d", "era5", "sea", "globe", "mesh", "encoder", "between", "tracks")


def main(
    files: Path, out: Path = RESULTS, docs: Path = DOCS, only: tuple[str, ...] = PARTS
) -> None:
    """Writes tables and figures; computes only parts without a `.json` file.

    Args:
        files: Folder of the real data sets.
        out: Folder for the tables.
        docs: Folder for the figures.
        only: Parts to compute.
    """
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    for part in only:
        path = out / f"{part}.json"
        if not path.exists():
            write_text(path, json.dumps(compute(part, files, docs, Console(width=200)), indent=1))
    paths = [out / f"{part}.json" for part in PARTS]
    parts = [json.loads(path.read_text()) for path in paths if path.exists()]
    lines = {name: [line for part in parts for line in part.get(name, [])] for name in TABLES}
    draw_errors(docs / "represent_errors.png", lines["errors"])
    text: list[str] = []
    for name, (title, meaning, head) in TABLES.items():
        if lines[name]:
            text += [f"### {title}", "", *([meaning, ""] if meaning else []), *([head] if head else []), *lines[name], ""]  # fmt: skip
    text += describe_machine("python benchmarks/represent.py --files FOLDER")
    write_text(out / "table.md", "\n".join(text) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
