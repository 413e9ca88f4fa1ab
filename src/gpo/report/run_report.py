"""The report of a run: `report.html`, one file with all figures and an animation of a rollout.

It reads results, log and data; the model is needed for particles and for the rollout.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import yaml
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from gpo.atomic_files import atomic_file, write_text
from gpo.data.dataset import FieldData
from gpo.data.geometry import Geometry
from gpo.data.splits import TimeSlice, used_frames
from gpo.evaluation.example import ReportExample, last_example
from gpo.evaluation.results import Results, format_score
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.results import FILE_NAME, Interpretation
from gpo.model.particles import Particles
from gpo.report.appearance import darken, picture_bytes, styled
from gpo.report.captions import NO_LINE_RECONSTRUCTION, NO_PARTICLES
from gpo.report.page import Picture, Section, figure_element, make_page, paragraph
from gpo.report.registry import SECTIONS


@dataclass(frozen=True, kw_only=True)
class ReportInputs:
    """Everything that a report reads of a run, except its folder."""

    name: str
    """Title of the page."""
    settings: Mapping[str, Any]
    """The configuration, shown as YAML."""
    log: Sequence[Mapping[str, float]]
    """Losses and scores by epoch."""
    events: Sequence[str] = ()
    """Events of training, as sentences."""
    choice: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Settings that were tried before training, and their scores; empty where none were."""
    results: Results
    """The numbers of the evaluation."""
    data: FieldData
    """The data that were evaluated."""
    samples: Sequence[TimeSlice]
    """Their test split; the last example is shown."""
    shown: ReportExample
    """The prediction of that example."""


@dataclass(frozen=True)
class Report:
    """The report of a run; sections read it and draw their figures with it."""

    folder: Path
    """The run folder. Figures go to its subfolder `figures`."""
    run: ReportInputs
    forecaster: Forecaster
    drawn: set[str] = field(default_factory=set)
    """Names of the figures drawn so far."""

    @cached_property
    def example(self) -> Example:
        """The last test example."""
        return last_example(self.forecaster, self.run.data, self.run.samples)

    @property
    def geometry(self) -> Geometry:
        """The sites of the last test example."""
        return self.run.data.geometry(self.run.samples[-1].sample)

    @cached_property
    def interpretation(self) -> Interpretation | None:
        """The numbers of `gpo interpret`, where they are in the folder."""
        path = self.folder / FILE_NAME
        return Interpretation.load(path) if path.exists() else None

    @property
    def particles(self) -> list[Particles]:
        """The particles of each layer that has some; empty for baselines."""
        forecaster, example, operator = (
            self.forecaster,
            self.example,
            self.forecaster.model.operator,
        )
        if operator is None or forecaster.reconstructs or not operator.has_particles:
            return []
        values = forecaster.normalised_input(example.frames)
        with torch.no_grad():
            return list(operator.particles(values, example.coords, weights=example.site_weights))

    @property
    def why_no_particles(self) -> str:
        """The reason why there is no figure of particles; empty for baselines."""
        operator = self.forecaster.model.operator
        if operator is None:
            return ""
        return NO_LINE_RECONSTRUCTION if operator.has_particles else NO_PARTICLES

    def figure(self, name: str, figure: Figure | None, alt: str, caption: str = "") -> str:
        """Writes a figure as PNG and returns it as HTML; empty where there is none.

        Args:
            name: Name of the file, without its ending.
            figure: Closed here; its colours are changed to those of dark paper.
            alt: Description for screen readers.
            caption: Plain text below the figure.
        """
        if figure is None:
            return ""
        folder = self.folder / "figures"
        folder.mkdir(exist_ok=True)
        with atomic_file(folder / f"{name}.png") as partial:
            figure.savefig(partial, dpi=110)
        # The layout of the first drawing is kept: computing it takes as long as drawing.
        figure.set_layout_engine("none")
        light = picture_bytes(figure)
        darken(figure)
        width, height = figure.get_size_inches()
        size = round(100 * width), round(100 * height)
        picture = Picture(light, picture_bytes(figure), size)
        plt.close(figure)
        self.drawn.add(name)
        return figure_element(picture, alt, caption)


def write_report(folder: Path, run: ReportInputs, forecaster: Forecaster) -> Path:
    """Draws all figures of a run and writes `report.html`, which contains them.

    Args:
        folder: The run folder, to which page and figures are written. The numbers of `gpo interpret`
            are read from it.
        run: Results, log and data of the run.
        forecaster: The trained model.
    """
    report = Report(folder, run, forecaster)
    with styled():
        sections = [Section(title, content(report)) for title, content in SECTIONS.items()]
    settings = html.escape(yaml.safe_dump(dict(run.settings), sort_keys=False))
    sections.append(Section("Configuration", f"<pre>{settings}</pre>"))
    path = folder / "report.html"
    write_text(path, make_page(f"gpo: {run.name}", _header(run), sections))
    return path


def _header(run: ReportInputs) -> str:
    """Returns title, verdict, its measure for each forecast, and a line on model and data."""
    results = run.results
    outcomes = {part["outcome"] for part in results.comparisons.values()}
    kind = "bad" if "worse" in outcomes else "good" if outcomes == {"better"} else ""
    # The first tile, which is highlighted, is the forecast that is written.
    labels = results.labels
    first = labels[results.written]
    errors = {name: results.one_step[name].get("rmse_over_std") for name in labels}
    shown = [(labels[name], error) for name, error in errors.items() if error is not None]
    tiles = "".join(
        f"<div><dt>{html.escape(f'{label}, RMSE / std' if label == first else label)}</dt>"
        f"<dd>{format_score(error)}</dd></div>"
        for label, error in shown
    )  # fmt: skip
    sentences = (results.blend, *results.reasons.values())
    reasons = "".join(f"{paragraph(text)}\n" for text in sentences if text)
    model = f"{results.model['name']}, {results.model['parameters']:,} parameters"
    sites = f"{run.data.geometry().num_points:,} sites of {run.data.source.name}"
    return (
        f'<p class="kind">gpo report</p>\n<h1>{html.escape(run.name)}</h1>\n'
        f'{paragraph(results.verdict, f"verdict {kind}".rstrip())}\n{reasons}<dl class="tiles">{tiles}</dl>\n'
        f"{paragraph(f'{model}, on {sites}{_dates(run)}.', 'about')}"
    )


def _dates(run: ReportInputs) -> str:
    """Returns the first and last date of the test split, where frames have dates."""
    if run.data.origin is None:
        return ""
    frames = [frame for frames in used_frames(run.samples).values() for frame in frames]
    first, last = run.data.time_labels([min(frames), max(frames)])
    return f", scored from {first} to {last} ({run.data.origin.calendar} calendar)"
