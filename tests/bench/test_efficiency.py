import pytest
from matplotlib import pyplot as plt

from gpo import OperatorConfig, Problem, count_parameters
from gpo_bench.cost import DOMAIN, Cost, Workload, make_workload, measure_cost
from gpo_bench.efficiency import COLUMNS, PAPER, STEPS, efficiency_tables, measure_efficiency
from gpo_bench.figures import draw_efficiency
from gpo_bench.scaling import SMALL
from tests.conftest import PlainModel


@pytest.fixture(scope="module")
def measured():
    """On a grid whose sizes are no multiples of 16."""
    models = ("gpo-paper", "fno", "unet", "gpo")
    return measure_efficiency(models, repeats=1, grid_shape=(12, 12), batch_size=2)


def test_every_model_is_measured_that_can_be_built(measured):
    gpo_paper, fno, unet, gpo = measured[1]
    for row in (gpo_paper, fno, gpo):
        assert row["training_seconds"] > row["inference_seconds"] > 0
        assert row["training_bytes"] >= row["inference_bytes"] >= 0
    assert (gpo_paper["parameters"], gpo_paper["weight_bytes"]) == (423_969, 4 * 423_969)
    # As many waves as a run takes on such a grid: four along both axes.
    assert gpo["parameters"] == count_parameters(Problem(1, 1, DOMAIN), OperatorConfig(num_waves=4))
    assert unet["training_seconds"] is None
    assert unet["note"].endswith("needs grid sizes that are multiples of 16, such as 16 x 16")


def test_repeats_of_models_are_interleaved(monkeypatch):
    costs = iter([Cost(parameters=1), Cost(note="needs a grid"), Cost(parameters=1)])
    monkeypatch.setattr("gpo_bench.efficiency.measure_cost", lambda _: next(costs))
    messages = []
    measure_efficiency(("gpo", "fno"), repeats=2, on_progress=messages.append)
    # A model that cannot be built is not tried again.
    assert messages == ["round 1 of 2: gpo", "round 1 of 2: fno", "round 2 of 2: gpo"]


def test_a_complex_weight_counts_once_but_takes_eight_bytes(measured):
    fno = measured[1][1]
    assert 4 * fno["parameters"] < fno["weight_bytes"] < 8 * fno["parameters"]


def test_the_table_has_the_papers_numbers_and_why_a_model_is_missing(measured):
    costs, ratios = measured[0]
    for column in COLUMNS:
        assert column in costs.columns
        assert f"{column} (paper)" in costs.unranked
    assert set(STEPS) < set(costs.columns)
    text = costs.markdown()
    assert "12×12" in text
    assert "1,000 samples, or 500 steps" in text
    assert "needs grid sizes that are multiples of 16, such as 16 x 16" in text
    for table in (costs, ratios):
        assert table.latex()
        assert table.html()


def test_the_figure_draws_a_bar_for_every_model(measured):
    figure = draw_efficiency(measured[1])
    for axes in figure.axes:
        assert len(axes.patches) == 4
    figure.canvas.draw()
    plt.close(figure)


def rows_of() -> list[dict]:
    """The rows of a gpo and an fno whose numbers are multiples."""
    setting = {"grid_shape": (64, 64), "batch_size": 16, "device": "cpu", "note": ""}
    gpo = {"parameters": 100, "weight_bytes": 2**21, "training_bytes": 2**30,
           "inference_bytes": 2**20, "training_seconds": 4.0, "inference_seconds": 1.0}  # fmt: skip
    fno = {name: type(value)(value / 2) for name, value in gpo.items()}
    return [
        {"model": name, **setting, **costs}
        for name, costs in (("gpo", gpo), ("gpo-paper", gpo), ("fno", fno))
    ]


def test_numbers_are_in_the_units_of_the_paper():
    costs, ratios = efficiency_tables(rows_of())
    ours = dict(zip(costs.columns, costs.rows["gpo"], strict=True))
    assert ours["weights, MB"].value == 2
    assert ours["peak memory, MB"].value == 1024
    # 1,000 samples in batches of 16.
    assert ours["training, s/epoch"].value == 4 * 62.5
    assert ours["training, s/step"].value == 4
    assert [entry.value for entry in ratios.rows["fno"]][::2] == [0.5] * 5


def test_the_numbers_of_the_paper_are_those_of_its_table():
    costs, ratios = efficiency_tables(rows_of())
    columns = dict(zip(costs.columns, costs.rows["gpo-paper"], strict=True))
    stated = [columns[f"{name} (paper)"].text for name in COLUMNS]
    assert stated == ["1,598,257", "6.1", "2,313", "44.66", "1.67"]
    assert ratios.rows["fno"][7].value == pytest.approx(28.27 / 44.66)
    # Weights are four bytes each in 2^20, but for the complex ones of fno; lsm has buffers.
    for name, (parameters, megabytes, *_) in PAPER.items():
        if name != "fno":
            assert parameters is not None
            assert megabytes == pytest.approx(4 * parameters / 2**20, rel=2e-3)


def test_of_two_measurements_the_shorter_time_and_the_higher_peak_count():
    first = Cost(parameters=1, training_seconds=2.0, inference_seconds=1.0,
               training_bytes=5, inference_bytes=1)  # fmt: skip
    second = Cost(parameters=1, training_seconds=1.0, inference_seconds=3.0,
               training_bytes=7, inference_bytes=0)  # fmt: skip
    both = first.combine(second)
    assert (both.training_seconds, both.inference_seconds) == (1.0, 1.0)
    assert (both.training_bytes, both.inference_bytes) == (7, 1)
    assert first.combine(Cost(note="killed")) == Cost(note="killed")


def test_a_bigger_batch_takes_more_memory():
    small, large = (
        measure_cost(make_workload("gpo-paper", SMALL, grid_shape=(16, 16), batch_size=batch))
        for batch in (1, 16)
    )
    # Sixteen times the activations; the rest does not grow.
    assert large.training_bytes > 4 * small.training_bytes > 0
    assert large.inference_bytes > small.inference_bytes


class Broken(PlainModel):
    """A model of which only the weights can be made."""

    def forward(self, *fields, **settings):
        raise RuntimeError("broken")


def test_a_model_that_fails_is_reported_and_not_raised():
    cost = measure_cost(Workload(build=Broken, grid_shape=(4, 4)))
    assert cost.note.startswith("failed: ")
    assert cost.parameters is None


def test_a_model_that_exceeds_the_memory_limit_is_reported():
    """A batch that takes 4 GiB, where there is room for libraries and little else."""
    workload = make_workload("gpo-paper", SMALL, grid_shape=(8192, 8192), max_bytes=4 * 2**30)
    assert measure_cost(workload).note == "needs more than 4 GiB"


def test_a_name_that_is_not_registered_is_refused():
    with pytest.raises(ValueError, match=r"must be among gpo, gpo-paper, fno, .* got 'resnet'"):
        measure_efficiency(("resnet",))
