"""Files that cannot be written to their end: a sentence, and nothing left of them."""

import sys
import textwrap

import pytest

from gpo.files import CheckpointError
from gpo.forecast.forecaster import Forecaster
from tests.processes import Forked
from tests.test_cli_predict import arguments, make_run

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
    assert "is there room on the disk?" in said
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
