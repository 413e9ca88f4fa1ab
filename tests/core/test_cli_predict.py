"""Forecasts that are larger than memory: in chunks, into Zarr, through a kill."""

import json
from itertools import islice

import numpy as np
import pytest
import xarray as xr

from gpo.cli import main
from gpo.cli.predict import PredictCommand
from gpo.data.query_points import blocks
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.writers.zarr import ForecastStore
from gpo.forecast.forecaster import Forecaster
from gpo.runs import Run, split_of
from gpo.training.config import RunConfig
from gpo.training.fit import new_forecaster
from tests.core.test_cli import failure
from tests.core.training.series import MODELS
from tests.explore.sessions import lively
from tests.processes import Forked

SIZES = {"hidden_dim": 8, "num_layers": 1, "num_gaussians": 4, "history": 2, "lead": 2}
GRID = ("--grid", "4", "11")


def make_run(folder, variant="geometric"):
    """An untrained run of waves that travel over a square with a hole, in two trajectories."""
    x, y, t = np.linspace(0, 1, 7), np.linspace(0, 2, 8), np.arange(80.0)
    angle = 2 * np.pi * (x[:, None] + y - 0.05 * t[:, None, None])
    waves = np.stack([np.sin(angle), 2 + np.cos(angle)])
    waves[:, :, 2, 3] = np.nan
    np.savez(folder / "waves.npz", x=x, y=y, time=t, u=waves, v=waves[::-1] ** 2)
    config = RunConfig.of(data=str(folder / "waves.npz"), model=MODELS[variant], **SIZES)
    data = open_data(folder / "waves.npz", ReadOptions())
    run = Run(folder / f"run-{variant}")
    run.claim(config)
    lively(new_forecaster(data, split_of(data, config), config)).save(run.model_folder)
    return run.folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("waves")
    make_run(folder)
    make_run(folder, "paper")
    return folder


def arguments(folder, output, *more, variant="geometric"):
    given = str(folder / f"run-{variant}"), "--input", str(folder / "waves.npz")
    return ["predict", *given, "--output", str(output), *more]


def opened(path):
    return xr.open_zarr(path) if path.suffix == ".zarr" else xr.open_dataset(path)


def files_of(store):
    """Every file of a store with its content."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in store.rglob("*") if path.is_file()
    }  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("variant", ["geometric", "paper"])
@pytest.mark.parametrize("where", [(), GRID])
def test_zarr_and_netcdf_hold_the_same_forecasts_however_they_are_cut(
    folder, tmp_path, where, variant
):
    steps = ("--steps", "3", *where)
    main(arguments(folder, tmp_path / "a.nc", *steps, variant=variant))
    main(arguments(folder, tmp_path / "b.zarr", *steps, "--chunk-size", "5", variant=variant))
    main(arguments(folder, tmp_path / "c.zarr", *steps, "--chunk-size", "24", variant=variant))
    with opened(tmp_path / "a.nc") as a, opened(tmp_path / "b.zarr") as b, opened(tmp_path / "c.zarr") as c:  # fmt: skip
        assert dict(a.sizes) == dict(b.sizes)
        assert a["u"].dims == ("trajectory", "time", "x", "y")
        assert set(a.variables) == set(b.variables)
        is_known = np.isfinite(a["u"].values)
        # The hole, in two trajectories of three steps; one point of the grid lies in it too.
        assert is_known.sum() == is_known.size - 6
        for name in a.variables:
            np.testing.assert_allclose(b[name].values, a[name].values, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(c[name].values, a[name].values, rtol=1e-5, atol=1e-6)
            assert a[name].dtype == b[name].dtype
        assert np.nanmin(np.abs(np.diff(a["u"].values, axis=1))) > 0
        assert b["u"].encoding["chunks"] == (1, 1, 1, 5)
        assert c["u"].encoding["chunks"] == ((1, 1, 2, 11) if where else (1, 1, 3, 8))
    assert not (tmp_path / "b.zarr.unfinished").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("where", [(), GRID])
def test_a_forecast_without_values_is_refused_and_leaves_no_file(
    folder, tmp_path, capsys, monkeypatch, where
):
    load = Forecaster.load

    def damaged(path):
        forecaster = load(path)
        forecaster.output_std.fill_(np.nan)
        return forecaster

    monkeypatch.setattr(Forecaster, "load", staticmethod(damaged))
    code, message = failure(capsys, *arguments(folder, tmp_path / "a.nc", *where))
    assert code == 1
    # The hole of the input has no forecast anyway.
    count = 43 if where else 55
    assert f"must be finite, but is not at {count} of {count} points" in message
    assert not (tmp_path / "a.nc").exists()


def test_a_forecast_in_zarr_can_be_read_as_data(folder, tmp_path):
    main(arguments(folder, tmp_path / "a.zarr", "--steps", "3"))
    data = open_data(tmp_path / "a.zarr", ReadOptions(select={"trajectory": "1"}))
    assert data.frames(0).shape == (3, 56, 2)
    assert data.time.tolist() == [81, 83, 85]


@pytest.mark.thorough
@pytest.mark.parametrize("where", [(), ("--queries", "points.npy")])
def test_a_killed_forecast_goes_on_and_ends_the_same_bit_by_bit(folder, tmp_path, where):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).random((40, 2)))
    where = [str(tmp_path / part) if part.endswith(".npy") else part for part in where]
    more = ("--steps", "12", "--chunk-size", "16", *where)
    whole, output = tmp_path / "whole.zarr", tmp_path / "killed.zarr"
    main(arguments(folder, whole, *more))
    with opened(whole) as written:
        # One of the forty points lies in the hole.
        assert np.isfinite(written["u"].values).mean() >= 39 / 40
    progress = tmp_path / "killed.zarr.unfinished" / "progress.json"
    # The first writing counts no chunk, so that the 17th would count the 16th chunk.
    held = ["progress.json", "17", str(tmp_path / "never"), "gpo"]
    with Forked("tests.held", [*held, *arguments(folder, output, *more)]) as running:
        running.wait_until(
            lambda: progress.exists() and json.loads(progress.read_text())["num_done"] >= 15
        )
        running.kill()
    assert not output.exists()
    main(arguments(folder, output, *more))
    assert files_of(output) == files_of(whole)
    assert not progress.parent.exists()


@pytest.mark.thorough
@pytest.mark.parametrize("where", [(), GRID])
def test_a_forecast_may_be_stopped_after_any_chunk(folder, tmp_path, where):
    grid = tuple(int(count) for count in where[1:])
    command = PredictCommand(
        folder=folder / "run-geometric", input=folder / "waves.npz", steps=3, grid=grid,
        output=tmp_path / "whole.zarr", chunk_size=24,
    )  # fmt: skip
    command.run()
    expected = files_of(tmp_path / "whole.zarr")
    forecasts = command._forecasts(Run(command.folder))
    block = command._block(forecasts)
    parts = blocks(forecasts.layout.points.shape, block)
    for stop in range(2 * 3 * len(parts) + 1):
        path = tmp_path / f"stop-{stop}.zarr"
        store = ForecastStore(path, forecasts.layout, block, {})
        assert len(list(islice(forecasts.write(store, parts), stop))) == stop
        again = ForecastStore(path, forecasts.layout, block, {})
        assert again.num_done == stop
        assert len(list(forecasts.write(again, parts))) == 2 * 3 * len(parts) - stop
        again.finish()
        assert files_of(path) == expected


def test_what_was_begun_with_other_settings_is_not_continued(folder, tmp_path, capsys):
    output, begun = tmp_path / "a.zarr", tmp_path / "a.zarr.unfinished"
    command = PredictCommand(
        folder=folder / "run-geometric", input=folder / "waves.npz", output=output, steps=2
    )
    forecasts = command._forecasts(Run(command.folder))
    settings = command._settings(forecasts)
    ForecastStore(output, forecasts.layout, command._block(forecasts), settings)
    for more, what in (
        (("--steps", "3"), "steps"),
        (("--steps", "2", "--chunk-size", "8"), "chunk size"),
        (("--steps", "2", *GRID), "chunk size, places"),
    ):
        code, message = failure(capsys, *arguments(folder, output, *more))
        assert code == 1
        assert f"{begun} holds an unfinished forecast of another {what}. Repeat the" in message
    code, message = failure(capsys, *arguments(folder, output, "--steps", "2", variant="paper"))
    assert "another run." in message
    (folder / "waves.npz").touch()
    code, message = failure(capsys, *arguments(folder, output, "--steps", "2"))
    assert "another input." in message
    # Where not even the begin was reached, there is nothing to lose.
    (begun / "progress.json").unlink()
    main(arguments(folder, output, "--steps", "2"))
    assert output.exists()
    code, message = failure(capsys, *arguments(folder, output, "--steps", "2"))
    assert "exists. Choose another --output" in message


def test_a_chunk_has_at_least_one_point(folder, tmp_path, capsys):
    code, message = failure(capsys, *arguments(folder, tmp_path / "a.nc", "--chunk-size", "0"))
    assert code == 1
    assert "--chunk-size must be at least 1, got 0" in message
