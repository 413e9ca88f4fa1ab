"""A run as one page: `report.html` opens from disk, with every figure inside."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from gpo.data.geometry import Geometry
from gpo.data.split import Window
from gpo.data.trajectories import Pairs, Trajectories
from gpo.evaluate.score import Results
from gpo.files import write_text
from gpo.model.operator import GaussianParticleOperator
from gpo.report.contact_sheet import color_limits, draw_panel, panel_height
from gpo.report.overview import draw_prediction
from gpo.train.config import RunConfig
from gpo.train.examples import Example, make_examples
from gpo.train.forecaster import Forecaster
from gpo.train.run_folder import Run, read_log

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .9rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; } pre { background: #f4f4f4; padding: 1rem; overflow-x: auto; }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #161616; }
  pre { background: #222; } img { background: #fff; } th, td { border-color: #444; } }
"""


def write_report(
    run: Run,
    config: RunConfig,
    data: Trajectories | Pairs,
    members: Sequence[Any],
    results: Results,
) -> Path:
    """Draws all figures of a run and writes the page that holds them.

    Args:
        run: The run folder, with a trained model.
        config: Its configuration.
        data: What it was trained on.
        members: Its test split; the last example is shown.
        results: What evaluation found.
    """
    forecaster, figures = Forecaster.load(run.model_folder), run.folder / "figures"
    figures.mkdir(exist_ok=True)
    example = make_examples(data, members[-1:])[0]
    geometry = data.geometry(_owner(members[-1]))
    forecast = _draw_forecast(figures, forecaster, example, geometry)
    sections = [
        ("Scores on the test split", _score_table(results)),
        ("A prediction of the test split", _picture(forecast)),
    ]
    if geometry.domain.dim > 1:
        picture = _draw_particles(figures, forecaster, example)
        sections.append(("Through which particles", _picture(picture)))
    if results.rollout:
        rollout = _draw_rollout(figures, results, config.lead)
        sections.append(("Error of a rollout", _picture(rollout)))
    sections.append(("Training", _picture(_draw_training(figures, run))))
    plain = yaml.safe_dump(yaml.safe_load(run.config_file.read_text(encoding="utf-8")))
    sections.append(("Configuration", f"<pre>{html.escape(plain)}</pre>"))
    body = "\n".join(f"<h2>{title}</h2>\n{content}" for title, content in sections)
    title = html.escape(f"gpo: {config.name}")
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{body}\n</body></html>\n"
    )
    path = run.folder / "report.html"
    write_text(path, page)
    return path


def _score_table(results: Results) -> str:
    names = list(results.one_step["model"])
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(
        f"<tr><td>{who}</td>" + "".join(f"<td>{scores[name]:.4g}</td>" for name in names) + "</tr>"
        for who, scores in results.one_step.items()
    )
    count = f"<p>{results.num_examples} test examples, in the units of the data.</p>"
    return f"{count}<table><tr><th></th>{head}</tr>{rows}</table>"


def _picture(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{html.escape(path.stem)}" src="data:image/png;base64,{content}">'


def _owner(member: Window | int) -> int:
    return member if isinstance(member, int) else member.trajectory


def _draw_forecast(
    folder: Path, forecaster: Forecaster, example: Example, geometry: Geometry
) -> Path:
    task = forecaster.task
    with torch.no_grad():
        guesses = forecaster(example.frames, example.coords, weights=example.weights)[0].numpy()
    is_known = example.weights[0].numpy() > 0
    given, truth = example.frames[0, -1].numpy(), example.target[0].numpy()
    outputs = task.outputs[:4]
    size = (14, panel_height(geometry) * len(outputs) + 0.3)
    figure, grid = plt.subplots(len(outputs), 4, figsize=size, squeeze=False, layout="constrained")
    for channel, (name, axes) in enumerate(zip(outputs, grid, strict=True)):
        # A static map shows as many of its inputs as there are rows.
        before = min(channel, given.shape[1] - 1)
        limits = color_limits(truth[is_known, channel])
        error = np.abs(guesses[:, channel] - truth[:, channel])
        panels = [
            (
                f"given: {task.inputs[before]}",
                given[:, before],
                color_limits(given[is_known, before]),
            ),
            (f"truth: {name}", truth[:, channel], limits),
            (f"predicted: {name}", guesses[:, channel], limits),
            ("absolute error", error, (0.0, float(error[is_known].max()) or 1.0)),
        ]
        for (title, values, ends), panel in zip(panels, axes, strict=True):
            shown = np.where(is_known, values, np.nan)
            draw_panel(panel, title, task.units[channel] or name, geometry, shown, ends)
    return _save(figure, folder / "forecast.png")


def _draw_particles(folder: Path, forecaster: Forecaster, example: Example) -> Path:
    assert isinstance(forecaster.model, GaussianParticleOperator)
    values = forecaster.normalised_input(example.frames)
    with torch.no_grad():
        return draw_prediction(
            folder / "particles.png",
            forecaster.model,
            values,
            example.coords[0],
            forecaster.normalised(example.target),
            complete=lambda output: forecaster.complete(output, values),
        )


def _draw_rollout(folder: Path, results: Results, lead: int) -> Path:
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for who, errors in results.rollout.items():
        steps = lead * np.arange(1, len(errors) + 1)
        axes.semilogy(steps, errors, "o-", label=who, markersize=3)
    axes.set(xlabel="frames ahead", ylabel="relative L2")
    axes.grid(alpha=0.3)
    axes.legend()
    return _save(figure, folder / "rollout.png")


def _draw_training(folder: Path, run: Run) -> Path:
    rows = read_log(run)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name in sorted({key for row in rows for key in row} - {"epoch", "step"}):
        points = [(row["epoch"], row[name]) for row in rows if row.get(name, 0) > 0]
        if points:
            axes.semilogy(*zip(*points, strict=True), "o-", label=name, markersize=3)
    axes.set(xlabel="epoch", ylabel="loss or score")
    axes.grid(alpha=0.3)
    axes.legend()
    return _save(figure, folder / "training.png")


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return path
