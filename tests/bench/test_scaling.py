import json
import platform
from dataclasses import replace

import pytest
from matplotlib import pyplot as plt

from gpo_bench.cost import Cost, measure_cost
from gpo_bench.figures import draw_scaling
from gpo_bench.scaling import (
    QUANTITIES,
    SMALL,
    _at_sites,
    fit_exponent,
    measure_scaling,
    scaling_tables,
)


def test_the_fit_recovers_an_exponent_from_the_larger_half():
    places = [4.0**power for power in range(5, 11)]
    assert fit_exponent(places, [3 * place**1.5 for place in places]) == pytest.approx(1.5)
    # What costs the same at every size hides the exponent of small ones only.
    hidden = [max(place, 16_384.0) for place in places]
    assert fit_exponent(places, hidden) == pytest.approx(1.0)


def test_the_fit_omits_missing_measurements():
    assert fit_exponent([1, 2, 4, 8], [1.0, 4.0, 16.0, None]) == pytest.approx(2.0)
    assert fit_exponent([1, 2], [1.0, None]) is None
    assert fit_exponent([], []) is None


@pytest.fixture(scope="module")
def measured():
    return measure_scaling(("gpo-paper", "transolver"), min_sites=64, max_sites=300, sweeps={})


def test_every_point_is_measured(measured):
    tables, rows = measured
    assert [row["value"] for row in rows] == [64, 256, 64, 256]
    for row in rows:
        assert row["training_seconds"] > 0
        assert set(row["exponents"]) == set(QUANTITIES)
    assert len(tables) == len(QUANTITIES)
    assert list(tables[0].columns) == ["N = 64", "N = 256", "exponent"]
    assert list(tables[0].rows) == ["gpo-paper", "transolver"]
    assert "gpo-paper 70,417" in tables[0].markdown()


def test_figures_name_the_exponent(measured):
    rows = measured[1]
    figure = draw_scaling(rows)
    exponent = rows[0]["exponents"]["training_seconds"]
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert f"gpo-paper, training, p = {exponent:.2f}" in labels
    assert len(labels) == 4
    figure.canvas.draw()
    plt.close(figure)
    with pytest.raises(ValueError, match="one of sites, got 'depth'"):
        draw_scaling(rows, "depth")


def test_tables_can_be_computed_from_stored_rows(measured):
    tables, rows = measured
    again = scaling_tables(json.loads(json.dumps(rows)))
    assert [table.markdown() for table in again] == [table.markdown() for table in tables]


@pytest.fixture
def measured_workloads(monkeypatch):
    """Replaces measurements: a site takes a megabyte in inference and ten in training.

    Peaks with the allocator that keeps memory, and times with the other one, are far too large.
    """
    workloads = []

    def measure(workload):
        if workload.allocator == "releasing":
            return replace(measured(workload), inference_seconds=10.0)
        workloads.append(workload)
        return replace(measured(workload), inference_bytes=2**40)

    def measured(workload):
        size = workload.grid_shape[0] ** 2 * 2**20
        cost = Cost(parameters=1, inference_seconds=1.0, inference_bytes=size)
        return (
            replace(cost, training_seconds=2.0, training_bytes=10 * size)
            if workload.trains
            else cost
        )

    monkeypatch.setattr("gpo_bench.scaling.measure_cost", measure)
    return workloads


def test_gpo_is_varied_one_field_at_a_time(measured_workloads):
    messages, sweeps = [], {"num_gaussians": (8, 16), "num_layers": (1, 2)}
    tables, rows = measure_scaling((), sweeps=sweeps, memory_limit=1e3, on_progress=messages.append)
    assert messages[1] == "round 1 of 1: gpo-paper, Gaussians G = 16"
    built = [workload.build().config for workload in measured_workloads]
    assert built == [replace(SMALL, **{row["against"]: row["value"]}) for row in rows]
    assert [list(table.rows) for table in tables] == [
        ["8", "16", "exponent"],
        ["1", "2", "exponent"],
    ]
    assert tables[1].title == "Scaling of gpo-paper with depth"
    plt.close(draw_scaling(rows, "num_layers"))


def test_steps_that_exceed_memory_are_omitted_and_noted(measured_workloads):
    tables, rows = measure_scaling(
        ("gpo",), min_sites=4, max_sites=4**6, sweeps={}, memory_limit=2.0, repeats=2
    )
    # Kept memory is twice as much: 64 sites fit in training and 1,024 in inference.
    places = [(workload.grid_shape[0] ** 2, workload.trains) for workload in measured_workloads]
    assert places == 2 * [(4, True), (16, True), (64, True), (256, False), (1024, False)]
    assert rows[3]["note"] == "training at sites N = 256 would take about 5 GB"
    assert rows[3]["inference_seconds"] == 1.0
    assert rows[5]["note"] == "inference at sites N = 4,096 would take about 8 GB"
    assert rows[5]["parameters"] is None
    assert rows[0]["exponents"]["training_bytes"] == pytest.approx(1.0)
    assert "would take about 5 GB" in tables[1].markdown()
    plt.close(draw_scaling(rows))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators cannot be set")
def test_released_memory_is_that_of_tensors_and_grows_with_the_sites():
    small, large = (
        measure_cost(replace(_at_sites("gpo-paper", side, "cpu").workload, allocator="releasing"))
        for side in (32, 64)
    )
    # Four times the sites.
    assert large.training_bytes == pytest.approx(4 * small.training_bytes, rel=0.3)
