"""Files that cannot be written to their end: a sentence, and nothing left of them."""

import json
import sys
import textwrap

import pytest

from gpo.cli import main
from gpo.data.writers.zarr import ForecastStore
from gpo.forecast.forecaster import Forecaster
from gpo.settings_files import CheckpointError
from tests.core.test_cli_predict import arguments, make_run
from tests.processes import Forked

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits and signals are of POSIX")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("waves")
    make_run(folder)
    return folder


def run_python(code, *given):
    """Returns the exit code of lines, and what they printed."""
    with Forked("-c", [textwrap.dedent(code), *given]) as running:
        return running.end(), running.said


LIMITED = """
    import resource, sys
    from gpo.cli import main
    # What a full disk does, without one: a file can take no more than this.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    main(sys.argv[1:])
"""


@pytest.mark.parametrize("name", ["forecast.nc", "forecast.csv"])
def test_a_full_disk_while_forecasting_is_a_sentence(folder, tmp_path, name):
    given = arguments(folder, tmp_path / name, "--grid", "60", "60")
    code, said = run_python(LIMITED, *given)
    assert code == 1
    assert "Traceback" not in said
    assert f"{name}: cannot be written: " in said
    assert "check the free space" in said
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_saving_a_model_is_a_sentence(folder, tmp_path):
    code = """
        import resource, sys
        from pathlib import Path
        from gpo.forecast.forecaster import Forecaster
        forecaster = Forecaster.load(Path(sys.argv[1]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            forecaster.save(Path(sys.argv[2]))
        except OSError as error:
            print(error)
    """
    _, said = run_python(code, str(folder / "run-geometric" / "model"), str(tmp_path / "model"))
    assert "model.safetensors: cannot be written: File too large." in said
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.parametrize("name", ["forecast.nc", "forecast.csv"])
def test_a_terminated_forecast_leaves_no_file(folder, tmp_path, name):
    given = arguments(folder, tmp_path / name, "--steps", "100000")
    with Forked("gpo", given) as running:
        running.wait_until(lambda: list(tmp_path.iterdir()))
        assert [path.name for path in tmp_path.iterdir()] == [f".partial-{running.pid}-{name}"]
        running.terminate()
        assert running.end() == 143
        assert "Traceback" not in running.said
    assert list(tmp_path.iterdir()) == []


def test_a_terminated_forecast_in_zarr_leaves_only_what_the_same_command_goes_on_from(
    folder, tmp_path
):
    output, unfinished = tmp_path / "forecast.zarr", tmp_path / "forecast.zarr.unfinished"
    given = arguments(folder, output, "--steps", "100000")

    def num_done():
        progress = unfinished / "progress.json"
        return json.loads(progress.read_text())["num_done"] if progress.exists() else 0

    before = 0
    for _ in range(2):
        with Forked("gpo", given) as running:
            running.wait_until(lambda before=before: num_done() > before + 1)
            running.terminate()
            assert running.end() == 143
            said = " ".join(running.said.split())
        assert "Traceback" not in said
        assert f"resuming in {unfinished}: {before} chunks are finished" in said or not before
        assert f"interrupted: {num_done()} finished chunks are kept in {unfinished}" in said
        assert list(tmp_path.iterdir()) == [unfinished]
        assert not [path for path in unfinished.rglob("*") if "partial" in path.name]
        before = num_done()


def test_a_forecast_in_zarr_that_ends_before_its_first_chunk_leaves_nothing(
    folder, tmp_path, monkeypatch
):
    def interrupted(store, *_):
        assert list(tmp_path.iterdir()) == [store.folder]
        raise SystemExit(143)

    monkeypatch.setattr(ForecastStore, "_count", interrupted)
    with pytest.raises(SystemExit):
        main(arguments(folder, tmp_path / "forecast.zarr"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["input_mean", "output_std", "increment_std"])
def test_statistics_that_are_not_finite_are_refused(folder, tmp_path, field):
    forecaster = Forecaster.load(folder / "run-geometric" / "model")
    forecaster.save(tmp_path)
    path = tmp_path / "task.json"
    first = getattr(forecaster.task, field)[0]
    head, tail = path.read_text().split(f'"{field}"')
    path.write_text(f'{head}"{field}"{tail.replace(repr(first), "NaN", 1)}')
    with pytest.raises(CheckpointError, match=f"field `{field}` must be finite"):
        Forecaster.load(tmp_path)
