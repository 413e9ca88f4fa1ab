"""Forecasts on rotated, projected and curvilinear grids, written and read back."""

import numpy as np
import pytest
import xarray as xr

from gpo.cli import main
from gpo.data.coarsen import coarsen
from gpo.data.geometry import Geometry
from gpo.data.readers.registry import open_data
from gpo.data.rotated_pole import RotatedPole
from gpo.evaluation.results import Results
from gpo.runs import Run, split_of
from gpo.training.config import RunConfig
from gpo.training.fit import new_forecaster
from tests.core.data.readers.synthetic_weather import write_carra
from tests.explore.sessions import lively

SIZES = {"hidden_dim": 8, "num_layers": 1, "num_gaussians": 4}
NORTH, EAST = {"units": "degrees_north"}, {"units": "degrees_east"}


def rotated(path):
    pole = RotatedPole(39.25, -162.0, 4.0)
    axes = {"rlat": np.linspace(-3, 3, 8), "rlon": np.linspace(0, 9, 10)}
    longitude, latitude = (
        Geometry.latitude_longitude(*axes.values(), pole=pole).geographic_degrees().T
    )
    write(path, axes, latitude.reshape(8, 10), longitude.reshape(8, 10), (8, 10))


def roms(path):
    up, along = np.meshgrid(np.linspace(36, 42, 8), np.linspace(-76, -68, 10), indexing="ij")
    write(path, {}, up + np.sin(along), along + up / 9, (8, 10), dims=("eta_rho", "xi_rho"))


def carra(path):
    write_carra(path, num_times=30, shape=(8, 10))


def write(path, axes, latitude, longitude, shape, dims=None):
    dims = dims or tuple(axes)
    field = np.random.default_rng(0).normal(size=(30, *shape)).astype(np.float32)
    field[:, :2, :3] = np.nan
    places = {"lat_rho": (dims, latitude, NORTH), "lon_rho": (dims, longitude, EAST)}
    dataset = xr.Dataset({"zeta": (("time", *dims), field)}, {**places, "time": np.arange(30.0)})
    dataset.assign_coords({name: (name, axis) for name, axis in axes.items()}).to_netcdf(path)


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("make", [rotated, carra, roms])
def test_a_forecast_is_read_back_on_the_sites_of_its_input(tmp_path, make, factor, suffix):
    make(tmp_path / "a.nc")
    config = RunConfig.of(data=str(tmp_path / "a.nc"), coarsen=factor, **SIZES)
    given = open_data(tmp_path / "a.nc")
    data = coarsen(given, factor)
    run = Run(tmp_path / "run")
    run.claim(config)
    lively(new_forecaster(data, split_of(data, config), config)).save(run.model_folder)
    output = tmp_path / f"b{suffix}"
    main(["predict", str(run.folder), "--input", str(tmp_path / "a.nc"), "--output", str(output), "--steps", "2"])  # fmt: skip
    # A tensor grid is answered as the file has it, a mesh as the model knows it.
    expected = (data if make is roms else given).geometry()
    found = open_data(output).geometry()
    assert found.grid_shape == expected.grid_shape
    np.testing.assert_allclose(found.coords, expected.coords, atol=1e-6)
    np.testing.assert_allclose(found.geographic_degrees(), expected.geographic_degrees(), atol=1e-5)
    np.testing.assert_array_equal(found.is_masked, expected.is_masked)


@pytest.mark.thorough
@pytest.mark.parametrize("make", [rotated, carra, roms])
def test_a_coarsened_run_is_scored_to_the_end(tmp_path, make):
    """A model of every second site was once refused the sites of its own file when it was scored."""
    make(tmp_path / "a.nc")
    sizes = ["--hidden-dim", "8", "--num-layers", "1", "--num-gaussians", "2", "--num-waves", "2"]
    main(["run", "--data", str(tmp_path / "a.nc"), "--coarsen", "2", "--steps", "2", "--quiet",
          "--learning-rate", "1e-3", *sizes, "--out", str(tmp_path / "run")])  # fmt: skip
    results = Results.load(tmp_path / "run" / "results.json")
    assert np.isfinite(results.one_step["model"]["relative_l2"])
    assert results.verdict
    assert (tmp_path / "run" / "report.html").exists()
