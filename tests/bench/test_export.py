import pytest

from gpo import Domain
from gpo_bench.export import Speed, export_table, measure_export

SMALL = {"6×5": (Domain.unit_box(2, periodic=True), (6, 5))}


def test_every_backend_is_timed_and_compared_with_the_first(monkeypatch):
    speeds = iter([Speed((0.2, 1.0), 1.0, 0.0), Speed((0.1, 2.0), 3.0, 1e-7)])
    monkeypatch.setattr("gpo_bench.export._measure", lambda *_: next(speeds))
    (table,), rows = measure_export(("gpo",), SMALL, ("eager", "torch.compile"), repeats=1)
    assert [row["form"] for row in rows] == ["eager", "torch.compile"]
    entries = dict(zip(table.columns, table.rows["torch.compile"], strict=True))
    assert entries["batch 1, ms"].value == 100
    assert entries["batch 1, × eager"].value == 0.5
    assert entries["batch 16, × eager"].value == 2
    assert entries["preparation, s"].value == 3
    assert entries["largest difference"].value == 1e-7


def test_combined_measurements_have_the_shorter_time_and_the_larger_difference():
    first, second = Speed((1.0, 4.0), 9.0, 1e-7), Speed((2.0, 3.0), 8.0, 2e-7)
    assert first.combine(second) == Speed((1.0, 3.0), 8.0, 2e-7)
    assert first.combine(Speed(note="failed: no compiler")).note == "failed: no compiler"


def test_a_backend_that_fails_is_a_dash_with_the_reason(monkeypatch):
    def broken(*_):
        raise RuntimeError("no C++ compiler\nand more")

    monkeypatch.setattr("gpo_bench.export.in_new_process", broken)
    (table,), rows = measure_export(("gpo",), SMALL, ("eager",), repeats=2)
    assert rows[0]["note"] == "failed: no C++ compiler"
    assert "- (failed: no C++ compiler)" in table.markdown()
    assert export_table(rows, "6×5", "gpo").latex()


@pytest.mark.parametrize("model", ["gpo", "gpo-paper"])
def test_fixed_sites_are_measured_in_a_process_of_their_own(model):
    _, (eager, fixed) = measure_export(
        (model,), SMALL, ("eager", "fixed sites, eager"), batch_sizes=(1, 2), repeats=1
    )
    assert not eager["note"]
    assert not fixed["note"]
    assert fixed["difference"] == 0
    assert all(seconds > 0 for seconds in fixed["seconds"])
