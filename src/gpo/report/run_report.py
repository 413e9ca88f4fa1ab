"""A run as one page: `report.html` opens from disk, with every figure inside, and plays the rollout.

It reads results, log and data; the model is needed for particles and for the rollout that is shown.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

from gpo.atomic_files import write_text
from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.geometry import Geometry
from gpo.data.splits import evenly, owner, touched_frames
from gpo.data.steps import spell_step
from gpo.evaluation.example import ShownExample, last_example
from gpo.evaluation.results import COLUMNS, Results, shown_number, told_divergence
from gpo.evaluation.rollout import last_rollout
from gpo.forecast.examples import Example, make_examples
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.results import FILE_NAME, Interpretation
from gpo.model.particles import Particles
from gpo.report.animation import draw_animations
from gpo.report.appearance import compressed, darken, labelled, picture_bytes, styled
from gpo.report.captions import (
    ALTS,
    CAPTIONS,
    COMPARISONS,
    CONTENT_LAYERS,
    LINE,
    NO_PARTICLES,
    OTHER,
    SCORES,
    WAVE_LAYERS,
    motion_caption,
    rollout_caption,
    spectrum_caption,
)
from gpo.report.interpretation import TITLES, captions, draw_interpretation
from gpo.report.layers import draw_layers
from gpo.report.motion import draw_motion
from gpo.report.page import (
    Picture,
    Section,
    figure_element,
    listed,
    make_page,
    paragraph,
    player_element,
    table,
)
from gpo.report.particles import OTHER_DATA, draw_particle_panels
from gpo.report.run_figures import draw_forecast, draw_rollout, draw_training
from gpo.report.spectra import draw_spectrum

MAX_CONTROLS = 6
"""Other test examples whose velocity is the control of motion."""


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
        forecaster: The trained model, from which particles and a rollout are drawn.
    """
    with styled():
        figures = _figures(run, forecaster)
        pictures = _save({name: part for name, part in figures.items() if part}, folder / "figures")
        found = None
        if (folder / FILE_NAME).exists():
            found = Interpretation.load(folder / FILE_NAME)
        sections = [
            Section("Scores on the test split", _scores(run.results)),
            Section("Against references", _comparisons(run.results)),
            Section("Rollout", _rollout(run, forecaster, pictures)),
            Section("A prediction of the test split", _figure("forecast", pictures)),
            _particle_section(forecaster, pictures, found),
            Section("Activation by layer", _layers(run.shown, pictures)),
        ]
        if found is not None:
            first = run.data.geometry(owner(run.members[0]))
            sections.append(Section("Interpretability", _interpretation(folder, found, first)))
    page = make_page(f"gpo: {run.name}", _headline(run), [*sections, *_end(run, pictures)])
    path = folder / "report.html"
    write_text(path, page)
    return path


def _figures(run: ReportInputs, forecaster: Forecaster) -> dict[str, Figure | None]:
    results, geometry = run.results, run.data.geometry(owner(run.members[-1]))
    example, task = last_example(forecaster, run.data, run.members), forecaster.task
    pair = {"test split": (example, geometry)}
    lead, step = task.lead, _step(run.data)
    return {
        "forecast": draw_forecast(run.shown.predicted, task, example, geometry, _times(run, lead)),
        "layers": draw_layers(run.shown, geometry, example, task, _particles(forecaster, example)),
        "particles": draw_particle_panels(forecaster, pair),
        "motion": draw_motion(forecaster, pair, _other_examples(run, lead)),
        "rollout": draw_rollout(results, lead, step) if results.rollout else None,
        "spectrum": draw_spectrum(results),
        "training": draw_training(run.log),
    }


def _particles(forecaster: Forecaster, example: Example) -> list[Particles]:
    """Returns the particles of the layers that have some; nothing of baselines."""
    operator = forecaster.model.operator
    if operator is None or forecaster.reconstructs or not operator.has_particles:
        return []
    values = forecaster.normalised_input(example.frames)
    with torch.no_grad():
        return list(operator.particles(values, example.coords, weights=example.site_weights))


def _other_examples(run: ReportInputs, lead: int) -> list[Example]:
    """Returns other test examples at the same sites, of other trajectories where there are some."""
    if not isinstance(run.data, Trajectories) or len(run.data.geometries) > 1:
        return []
    shown = run.members[-1]
    members = [member for member in run.members if owner(member) != owner(shown)]
    members = members or list(run.members[:-1])
    chosen = evenly(members, MAX_CONTROLS) if members else []
    return [make_examples(run.data, [member], reconstructs=lead == 0)[0] for member in chosen]


def _headline(run: ReportInputs) -> str:
    """Returns the title, what the scores say in one sentence, the scores, and what was scored."""
    results = run.results
    outcomes = {part["outcome"] for part in results.comparisons.values()}
    kind = "bad" if "worse" in outcomes else "good" if outcomes == {"better"} else ""
    errors = {who: scores.get("relative_l2") for who, scores in results.one_step.items()}
    tiles = "".join(
        f"<div><dt>{html.escape('relative L2' if who == 'model' else who)}</dt>"
        f"<dd>{shown_number(error)}</dd></div>"
        for who, error in errors.items() if error is not None
    )  # fmt: skip
    reasons = "".join(f"{paragraph(reason)}\n" for reason in results.reasons.values())
    model = f"{results.model['name']}, {results.model['parameters']:,} parameters"
    sites = f"{run.data.geometry().num_points:,} sites of {run.data.source.name}"
    return (
        f'<p class="kind">gpo report</p>\n<h1>{html.escape(run.name)}</h1>\n'
        f'{paragraph(results.verdict, f"verdict {kind}".rstrip())}\n{reasons}<dl class="tiles">{tiles}</dl>\n'
        f"{paragraph(f'{model}, on {sites}{_dates(run)}.', 'about')}"
    )


def _dates(run: ReportInputs) -> str:
    """Returns from when to when the test split goes, where frames have dates."""
    if not isinstance(run.data, Trajectories) or run.data.origin is None:
        return ""
    frames = [frame for frames in touched_frames(run.members).values() for frame in frames]
    first, last = run.data.time_labels([min(frames), max(frames)])
    calendar = run.data.origin.calendar
    return f", scored from {first} to {last} ({calendar} calendar)"


def _times(run: ReportInputs, lead: int) -> tuple[str, str] | None:
    """Returns the times of the last input and of the target of the example that is shown."""
    if not isinstance(run.data, Trajectories):
        return None
    member = run.members[-1]
    target = member.last if lead == 0 else member.target
    before, after = run.data.time_labels([member.last, target])
    return before, after


def _step(data: Trajectories | StaticMaps) -> str:
    """Returns the time from frame to frame in words; nothing where frames are only numbered."""
    if not isinstance(data, Trajectories) or not data.time_units:
        return ""
    return spell_step(data.time_step, data.time_units)


def _scores(results: Results) -> str:
    unknown = f", and {results.num_unknown} without a value" * (results.num_unknown > 0)
    count = f"{results.num_examples} test examples{unknown}. {SCORES}"
    rows: dict[str, dict[str, float | str]] = {}
    for name, scores in results.variables.items():
        for who, numbers in scores.items():
            titles = (COLUMNS.get(key, key.replace("skill_", "skill over ")) for key in numbers)
            label = labelled(name, results.units.get(name, ""))
            rows[f"{label}, {who}"] = dict(zip(titles, numbers.values(), strict=True))
    return table(rows, "variable") + paragraph(count)


def _comparisons(results: Results) -> str:
    """Returns how the model compares with references on both splits."""
    rows = results.comparison_rows()
    return table(rows, "split") + paragraph(COMPARISONS) if rows else ""


def _rollout(run: ReportInputs, forecaster: Forecaster, pictures: Mapping[str, Picture]) -> str:
    """Returns the animation of the last rollout and the mean error of all; nothing where none was made."""
    results, data = run.results, run.data
    if not results.rollout or not isinstance(data, Trajectories):
        return ""
    found = last_rollout(forecaster, data, run.members, len(results.rollout["model"]))
    shown = ""
    if found is not None:
        task = forecaster.task
        errors, still = found.errors(found.forecast), found.errors(found.persistence)
        times = data.time_labels(found.frames)
        labels = [
            f"step {number} of {len(times)}, {time}: relative L2 {shown_number(error)}, "
            f"persistence {shown_number(other)}"
            for number, (time, error, other) in enumerate(
                zip(times, errors, still, strict=True), start=1
            )
        ]
        animations = draw_animations(found, task.outputs, task.units)
        text = rollout_caption(results, errors[-1])
        shown = player_element(animations, labels, text, "Truth, forecast and forecast minus truth of")  # fmt: skip
    diverged = paragraph(f"{told_divergence(results)}.", "warning") if results.diverged_at else ""
    return f"{shown}\n<h3>Error by step</h3>\n{diverged}{_figure('rollout', pictures)}"


def _particle_section(
    forecaster: Forecaster, pictures: Mapping[str, Picture], found: Interpretation | None
) -> Section:
    """Returns the picture of particles, or in one sentence why there is none; nothing of baselines."""
    if "motion" in pictures:
        return Section("Motion of particles", _figure("motion", pictures, motion_caption(found)))
    if "particles" in pictures:
        return Section("Particle reconstruction", _figure("particles", pictures))
    operator = forecaster.model.operator
    if operator is None:
        return Section("Particles", "")
    told = LINE if operator.has_particles else NO_PARTICLES
    return Section("Particles", paragraph(told))


def _layers(shown: ShownExample, pictures: Mapping[str, Picture]) -> str:
    return _figure("layers", pictures, CONTENT_LAYERS if len(shown.windows) else WAVE_LAYERS)


def _end(run: ReportInputs, pictures: Mapping[str, Picture]) -> list[Section]:
    results = run.results
    between = {"between the sites": results.between_sites} if results.between_sites else {}
    settings = html.escape(yaml.safe_dump(dict(run.settings), sort_keys=False))
    return [
        Section("Spectrum", _spectrum(results, pictures)),
        Section(
            "Away from the sites of training",
            table(results.resolution, "relative L2 at resolution") + table(between, "relative L2"),
        ),
        Section("Settings tried on validation data", table(run.choice, "relative L2")),
        Section("Training", _figure("training", pictures) + listed(run.events)),
        Section("Configuration", f"<pre>{settings}</pre>"),
    ]


def _spectrum(results: Results, pictures: Mapping[str, Picture]) -> str:
    errors = {
        name: part.get("errors", {"reason": part.get("reason", "")})
        for name, part in results.spectrum.items()
    }
    if not errors:
        return ""
    return _figure("spectrum", pictures, spectrum_caption(results)) + table(errors, "error of one step")  # fmt: skip


def _interpretation(folder: Path, found: Interpretation, geometry: Geometry) -> str:
    """Returns the figures and numbers of `gpo interpret`, one subsection each."""
    figures, texts = draw_interpretation(found, geometry), captions(found)
    named = {f"interpret-{name}": figure for name, figure in figures.items()}
    pictures = _save(named, folder / "figures")
    rows = {
        what: {"number": number, "compare with": beside} for what, number, beside in found.summary()
    }
    other = folder / "figures" / f"{OTHER_DATA}.png"
    has_other = "other_data" in found.stability and other.exists()
    sections = [
        ("Particles on other data", _stored(other, OTHER) if has_other else ""),
        *(
            (TITLES[name], figure_element(pictures[f"interpret-{name}"], TITLES[name], texts[name]))
            for name in figures
        ),
        ("Summary", table(rows)),
    ]
    return "\n".join(f"<h3>{title}</h3>\n{content}" for title, content in sections if content)


def _figure(name: str, pictures: Mapping[str, Picture], caption: str | None = None) -> str:
    """Returns a picture with its caption; nothing where it was not drawn."""
    if name not in pictures:
        return ""
    text = CAPTIONS.get(name, "") if caption is None else caption
    return figure_element(pictures[name], ALTS[name], text)


def _save(figures: Mapping[str, Figure], folder: Path) -> dict[str, Picture]:
    """Writes every figure as PNG, and returns each on light and on dark paper."""
    folder.mkdir(exist_ok=True)
    pictures = {}
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=110)
        # What was found for the first drawing holds for all: to find it takes as long as to draw.
        figure.set_layout_engine("none")
        light = picture_bytes(figure)
        darken(figure)
        width, height = figure.get_size_inches()
        pictures[name] = Picture(light, picture_bytes(figure), (round(100 * width), round(100 * height)))  # fmt: skip
        plt.close(figure)
    return pictures


def _stored(path: Path, caption: str) -> str:
    """Returns a picture that another command drew, the same on light and on dark paper."""
    with Image.open(path) as image:
        content, (width, height) = compressed(image), image.size
    return figure_element(Picture(content, content, (width, height)), "Particles of the test split and of other data", caption)  # fmt: skip
