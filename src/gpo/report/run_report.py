"""A run as one page: `report.html` opens from disk, with every figure inside.

It reads results, log and data; the model is needed for particles alone.
"""

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.geometry import Geometry
from gpo.data.splits import owner, touched_frames
from gpo.evaluation.example import ShownExample, last_example
from gpo.evaluation.results import COLUMNS, Results, shown_number, told_divergence
from gpo.files import write_text
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.results import FILE_NAME, Interpretation
from gpo.model.field import GaussianField
from gpo.model.operator import GaussianParticleOperator
from gpo.report.interpretation import TITLES, captions, draw_interpretation
from gpo.report.motion import draw_motion
from gpo.report.particles import OTHER_DATA, draw_particle_panels
from gpo.report.run_figures import (
    draw_forecast,
    draw_layers,
    draw_rollout,
    draw_spectrum,
    draw_training,
)

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

SCORES = (
    "RMSE is in the units of the variable; RMSE / std in standard deviations of the variable in the "
    "training data, which no unit enters. Skill is one minus the ratio of the model's RMSE to that "
    "of a reference: 1 is perfect, 0 as good as the reference, below 0 worse."
)
"""What the columns of the scores are."""
PARTICLES = (
    "The last input frame, and its reconstruction from particles: at every point the mean of the "
    "values of their sites, weighted with their Gaussians. Fine structure that is missing in the "
    "reconstruction reaches the layers as the sum over the particles of one site, not as their "
    "shapes. On the right, the heaviest particle of some sites."
)
"""Caption of the particle reconstruction."""
MOTION = (
    "The last input frame, and over it the particles of every site, a panel for each. An arrow "
    "leads from the center of a particle, where what arrives at the site came from, to the site, "
    "lengthened by a factor where the title names one; on the sphere it shows the components to the "
    "east and to the north, on a line there is a curve. Titles give the fraction of "
    "what arrives that a particle brings, by size, and the root mean square of its displacement, "
    "both over the sites in view. These are motions that the model computed. How much arrives, and "
    "whether the prediction needs it, the ablation of gpo interpret tells. Such particles carry no "
    "values, so that no field is reconstructed from them."
)
"""Caption of the motion of particles."""
OTHER = (
    "The same for the test split, above, and for the other data that gpo interpret was given, "
    "below: the particles of fields unlike those of training."
)
"""Caption of the particles of other data."""
NO_PARTICLES = "This run is the ablation without particles."
"""In place of a picture of them."""
LINE = "On a line no particle reconstruction is drawn."
"""In place of that picture."""
CONTENT_LAYERS = (
    "How the mass of a site is spread over its Gaussians (their sum does not change from layer to "
    "layer), and one of the windows through which a layer measures."
)
"""Caption of the layers of the paper's variant."""
WAVE_LAYERS = "The energy of the state of every site, before the first layer and after each."
"""Caption of the layers of the geometric variant."""


@dataclass(frozen=True, kw_only=True)
class ReportInputs:
    """What a report reads of a run, beside its folder."""

    name: str
    """Title of the page."""
    settings: Mapping[str, Any]
    """The configuration, shown as YAML."""
    log: Sequence[Mapping[str, float]]
    """Losses and scores by epoch."""
    events: Sequence[str] = ()
    """What happened in training, in sentences."""
    choice: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Settings that were tried before training, and their scores; empty where none were."""
    results: Results
    """The numbers of the evaluation."""
    data: Trajectories | StaticMaps
    """What the model was trained on."""
    members: Sequence[Any]
    """Its test split; the last example is shown."""
    shown: ShownExample
    """The prediction of that example."""


def write_report(folder: Path, run: ReportInputs, forecaster: Forecaster) -> Path:
    """Draws all figures of a run and writes `report.html`, the page that holds them.

    Args:
        folder: Where the page and its figures go; the numbers of `gpo interpret` are read from it.
        run: What is shown.
        forecaster: The trained model, from which particles are drawn.
    """
    results, geometry = run.results, run.data.geometry(owner(run.members[-1]))
    example = last_example(forecaster, run.data, run.members)
    is_known = example.weights[0].numpy() > 0
    figures = {
        "forecast": draw_forecast(
            run.shown.predicted, forecaster.task, example, geometry, _times(run, forecaster)
        ),
        "layers": draw_layers(run.shown, geometry, is_known),
        "particles": draw_particle_panels(forecaster, {"test split": (example, geometry)}),
        "motion": draw_motion(forecaster, {"test split": (example, geometry)}),
        "rollout": draw_rollout(results, forecaster.task.lead, _step(run.data))
        if results.rollout
        else None,
        "spectrum": draw_spectrum(results),
        "training": draw_training(run.log),
    }
    images = _save({name: figure for name, figure in figures.items() if figure}, folder / "figures")
    sections = [*_prediction_sections(run, images, _particle_section(forecaster, images))]
    if (folder / FILE_NAME).exists():
        found = Interpretation.load(folder / FILE_NAME)
        first = run.data.geometry(owner(run.members[0]))
        sections.append(("Interpretability", _interpretation(folder, found, first)))
    sections += _score_sections(run, images)
    body = "\n".join(f"<h2>{title}</h2>\n{content}" for title, content in sections if content)
    title = html.escape(f"gpo: {run.name}")
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{_headline(run)}\n"
        f"{body}\n</body></html>\n"
    )
    path = folder / "report.html"
    write_text(path, page)
    return path


def _headline(run: ReportInputs) -> str:
    model = f"{run.results.model['name']}, {run.results.model['parameters']:,} parameters"
    sites = f"{run.data.geometry().num_points:,} sites of {run.data.source.name}"
    told = f"<p><strong>{html.escape(run.results.verdict)}</strong></p>\n"
    return f"{told}<p>{html.escape(f'{model}, on {sites}{_dates(run)}.')}</p>"


def _dates(run: ReportInputs) -> str:
    """Returns from when to when the test split goes, where frames have dates."""
    if not isinstance(run.data, Trajectories) or run.data.origin is None:
        return ""
    frames = [frame for frames in touched_frames(run.members).values() for frame in frames]
    first, last = run.data.time_labels([min(frames), max(frames)])
    calendar = run.data.origin.calendar
    return f", scored from {first} to {last} ({calendar} calendar)"


def _times(run: ReportInputs, forecaster: Forecaster) -> tuple[str, str] | None:
    """Returns the times of the last input and of the target of the example that is shown."""
    if not isinstance(run.data, Trajectories):
        return None
    member = run.members[-1]
    target = member.last if forecaster.task.lead == 0 else member.target
    before, after = run.data.time_labels([member.last, target])
    return before, after


def _step(data: Trajectories | StaticMaps) -> str:
    """Returns the time from frame to frame in words; nothing where frames are only numbered."""
    if not isinstance(data, Trajectories) or not data.time_units:
        return ""
    return f"{data.time_step:g} {data.time_units}"


def _particle_section(forecaster: Forecaster, images: Mapping[str, str]) -> tuple[str, str]:
    """Returns the picture of particles, or in one sentence why there is none; nothing of baselines."""
    if "motion" in images:
        return "Motion of particles", _captioned(MOTION, images["motion"])
    if "particles" in images:
        return "Particle reconstruction", _captioned(PARTICLES, images["particles"])
    if not isinstance(forecaster.model, GaussianParticleOperator | GaussianField):
        return "Particles", ""
    return "Particles", f"<p>{LINE if forecaster.model.config.has_particles else NO_PARTICLES}</p>"


def _prediction_sections(
    run: ReportInputs, images: Mapping[str, str], particles: tuple[str, str]
) -> list[tuple[str, str]]:
    results = run.results
    unknown = f", and {results.num_unknown} without a value" * (results.num_unknown > 0)
    count = f"<p>{results.num_examples} test examples{unknown}. {html.escape(SCORES)}</p>"
    layers = CONTENT_LAYERS if len(run.shown.windows) else WAVE_LAYERS
    return [
        ("Scores on the test split", count + _table(_variable_rows(results), "variable")),
        ("A prediction of the test split", images["forecast"]),
        particles,
        ("Activation by layer", _captioned(layers, images.get("layers"))),
    ]


def _variable_rows(results: Results) -> dict[str, dict[str, float | str]]:
    """Returns the errors of every variable, of the model and of references, a row each."""
    rows: dict[str, dict[str, float | str]] = {}
    for name, scores in results.variables.items():
        units = results.units.get(name, "")
        for who, numbers in scores.items():
            titles = (COLUMNS.get(key, key.replace("skill_", "skill over ")) for key in numbers)
            label = f"{name} ({units})" if units else name
            rows[f"{label}, {who}"] = dict(zip(titles, numbers.values(), strict=True))
    return rows


def _score_sections(run: ReportInputs, images: Mapping[str, str]) -> list[tuple[str, str]]:
    results = run.results
    diverged = ""
    if results.diverged_at:
        diverged = f'<p class="warning">{html.escape(told_divergence(results))}.</p>'
    between = {"between the sites": results.between_sites} if results.between_sites else {}
    settings = html.escape(yaml.safe_dump(dict(run.settings), sort_keys=False))
    return [
        ("Error of a rollout", images.get("rollout", "") and diverged + images["rollout"]),
        ("Energy by scale", _spectrum(results, images.get("spectrum", ""))),
        (
            "Away from the sites of training",
            _table(results.resolution, "relative L2 at resolution") + _table(between),
        ),
        ("Settings tried on validation data", _table(run.choice, "relative L2")),
        ("Training", images["training"] + _listed(run.events)),
        ("Configuration", f"<pre>{settings}</pre>"),
    ]


def _interpretation(folder: Path, found: Interpretation, geometry: Geometry) -> str:
    """Returns the figures and numbers of `gpo interpret`, one subsection each."""
    figures, texts = draw_interpretation(found, geometry), captions(found)
    named = {f"interpret-{name}": figure for name, figure in figures.items()}
    images = _save(named, folder / "figures")
    rows = {
        what: {"number": number, "compare with": beside} for what, number, beside in found.summary()
    }
    other = folder / "figures" / f"{OTHER_DATA}.png"
    has_other = "other_data" in found.stability and other.exists()
    sections = [
        ("Particles on other data", _captioned(OTHER, _embedded(other) if has_other else None)),
        *((TITLES[name], _captioned(texts[name], images[f"interpret-{name}"])) for name in figures),
        ("Summary", _table(rows)),
    ]
    return "\n".join(f"<h3>{title}</h3>\n{content}" for title, content in sections if content)


def _listed(sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def _captioned(text: str, image: str | None) -> str:
    return f"<p>{html.escape(text)}</p>{image}" if image else ""


def _table(rows: Mapping[str, Mapping[str, float | str]], corner: str = "") -> str:
    """Returns a table with a row per name; a row without numbers shows the reason."""
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
    return shown_number(value) if isinstance(value, int | float) else html.escape(str(value or "-"))


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
    """Writes every figure as PNG, and returns each as an HTML element."""
    folder.mkdir(exist_ok=True)
    images = {}
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=90)
        plt.close(figure)
        images[name] = _embedded(path)
    return images


def _embedded(path: Path) -> str:
    """Returns a picture as an HTML element that holds its bytes."""
    content = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{path.stem}" src="data:image/png;base64,{content}">'
