"""Memory of training steps on the grids of the paper."""

import json

import pytest

from gpo_bench import memory
from gpo_bench.cost import Cost, measure_cost
from gpo_bench.memory import GRIDS, measure_memory, workload_of

GIGABYTE = 2**30


@pytest.fixture
def calls(monkeypatch):
    calls = []

    def measured(workload):
        calls.append(workload)
        size = workload.batch_size * GIGABYTE
        return Cost(parameters=7, training_bytes=size, training_seconds=0.5 * workload.batch_size)

    monkeypatch.setattr(memory, "measure_cost", measured)
    return calls


def test_batches_are_doubled_while_they_fit_and_never_measured_twice(tmp_path, calls):
    store = tmp_path / "rows.jsonl"
    table, rows = measure_memory(["carra"], ["gpo"], store, memory=6.0)
    assert [row["batch_size"] for row in rows] == [1, 2, 4]
    assert "| carra 989×789, gpo | 7 | 1,024 | 0.5 | 4 | 4,096 | 2 |" in table.markdown()
    assert [json.loads(line) for line in store.read_text().splitlines()] == rows
    assert (
        "Not measured: era5-temp gpo, planetswe gpo, turbulent gpo, ns3d gpo." in table.markdown()
    )
    assert measure_memory(["carra"], ["gpo"], store, memory=6.0)[1] == rows
    assert len(calls) == 3
    # With more memory, or for another model, only what is missing is measured.
    measure_memory(["carra"], ["gpo", "fno"], store, memory=8.0, max_batch=8)
    assert [call.batch_size for call in calls] == [1, 2, 4, 8, 1, 2, 4, 8]


def test_a_sample_that_does_not_fit_is_told(tmp_path, calls):
    table, rows = measure_memory(["carra"], ["gpo"], tmp_path / "rows.jsonl", memory=0.5)
    assert len(rows) == 1
    assert "| 7 | 1,024 | 0.5 | - (one sample takes more than 0.5 GB) | - | - |" in table.markdown()


def test_names_are_checked(tmp_path):
    with pytest.raises(ValueError, match=r"--benchmarks must be among era5-temp, .*got 'ns4d'"):
        measure_memory(["ns4d"], ["gpo"], tmp_path / "rows.jsonl")
    with pytest.raises(ValueError, match=r"--models must be among gpo, .*got 'gpt'"):
        measure_memory(["ns3d"], ["gpt"], tmp_path / "rows.jsonl")


@pytest.mark.thorough
@pytest.mark.parametrize("benchmark", GRIDS)
def test_a_step_of_every_benchmark_is_measured(benchmark):
    shape = (8, 12, 8)[: len(GRIDS[benchmark])]
    cost = measure_cost(workload_of(benchmark, "gpo-paper", 1, "cpu", shape))
    assert cost.note == ""
    assert cost.training_bytes is not None
    assert cost.training_bytes >= 0
