"""A run as one page: `report.html` opens from disk, with every figure inside."""

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.geometry import Geometry
from gpo.data.splits import owner
from gpo.evaluation.results import Results
from gpo.files import write_text
from gpo.forecast.examples import make_examples
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.interpretation import FILE_NAME, Interpretation
from gpo.interpretation.summary import summary
from gpo.model.operator import GaussianParticleOperator
from gpo.report import run_figures
from gpo.report.interpretation import TITLES, captions, draw_interpretation
from gpo.report.particles import OTHER_DATA, draw_particle_panels

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .9rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; } pre { background: #f4f4f4; padding: 1rem; overflow-x: auto; }
.warning { border-left: 4px solid #d55e00; padding-left: 1rem; }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #161616; }
  pre { background: #222; } img { background: #fff; } th, td { border-color: #444; } }
"""


PARTICLES = (
    "The last frame that was given, and what its particles make of it: at every place the mean of "
    "what they carry, the values of their sites, weighted with their Gaussians. Fine structure "
    "that is missing there reaches the layers as the sum over particles of one site, not as their "
    "shapes. On the right, the heaviest particle of some sites."
)
"""What the picture of the particles shows."""
OTHER = (
    "The same for data like that of training, above, and for the other data that gpo interpret was "
    "given, below: the particles of a field the model has not learned on."
)
"""What the picture of other data shows."""
LAYERS = {
    "paper": "How the mass of a site is spread over its Gaussians (their sum does not change from "
    "layer to layer), and one of the windows through which a layer measures.",
    "geometric": "How strongly the state of every site is excited, before the first layer and "
    "after each: where the layers are at work.",
}
"""What the picture of the layers shows, by variant."""


def write_report(
    folder: Path,
    name: str,
    data: Trajectories | StaticMaps,
    members: Sequence[Any],
    results: Results,
    log: Sequence[dict[str, float]],
) -> Path:
    """Draws all figures of a run and writes the page that holds them.

    Args:
        folder: The run folder, with `config.yaml` and a trained model in `model/`.
        name: What the run is called.
        data: What it was trained on.
        members: Its test split; the last example is shown.
        results: What evaluation found.
        log: Losses and scores of every epoch, by name.
    """
    forecaster = Forecaster.load(folder / "model").eval()
    reconstructs = isinstance(data, Trajectories) and forecaster.task.lead == 0
    example = make_examples(data, members[-1:], reconstructs=reconstructs)[0]
    geometry = data.geometry(owner(members[-1]))
    figures = {"forecast": run_figures.draw_forecast(forecaster, example, geometry)}
    figures |= run_figures.draw_inside(forecaster, example, geometry)
    particles = draw_particle_panels(forecaster, {"test split": (example, geometry)})
    if particles is not None:
        figures["particles"] = particles
    if results.rollout:
        figures["rollout"] = run_figures.draw_rollout(results, forecaster.task.lead)
    spectrum = run_figures.draw_spectrum(results)
    if spectrum is not None:
        figures["spectrum"] = spectrum
    figures["training"] = run_figures.draw_training(log)
    images = _save(figures, folder / "figures")
    caption = ""
    if isinstance(forecaster.model, GaussianParticleOperator):
        caption = LAYERS[forecaster.model.config.variant]
    sections = _sections(results, images, folder, caption)
    if (folder / FILE_NAME).exists():
        first = data.geometry(owner(members[0]))
        inside = _interpretation(folder, Interpretation.load(folder / FILE_NAME), first)
        sections = [*sections[:5], *inside, *sections[5:]]
    body = "\n".join(f"<h2>{title}</h2>\n{content}" for title, content in sections if content)
    title = html.escape(f"gpo: {name}")
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{_what(data, results)}\n"
        f"{body}\n</body></html>\n"
    )
    path = folder / "report.html"
    write_text(path, page)
    return path


def _sections(
    results: Results, images: Mapping[str, str], folder: Path, caption: str
) -> list[tuple[str, str]]:
    plain = (folder / "config.yaml").read_text(encoding="utf-8")
    settings = html.escape(yaml.safe_dump(yaml.safe_load(plain), sort_keys=False))
    diverged = ""
    if results.diverged_at:
        diverged = (
            f'<p class="warning">{len(results.diverged_at)} of {results.num_rollouts} rollouts '
            f"diverged, the first at step {min(results.diverged_at)}.</p>"
        )
    units = f"<p>{results.num_examples} test examples, in the units of the data.</p>"
    return [
        ("Scores on the test split", units + _table(results.one_step)),
        ("Relative L2 of every variable", _table(results.per_variable)),
        ("A prediction of the test split", images["forecast"]),
        (
            "Through which particles",
            images.get("particles", "") and f"<p>{PARTICLES}</p>{images['particles']}",
        ),
        (
            "Layer by layer",
            images.get("layers", "") and f"<p>{caption}</p>{images['layers']}",
        ),
        ("Error of a rollout", images.get("rollout", "") and diverged + images["rollout"]),
        ("Energy by scale", _spectrum(results, images.get("spectrum", ""))),
        (
            "Away from the sites of training",
            _table(results.resolution, "relative L2 at resolution")
            + _table({"between the sites": results.between_sites} if results.between_sites else {}),
        ),
        ("Training", images["training"]),
        ("Configuration", f"<pre>{settings}</pre>"),
    ]


def _interpretation(
    folder: Path, found: Interpretation, geometry: Geometry
) -> list[tuple[str, str]]:
    """Returns the sections that `gpo interpret` adds."""
    figures, texts = draw_interpretation(found, geometry), captions(found)
    images = _save({f"interpret-{name}": figure for name, figure in figures.items()}, folder / "figures")  # fmt: skip
    rows = {what: {"number": number, "compare with": beside} for what, number, beside in summary(found)}  # fmt: skip
    other = folder / "figures" / f"{OTHER_DATA}.png"
    shown = f"<p>{OTHER}</p>{_embedded(other)}" if "other_data" in found.stability and other.exists() else ""  # fmt: skip
    return [
        ("Particles on other data", shown),
        *((TITLES[name], f"<p>{html.escape(texts[name])}</p>{images[f'interpret-{name}']}") for name in figures),
        ("What gpo interpret found, in numbers", _table(rows)),
    ]  # fmt: skip


def _what(data: Trajectories | StaticMaps, results: Results) -> str:
    sites = f"{data.geometry().num_points:,} sites"
    model = (
        f"{results.model.get('name', 'model')}, {results.model.get('parameters', 0):,} parameters"
    )
    score = results.one_step["model"]["relative_l2"]
    return html.escape(f"{model}, on {sites} of {data.source.name}: relative L2 {score:.4g}.")


def _table(rows: Mapping[str, Mapping[str, float | str]], corner: str = "") -> str:
    """Returns a table with a row per name; a row that has a reason shows it instead."""
    if not rows:
        return ""
    columns = list(dict.fromkeys(key for row in rows.values() for key in row if key != "reason"))
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    lines = []
    for name, row in rows.items():
        if "reason" in row:
            cells = (
                f'<td colspan="{max(len(columns), 1)}">- ({html.escape(str(row["reason"]))})</td>'
            )
        else:
            cells = "".join(f"<td>{_number(row.get(column))}</td>" for column in columns)
        lines.append(f"<tr><td>{html.escape(name)}</td>{cells}</tr>")
    return f"<table><tr><th>{corner}</th>{head}</tr>{''.join(lines)}</table>"


def _number(value: float | str | None) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else html.escape(str(value or "-"))


def _spectrum(results: Results, image: str) -> str:
    errors = {
        name: part.get("errors", {"reason": part.get("reason", "")})
        for name, part in results.spectrum.items()
    }
    caption = (
        "<p>Error of one step, relative to the energy at low, middle and high wave numbers.</p>"
    )
    return f"{image}{caption}{_table(errors)}" if errors else ""


def _save(figures: Mapping[str, Figure], folder: Path) -> dict[str, str]:
    """Writes every figure as PNG, and returns each as it stands in the page."""
    folder.mkdir(exist_ok=True)
    images = {}
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=90)
        plt.close(figure)
        images[name] = _embedded(path)
    return images


def _embedded(path: Path) -> str:
    """Returns a picture as it stands in the page."""
    content = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{path.stem}" src="data:image/png;base64,{content}">'
