"""A figure from outside joins the report by one registration, and so do metrics and references."""

from dataclasses import replace

import pytest
from matplotlib import pyplot as plt

from gpo.report.registry import SECTIONS
from gpo.report.run_report import write_report
from tests.core.interpretation.readings import series, untrained
from tests.core.report.pages import Page
from tests.core.report.test_run_report import inputs_of


def histogram(report):
    figure, axes = plt.subplots()
    axes.hist(report.run.shown.predicted.ravel())
    caption = f"{report.geometry.num_points} sites."
    return report.figure("histogram", figure, "Histogram of the prediction", caption)


def absent(report):
    return report.figure("absent", None, "A figure that does not apply")


@pytest.fixture
def _registered():
    SECTIONS.register("Histogram", histogram)
    SECTIONS.register("Absent", "tests.core.report.test_outside_figure:absent")
    yield
    del SECTIONS["Histogram"], SECTIONS["Absent"]


@pytest.mark.thorough
@pytest.mark.usefixtures("_registered", "small_pictures")
def test_a_registered_figure_is_in_the_report(tmp_path):
    data = series()
    forecaster, samples = untrained(data)
    inputs = inputs_of(forecaster, data, samples)
    scores = {
        "model": {"relative_l2": 0.5, "bias": 0.25},
        "zero": {"relative_l2": 1.0, "bias": 2.0},
    }
    results = replace(inputs.results, one_step=scores)
    text = write_report(tmp_path, replace(inputs, results=results), forecaster).read_text()
    page = Page.read(text)
    titles = page.texts["h2"]
    assert titles[-3:] == ["Training", "Histogram", "Configuration"]
    assert "Absent" not in titles
    assert "Histogram of the prediction" in [image["alt"] for image in page.all("img")]
    assert "256 sites." in page.texts["figcaption"]
    assert (tmp_path / "figures" / "histogram.png").exists()
    assert "bias" in page.texts["th"]
    assert "zero" in page.texts["th"]
    assert not plt.get_fignums()
