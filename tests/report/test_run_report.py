"""The page of a run, from stored results and data."""

import pytest

from gpo.data.splits import split_time_slices
from gpo.evaluation.example import ShownExample, last_example
from gpo.evaluation.score import evaluate
from gpo.forecast.forecaster import Forecaster
from gpo.report.run_report import ReportInputs, write_report
from tests.interpretation.readings import series, untrained

LOG = [
    {
        "epoch": 0.0,
        "step": 4.0,
        "cpu_seconds": 1.0,
        "train/total": 0.5,
        "validation/relative_l2": 1.0,
    }
]


@pytest.mark.parametrize("variant", ["geometric", "paper"])
def test_a_report_needs_the_model_for_particles_alone(variant, tmp_path, monkeypatch):
    data = series()
    forecaster, members = untrained(data, variant=variant)
    inputs = ReportInputs(
        name="waves",
        settings={"model": "gpo", "lead": 1},
        log=LOG,
        results=evaluate(forecaster, data, split_time_slices(data), scope="one-step"),
        data=data,
        members=members,
        shown=ShownExample.of(forecaster, last_example(forecaster, data, members)),
    )
    monkeypatch.setattr(Forecaster, "forward", None)
    monkeypatch.setattr(type(forecaster.model), "trace", None)
    page = write_report(tmp_path, inputs, forecaster).read_text()
    assert "<title>gpo: waves</title>" in page
    assert "lead: 1" in page
    for title in ("A prediction of the test split", "Particle reconstruction", "Activation by layer", "Training"):  # fmt: skip
        assert f"<h2>{title}</h2>" in page
    assert "Interpretability" not in page
    drawn = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert drawn == {"forecast", "layers", "particles", "training"}
