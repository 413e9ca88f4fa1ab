"""The paper's figures, drawn from run folders and stored measurements of `gpo bench`.

A figure whose run or measurement is missing is left out, with the command that makes it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from gpo.data.geometry import Geometry
from gpo.data.splits import all_time_slices
from gpo.evaluation.example import last_example
from gpo.evaluation.results import Results
from gpo.evaluation.spectrum import quantity_of
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.particle_fields import reconstruct
from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from gpo.report.appearance import add_bar, input_label
from gpo.report.contact_sheet import color_limits, draw_panel, draw_values, in_plane, panel_height
from gpo.report.layers import draw_footprints
from gpo.report.particles import outlines_in
from gpo.runs import OpenRun, open_other_coarsened, open_run
from gpo_bench.ablation import PAPER as PAPER_ABLATION
from gpo_bench.ablation import ROWS
from gpo_bench.figures import (
    BASELINE_COLOR,
    GPO_COLOR,
    REFERENCES,
    draw_curves,
    draw_efficiency,
    draw_spectra,
)

NUM_ELLIPSES = 400
"""Ellipses in a panel."""
FRACTION = 0.05
"""Half axes in standard deviations, as in the pictures of the authors' public code."""
FADED = 0.35
"""Opacity of a field behind ellipses."""


COMMANDS = {
    "field": "gpo run ns2d-1e-5 --phase field --preset paper --out runs/field",
    "era5": (
        "gpo data fetch era5-temp; gpo run era5-temp --data era5-temp.nc --phase field "
        "--preset paper --out runs/era5"
    ),
    "operator": (
        "gpo run ns2d-1e-5 --preset paper --init runs/field --freeze field --out runs/operator"
    ),
    "compared": "gpo run ns2d-1e-5 --model MODEL --out runs/MODEL, for every model",
}
"""What makes the run of each flag."""


class MissingInputError(ValueError):
    """A figure has no input; the message is the command that makes it."""


@dataclass(frozen=True)
class FigureInputs:
    """Run folders and measurements; None for those that do not exist."""

    field: Path | None = None
    """Run of the field phase."""
    unseen: Path | None = None
    """File of another viscosity for it."""
    era5: Path | None = None
    """Run of the field phase on ERA5."""
    era5_unseen: Path | None = None
    """File of another month or variable for it."""
    operator: Path | None = None
    """Run of gpo-paper."""
    compared: tuple[Path, ...] = ()
    """Evaluated runs of the same task."""
    results: Path = Path("benchmarks/results")
    """Folder of stored measurements."""


def fused(
    particles: Particles, basis: Float[torch.Tensor, "batch points gaussians"], domain: Domain
) -> Particles:
    r"""Returns mean and standard deviation of the mixture of every site, as one Gaussian.

    $\bar\mu=\sum_iw_i\mu_i$ and $\sqrt{\sum_iw_i(\sigma_i^2+(\mu_i-\bar\mu)^2)}$; its weight is
    $\sum_iz_i$.
    """
    weights = particles.weights.unsqueeze(-1)
    first = particles.centers[:, :, :1]
    centers = domain.nearest_image(particles.centers, first)
    mean = (weights * centers).sum(-2, keepdim=True)
    variance = (weights * (particles.scales.square() + (centers - mean).square())).sum(-2, True)
    mean = domain.wrap(mean) if domain.is_sphere else mean
    return Particles(mean, variance.sqrt(), basis.sum(-1, keepdim=True))


def draw_reconstruction(run: OpenRun, unseen: Path | None) -> Figure:
    """Returns truth, reconstruction, absolute error and ellipses; below, those of unseen data.

    Args:
        run: A run of the field phase.
        unseen: File of other data with the same variables, such as another viscosity.
    """
    forecaster = run.forecaster().eval()
    example = last_example(forecaster, run.data, run.split.test)
    rows = {"in distribution": (example, run.data.geometry())}
    if unseen is not None:
        other = open_other_coarsened(unseen, run.config, forecaster.task)
        samples = all_time_slices(other, history=1, lead=1)
        example = last_example(forecaster, other, samples)
        rows[f"out of distribution: {unseen.stem}"] = (example, other.geometry())
    height = sum(panel_height(geometry) for _, geometry in rows.values()) + 0.3
    size = (15.5, height)
    figure, grid = plt.subplots(len(rows), 5, figsize=size, squeeze=False, layout="compressed")
    for (name, (example, geometry)), panels in zip(rows.items(), grid, strict=True):
        _draw_reconstructed(list(panels), name, forecaster, example, geometry)
    figure.suptitle(
        f"Ellipses: center μ, half axes {FRACTION:g} σ, colour and line width by weight; one per "
        "Gaussian, or one per site with mean and standard deviation of its mixture",
        fontsize=10,
    )
    return figure


def _draw_reconstructed(
    panels: list[Axes], name: str, forecaster: Forecaster, example: Example, geometry: Geometry
) -> None:
    found = reconstruct(forecaster, example)
    if found is None:
        raise MissingInputError("a run whose model has particles: gpo run ... --phase field")
    is_known = example.weights[0].numpy() > 0
    truth, rebuilt = (part[:, 0].numpy() for part in (found.field, found.reconstructed))
    error, limits = np.abs(rebuilt - truth), color_limits(truth[is_known])
    relative = float(np.linalg.norm(error[is_known]) / np.linalg.norm(truth[is_known]))
    largest = float(in_plane(geometry, np.where(is_known, error, 0.0)).max()) or 1.0
    for panel, title, values, ends in (
        (panels[0], f"truth, {name}", truth, limits),
        (panels[1], f"reconstruction, relative L2 {relative:.2g}", rebuilt, limits),
        (panels[2], "absolute error", error, (0.0, largest)),
    ):
        shown = np.where(is_known, values, np.nan)
        draw_panel(panel, title, input_label(forecaster.task), geometry, shown, ends)
    domain = forecaster.operator.problem.domain
    basis = found.particles.basis(example.coords, domain)
    for panel, title, label, particles in (
        (panels[3], "Gaussians", "w", found.particles),
        (panels[4], "sites", "Σ z", fused(found.particles, basis, domain)),
    ):
        draw_values(panel, geometry, np.where(is_known, truth, np.nan), limits)
        for drawn in panel.collections:
            drawn.set_alpha(FADED)
        draw_ellipses(panel, particles, geometry, label)
        count = particles.weights[0].numel()
        panel.set_title(f"{min(count, NUM_ELLIPSES)} of {count:,} {title}", fontsize=9)
        panel.tick_params(labelsize=7)


def draw_ellipses(axes: Axes, particles: Particles, geometry: Geometry, label: str) -> None:
    """Draws some particles: centers, half axes proportional to scales; colour and width to weights.

    Args:
        axes: The panel, with a field.
        particles: The particles of a batch.
        geometry: The sites of the field.
        label: Label of the weights.
    """
    cloud = particles.cloud(geometry.domain)
    order = torch.randperm(len(cloud), generator=torch.Generator().manual_seed(0))[:NUM_ELLIPSES]
    # The heaviest are drawn last, above the others.
    cloud = cloud.rows(order[cloud.weights[order].argsort()])
    weights = cloud.weights.numpy()
    widths = 0.3 + 2.2 * weights / max(float(weights.max()), 1e-12)
    shapes = outlines_in(axes, cloud, FRACTION, geometry)
    ellipses = PolyCollection(list(shapes), array=weights, cmap="viridis", linewidths=widths)
    ellipses.set_facecolor("none")
    limits = axes.get_xlim(), axes.get_ylim()
    axes.add_collection(ellipses, autolim=False)
    axes.set(xlim=limits[0], ylim=limits[1])
    add_bar(axes, ellipses, label)


@torch.no_grad()
def draw_activations(run: OpenRun) -> Figure:
    r"""Returns $A^{(k)}=\sum_gz^{(k)}_g$, which the paper draws, and $\sum_g(z^{(k)}_g)^2$ after every layer.

    Row renormalisation keeps the first, so that it is the same in all panels of its row.
    """
    forecaster, geometry = run.forecaster().eval(), run.data.geometry()
    example = last_example(forecaster, run.data, run.split.test)
    values = forecaster.normalised_input(example.frames)
    trace = forecaster.operator.trace(values, example.coords, weights=example.site_weights)
    if not trace.windows:
        raise MissingInputError("a run of gpo-paper: gpo run ... --model gpo-paper")
    (particles,) = trace.particles
    sums = {
        "Σ z": [state[0].sum(-1).numpy() for state in trace.states],
        "Σ z²": [state[0].square().sum(-1).numpy() for state in trace.states],
    }
    before, after = example.fields[0, -1, :, 0].numpy(), example.target[0, :, 0].numpy()
    ends = [("input", before), ("target", after)]
    count = len(trace.states) + 1
    size = (2.8 * count, 2 * panel_height(geometry) + 0.6)
    figure, grid = plt.subplots(2, count, figsize=size, layout="compressed")
    is_known = example.weights[0].numpy() > 0
    for panels, (name, layers), (title, field) in zip(grid, sums.items(), ends, strict=True):
        texts = [f"{name} after layer {layer}" for layer in range(len(layers))]
        texts[0], texts[-1] = f"{name} before layer 1", f"{texts[-1]}, particles"
        states = np.where(is_known, np.stack(layers), np.nan)
        scale = color_limits(np.stack([in_plane(geometry, state) for state in states]))
        shown = np.where(is_known, field, np.nan)
        limits = color_limits(in_plane(geometry, shown))
        draw_panel(panels[0], title, input_label(forecaster.task), geometry, shown, limits)
        for axes, text, state in zip(panels[1:], texts, states, strict=True):
            draw_panel(axes, text, "", geometry, state, scale)
        if isinstance(particles, Particles):
            draw_footprints(panels[-1], particles, geometry, is_one_sigma=False)
    change = np.abs(sums["Σ z"][-1] - sums["Σ z"][0])[is_known].max()
    figure.suptitle(
        "Activations of a site after each layer: the sum of its basis Σ z, which changes by at most "
        f"{change:.0e}, and Σ z²; ellipses: Gaussians of largest weight at some sites, reduced",
        fontsize=10,
    )
    return figure


def draw_rollouts(runs: Sequence[OpenRun]) -> Figure:
    """Returns the error of rollouts by step."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for run in runs:
        rollout = _results(run).rollout
        for source, name in (("persistence", "persistence"), ("model", _name(run))):
            errors = [error for error in rollout.get(source, []) if error is not None]
            if errors:
                curves[name] = [float(step + 1) for step in range(len(errors))], errors
    if not curves:
        raise MissingInputError("evaluated runs of a time series: gpo evaluate RUN")
    return draw_curves(curves, "steps ahead", "relative L2", "Error of rollouts on test data")


def draw_energy(runs: Sequence[OpenRun]) -> Figure:
    """Returns E(k) at the end of rollouts, with the slope k^-5/3 and the largest wave number of the grid."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    about: dict[str, str] = {}
    largest = 0.0
    for run in runs:
        spectrum: Mapping[str, Any] = next(iter(_results(run).spectrum.values()), {})
        if "truth at the end" not in spectrum:
            continue
        about = {"quantity": quantity_of(spectrum), "label": spectrum["label"]}
        numbers = [float(number) for number in spectrum["wavenumbers"][1:]]
        for name, key in (("truth", "truth at the end"), (_name(run), "model at the end")):
            curves.setdefault(name, (numbers, [float(value) for value in spectrum[key][1:]]))
        largest = max(run.data.geometry().grid_shape, default=0) / 2
    if not curves:
        raise MissingInputError("evaluated runs on a grid: gpo evaluate RUN")
    figure = draw_spectra(curves, about, "At the end of a rollout")
    if largest:
        label = f"largest wave number of the grid, {largest:g}"
        figure.axes[0].axvline(largest, color="0.3", linestyle="-.", label=label)
        figure.axes[0].legend(fontsize=8, ncols=2)
    return figure


def draw_ablation(stored: Path) -> Figure:
    """Returns bars of the ablation's errors, beside the paper's where it has the row."""
    entries = json.loads(stored.read_text(encoding="utf-8"))["outcomes"]
    errors = {
        entry["row"]: float(np.mean([seed["relative_l2"] for seed in entry["seeds"]]))
        for entry in entries
    }
    names = [name for name in ROWS["gpo-paper"] if name in errors]
    names += [name for name in errors if name not in names]
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.4 * len(names)), layout="constrained")
    places = np.arange(len(names))
    paper = [PAPER_ABLATION.get(name, np.nan) for name in names]
    for shift, values, color, label in (
        (-0.2, [errors[name] for name in names], GPO_COLOR, "here"),
        (0.2, paper, BASELINE_COLOR, "paper"),
    ):
        bars = axes.barh(places + shift, values, 0.4, color=color, label=label)
        texts = ["" if np.isnan(value) else f"{value:.3g}" for value in values]
        axes.bar_label(bars, texts, fontsize=7, padding=2)
    references = (seed["references"] for entry in entries for seed in entry["seeds"])
    persistence = next((part.get("persistence") for part in references), None)
    if persistence is not None:
        color, line = REFERENCES["persistence"]
        label = f"persistence, {persistence:.3g}"
        axes.axvline(persistence, color=color, linestyle=line, label=label)
    axes.set(yticks=places, yticklabels=names, xlabel="relative L2 on test data")
    columns = dict.fromkeys(entry["column"] for entry in entries)
    axes.set_title(
        f"Ablation of gpo-paper on {', '.join(columns)}; the paper does not name its data"
    )
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=4, frameon=False)
    return figure


def figures_of(inputs: FigureInputs) -> dict[str, Callable[[], Figure]]:
    """Returns what draws each figure of the paper, by name; it may raise a `MissingInputError`."""
    efficiency = inputs.results / "efficiency" / "rows.json"
    ablation = inputs.results / "ablation-gpo-paper" / "experiments.json"
    reconstruct_unseen = partial(draw_reconstruction, unseen=inputs.unseen)
    reconstruct_era5 = partial(draw_reconstruction, unseen=inputs.era5_unseen)
    return {
        "reconstruction": _from_run(inputs.field, "field", reconstruct_unseen),
        "era5": _from_run(inputs.era5, "era5", reconstruct_era5),
        "activations": _from_run(inputs.operator, "operator", draw_activations),
        "rollout": _from_runs(inputs.compared, "compared", draw_rollouts),
        "spectrum": _from_runs(inputs.compared, "compared", draw_energy),
        "efficiency": _from_file(efficiency, "gpo bench efficiency", _draw_stored),
        "ablation": _from_file(ablation, "gpo bench ablation --model gpo-paper", draw_ablation),
    }


def _draw_stored(path: Path) -> Figure:
    return draw_efficiency(json.loads(path.read_text(encoding="utf-8")))


def _from_run(
    path: Path | None, flag: str, draw: Callable[[OpenRun], Figure]
) -> Callable[[], Figure]:
    return _from_runs(() if path is None else (path,), flag, lambda runs: draw(runs[0]))


def _from_runs(
    paths: Sequence[Path], flag: str, draw: Callable[[Sequence[OpenRun]], Figure]
) -> Callable[[], Figure]:
    def drawn() -> Figure:
        if not paths:
            raise MissingInputError(f"--{flag}: {COMMANDS[flag]}")
        return draw([open_run(path) for path in paths])

    return drawn


def _from_file(path: Path, command: str, draw: Callable[[Path], Figure]) -> Callable[[], Figure]:
    def drawn() -> Figure:
        if not path.is_file():
            raise MissingInputError(command)
        return draw(path)

    return drawn


def _results(run: OpenRun) -> Results:
    path = run.folder.results_file
    if not path.exists():
        raise MissingInputError(f"gpo evaluate {run.folder.folder}")
    return Results.load(path)


def _name(run: OpenRun) -> str:
    model, folder = run.config.model.name, run.folder.folder.name
    return model if folder == model else f"{model} ({folder})"
