"""The report of a run, from stored results and data."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpo.data.dates import TimeOrigin
from gpo.data.geometry import Geometry
from gpo.data.splits import split_time_slices
from gpo.evaluation.example import ReportExample, last_example
from gpo.evaluation.score import evaluate
from gpo.forecast.forecaster import Forecaster
from gpo.report.run_report import ReportInputs, write_report
from tests.core.interpretation.readings import TORUS, series, untrained

LINE = Geometry.rectilinear([np.arange(16) / 16], periodic=True)
LOG = [
    {
        "epoch": 0.0,
        "step": 4.0,
        "cpu_seconds": 1.0,
        "train/total": 0.5,
        "validation/rmse_over_std": 1.0,
    }
]


def inputs_of(forecaster, data, samples):
    return ReportInputs(
        name="waves",
        settings={"model": "gpo", "lead": 1},
        log=LOG,
        results=evaluate(forecaster, data, split_time_slices(data), scope="one-step"),
        data=data,
        samples=samples,
        shown=ReportExample.of(forecaster, last_example(forecaster, data, samples)),
    )


PICTURES = {
    "geometric": ("Motion of particles", "motion"),
    "paper": ("Particle reconstruction", "particles"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("variant", PICTURES)
def test_a_report_of_one_step_needs_the_model_for_particles_only(variant, tmp_path, monkeypatch):
    data = series()
    forecaster, samples = untrained(data, variant=variant)
    inputs, example = inputs_of(forecaster, data, samples), last_example(forecaster, data, samples)
    values = forecaster.normalised_input(example.frames)
    with torch.no_grad():
        particles = forecaster.model.particles(values, example.coords, weights=example.weights)
    monkeypatch.setattr(Forecaster, "forward", None)
    monkeypatch.setattr(type(forecaster.model), "trace", None)
    monkeypatch.setattr(type(forecaster.model), "particles", lambda *_, **__: particles)
    page = write_report(tmp_path, inputs, forecaster).read_text()
    section, picture = PICTURES[variant]
    assert "<title>gpo: waves</title>" in page
    assert "lead: 1" in page
    for title in ("A prediction of the test split", section, "Activation by layer", "Training"):  # fmt: skip
        assert f"<h2>{title}</h2>" in page
    assert "Interpretability" not in page
    drawn = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert drawn == {"forecast", "layers", picture, "training"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("geometry", "changes", "sentence"),
    [
        (TORUS, {"num_transports": 0}, "This run is the ablation without particles."),
        (TORUS, {"variant": "paper", "has_gaussian_field": False}, "This run is the ablation without particles."),
        (LINE, {"variant": "paper"}, "The particle reconstruction is not drawn in one dimension."),
    ],
    ids=["no transport", "no Gaussians", "line"],
)  # fmt: skip
@pytest.mark.usefixtures("small_pictures")
def test_a_report_says_why_the_figure_of_particles_is_missing(
    geometry, changes, sentence, tmp_path
):
    data = series(geometry)
    forecaster, samples = untrained(data, **changes)
    page = write_report(tmp_path, inputs_of(forecaster, data, samples), forecaster).read_text()
    assert f"<h2>Particles</h2>\n<p>{sentence}</p>" in page
    assert not {"motion", "particles"} & {path.stem for path in (tmp_path / "figures").iterdir()}


@pytest.mark.thorough
@pytest.mark.usefixtures("small_pictures")
def test_a_report_starts_with_the_verdict_and_dates(tmp_path):
    origin = TimeOrigin("1987-02-28 00:00:00", "360_day")
    data = replace(series(num_frames=6), time=24.0 * np.arange(6), time_units="h", origin=origin)
    forecaster, samples = untrained(data)
    inputs = inputs_of(forecaster, data, samples)
    page = write_report(tmp_path, inputs, forecaster).read_text()
    head, _, rest = page.partition("<h2>")
    assert f'<p class="verdict">{inputs.results.verdict}</p>' in re.sub(" (good|bad)", "", head)
    assert "scored from 1987-02-28 to 1987-03-03 (360_day calendar)" in head
    assert '<th scope="col">a</th>' in rest
    assert '<th scope="row">model</th>' in rest
    assert '<th scope="col">skill</th>' in rest


@pytest.mark.thorough
@pytest.mark.usefixtures("small_pictures")
def test_a_score_that_is_not_finite_is_shown_as_not_finite(tmp_path):
    data = series()
    forecaster, samples = untrained(data)
    inputs = inputs_of(forecaster, data, samples)
    scores = {"a": {"model": {"rmse": float("nan")}}}
    results = replace(inputs.results, variables=scores)
    page = write_report(tmp_path, replace(inputs, results=results), forecaster).read_text()
    assert "<td>not finite</td>" in page
