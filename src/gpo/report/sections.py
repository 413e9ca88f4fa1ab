"""The sections of the report that gpo registers: each returns HTML, or an empty text."""

from PIL import Image

from gpo.data.dataset import FieldData
from gpo.data.splits import evenly
from gpo.data.steps import format_step
from gpo.evaluation.results import COLUMNS, divergence_message, format_score
from gpo.evaluation.rollout import last_rollout
from gpo.forecast.examples import Example, TimeSliceExamples
from gpo.report import captions
from gpo.report.animation import draw_animations
from gpo.report.appearance import compressed, label_with_units
from gpo.report.interpretation import TITLES, draw_interpretation
from gpo.report.interpretation import captions as interpretation_captions
from gpo.report.layers import draw_layers
from gpo.report.motion import draw_motion
from gpo.report.page import Picture, figure_element, listed, paragraph, player_element, table
from gpo.report.particles import OTHER_DATA, draw_particle_panels
from gpo.report.run_figures import draw_forecast, draw_rollout, draw_training
from gpo.report.run_report import Report, ReportInputs
from gpo.report.spectra import draw_spectrum

WITH_UNITS = ("rmse", "bias")
"""Errors in the units of their variable."""
MAX_CONTROLS = 6
"""Maximum number of other test examples whose velocity serves as a control."""


def scores(report: Report) -> str:
    """Returns the errors of each variable, and each metric over all variables, relative L2 among them."""
    results = report.run.results
    missing = f", and {results.num_unknown} without a value" * (results.num_unknown > 0)
    tables = ""
    for variable, forecasts in results.variables.items():
        units, written = results.units.get(variable, ""), forecasts.get(results.written, {})
        rows: dict[str, dict[str, float | str]] = {}
        for name, label in results.labels.items():
            errors = forecasts.get(name, {})
            rows[label] = {
                label_with_units(title, units if key in WITH_UNITS else ""): errors[key]
                for key, title in COLUMNS.items() if key in errors and key != "relative_l2"
            }  # fmt: skip
            if f"skill_{name}" in written:
                rows[label]["skill"] = written[f"skill_{name}"]
        tables += table(rows, variable)
    metrics = {
        label: {COLUMNS.get(key, key): error for key, error in results.one_step[name].items()}
        for name, label in results.labels.items()
    }
    count = f"{results.num_examples} test example{'s' * (results.num_examples != 1)}{missing}."
    return (
        tables
        + paragraph(f"{count} {captions.SCORES}")
        + table(metrics, "all variables")
        + paragraph(captions.METRICS)
    )


def comparisons(report: Report) -> str:
    """Returns the comparison with each reference, on test and validation data."""
    rows = report.run.results.comparison_rows()
    return table(rows, "split") + paragraph(captions.COMPARISONS) if rows else ""


def rollout(report: Report) -> str:
    """Returns the animation of the last rollout, and the mean error of all rollouts by step."""
    results, data, task = report.run.results, report.run.data, report.forecaster.task
    if not results.rollout:
        return ""
    num_steps = len(results.rollout["model"])
    last = last_rollout(report.forecaster, data, report.run.samples, num_steps)
    player = ""
    if last is not None:
        errors, persistence = (
            last.errors(last.forecast), last.errors(last.forecasts["persistence"])
        )  # fmt: skip
        times = data.time_labels(last.frames)
        labels = [
            f"step {number} of {len(times)}, {time}: relative L2 {format_score(error)}, "
            f"persistence {format_score(other)}"
            for number, (time, error, other) in enumerate(
                zip(times, errors, persistence, strict=True), start=1
            )
        ]
        player = player_element(
            draw_animations(last, task.outputs, task.units),
            labels,
            captions.rollout_caption(results, errors[-1]),
            "Truth, forecast and forecast minus truth of",
        )
    diverged = (
        paragraph(f"{divergence_message(results)}.", "warning") if results.diverged_at else ""
    )
    curve = report.figure(
        "rollout",
        draw_rollout(results, task.lead, _time_step(data)),
        "Relative L2 by number of steps, of the model and of references",
        captions.ROLLOUT,
    )
    return f"{player}\n<h3>Error by step</h3>\n{diverged}{curve}"


def forecast(report: Report) -> str:
    """Returns input, truth, prediction and error of the last test example."""
    run, task, sample = report.run, report.forecaster.task, report.run.samples[-1]
    target = sample.last if task.lead == 0 else sample.target
    times = run.data.time_labels([sample.last, target])
    return report.figure(
        "forecast",
        draw_forecast(run.shown.predicted, task, report.example, report.geometry, times),
        "Input, truth, prediction and absolute error of the last test example",
        captions.FORECAST,
    )


def motion(report: Report) -> str:
    """Returns the displacements of particles that move."""
    examples = {"test split": (report.example, report.geometry)}
    controls = _control_examples(report.run, report.forecaster.task.lead)
    return report.figure(
        "motion",
        draw_motion(report.forecaster, examples, controls),
        "Arrows of particle displacements over the input field",
        captions.motion_caption(report.interpretation),
    )


def reconstruction(report: Report) -> str:
    """Returns the input field reconstructed from the particles of an encoder."""
    examples = {"test split": (report.example, report.geometry)}
    return report.figure(
        "particles",
        draw_particle_panels(report.forecaster, examples),
        "Input, its reconstruction from particles, difference, and particles",
        captions.PARTICLES,
    )


def no_particles(report: Report) -> str:
    """Returns why there is no figure of particles; empty where there is one, and for baselines."""
    reason = report.why_no_particles
    return paragraph(reason) if reason and not {"motion", "particles"} & report.drawn else ""


def layers(report: Report) -> str:
    """Returns the state of each layer."""
    shown = report.run.shown
    task, particles = report.forecaster.task, report.particles
    return report.figure(
        "layers",
        draw_layers(shown, report.geometry, report.example, task, particles),
        "Input, state of each layer and target of the last test example",
        captions.WINDOW_LAYERS if len(shown.windows) else captions.WAVE_LAYERS,
    )


def interpretability(report: Report) -> str:
    """Returns the figures and numbers of `gpo interpret`, in subsections."""
    results = report.interpretation
    if results is None:
        return ""
    geometry = report.run.data.geometry(report.run.samples[0].sample)
    texts = interpretation_captions(results)
    rows = {
        quantity: {"number": number, "compare with": other}
        for quantity, number, other in results.summary()
    }
    subsections = {
        "Particles on other data": _other_data(report) if "other_data" in results.stability else "",
        **{
            TITLES[name]: report.figure(f"interpret-{name}", figure, TITLES[name], texts[name])
            for name, figure in draw_interpretation(results, geometry).items()
        },
        "Summary": table(rows),
    }
    return "\n".join(f"<h3>{title}</h3>\n{part}" for title, part in subsections.items() if part)


def spectrum(report: Report) -> str:
    """Returns the spectra, and a table of errors by scale."""
    results = report.run.results
    if not results.spectrum:
        return ""
    errors = {
        name: part.get("errors", {"reason": part.get("reason", "")})
        for name, part in results.spectrum.items()
    }
    figure = report.figure(
        "spectrum",
        draw_spectrum(results),
        "Spectra of truth and model",
        captions.spectrum_caption(results),
    )
    return figure + table(errors, "error of one step")


def transfer(report: Report) -> str:
    """Returns the errors at other resolutions and at withheld sites."""
    results = report.run.results
    withheld = {"withheld sites": results.between_sites} if results.between_sites else {}
    return table(results.resolution, "relative L2 at resolution") + table(withheld, "relative L2")


def settings_tried(report: Report) -> str:
    """Returns the settings that were tried before training, with their scores."""
    return table(report.run.choice, "RMSE / std")


def training(report: Report) -> str:
    """Returns the training curves and the events of training."""
    alt, caption = "Losses and validation score by epoch", captions.TRAINING
    figure = report.figure("training", draw_training(report.run.log), alt, caption)
    return figure + listed(report.run.events)


def _control_examples(run: ReportInputs, lead: int) -> list[Example]:
    """Returns test examples at the same sites, from other trajectories where there are any."""
    if len(run.data.geometries) > 1:
        return []
    shown = run.samples[-1]
    samples = [sample for sample in run.samples if sample.sample != shown.sample]
    samples = samples or list(run.samples[:-1])
    controls = evenly(samples, MAX_CONTROLS) if samples else []
    return [TimeSliceExamples(run.data, [sample], reconstructs=lead == 0)[0] for sample in controls]


def _time_step(data: FieldData) -> str:
    """Returns the time between frames in words; empty where frames have no times."""
    if not data.time_units:
        return ""
    return format_step(data.time_step, data.time_units)


def _other_data(report: Report) -> str:
    """Returns the figure of particles on other data that `gpo interpret` drew, where it exists."""
    path = report.folder / "figures" / f"{OTHER_DATA}.png"
    if not path.exists():
        return ""
    with Image.open(path) as image:
        content, (width, height) = compressed(image), image.size
    picture = Picture(content, content, (width, height))
    return figure_element(picture, "Particles of the test split and of other data", captions.OTHER_DATA)  # fmt: skip
