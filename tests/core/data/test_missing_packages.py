"""Without the extra `data`, NumPy and MATLAB 5 files are read; all others name the extra."""

import sys

import numpy as np
import pytest

from gpo.data.benchmarks import DATA_SETS, Benchmark, solver_for
from gpo.data.dataset import Variable
from gpo.data.geometry import Geometry
from gpo.data.query_points import QueryPoints
from gpo.data.readers.registry import BUILT_IN, READERS, open_data
from gpo.data.writers.layout import ForecastLayout
from gpo.data.writers.netcdf import write_forecast
from gpo.data.writers.zarr import ForecastStore
from gpo.optional import MissingPackageError
from tests.contracts import samples

PACKAGES = ("h5py", "netCDF4", "zarr", "cfgrib", "cftime")
IMPORTED_BY = {
    "h5py": (
        "gpo.data.readers.well",
        "gpo.data.readers.pdebench",
        "gpo.data.readers.mesh_series",
        "gpo_bench.solvers.well_files",
        "gpo_bench.solvers.radiative_layer",
    ),
}
"""Modules that import a package at the top, and must be imported again to miss it."""
INSTALL = r"pip install 'gpo\[data\]'"
GRID = Geometry.rectilinear([np.arange(3.0)])


@pytest.fixture
def hide(monkeypatch):
    """Hides packages as if they were not installed."""

    def hidden(*packages):
        # Readers that were imported before are imported again.
        monkeypatch.setattr(READERS, "_items", dict(BUILT_IN))
        for package in packages:
            monkeypatch.setitem(sys.modules, package, None)
            for module in IMPORTED_BY.get(package, ()):
                monkeypatch.delitem(sys.modules, module, raising=False)

    return hidden


@pytest.mark.parametrize(
    "sample", ["arrays", "arrays of MATLAB 5", "a folder of arrays", "airfoil"]
)
def test_arrays_are_read_without_optional_packages(sample, tmp_path, hide):
    layout, make = samples.SAMPLES[sample]
    path = make(tmp_path)
    hide(*PACKAGES)
    assert open_data(path).layout == layout


@pytest.mark.parametrize(
    ("sample", "package", "message"),
    [
        ("ns2d", "h5py", "Reading HDF5 needs the package h5py"),
        ("pdebench", "h5py", "Reading HDF5 needs the package h5py"),
        ("era5 as NetCDF", "netCDF4", "Reading NetCDF needs the package netCDF4"),
        ("era5 as NetCDF", "cftime", "Reading dates needs the package cftime"),
        ("era5 as Zarr", "zarr", "Reading Zarr needs the package zarr"),
    ],
)
def test_a_file_that_needs_a_package_names_the_extra(sample, package, message, tmp_path, hide):
    path = samples.SAMPLES[sample][1](tmp_path)
    if path.suffix in (".mat", ".hdf5", ".h5"):
        path = path.rename(path.with_suffix(".data"))
    hide(package)
    with pytest.raises(MissingPackageError, match=rf"(?s){message}.*{INSTALL}"):
        open_data(path)


def test_hdf5_with_a_known_suffix_names_the_extra(tmp_path, hide):
    path = samples.ns2d(tmp_path)
    hide("h5py")
    with pytest.raises(MissingPackageError, match=f"HDF5 needs the package h5py.*{INSTALL}"):
        open_data(path)


def test_grib_names_the_extra(tmp_path, hide):
    path = tmp_path / "a.grib"
    path.write_bytes(b"GRIB")
    hide("cfgrib")
    with pytest.raises(MissingPackageError, match=f"GRIB needs the package cfgrib.*{INSTALL}"):
        open_data(path)


def test_writers_name_the_extra(tmp_path, hide):
    hide("netCDF4", "zarr")
    with pytest.raises(MissingPackageError, match=f"NetCDF needs the package netCDF4.*{INSTALL}"):
        write_forecast(tmp_path / "a.nc", np.zeros((1, 3, 1)), GRID, [Variable("u")])
    layout = ForecastLayout(QueryPoints.of(GRID), (Variable("u"),), 1)
    with pytest.raises(MissingPackageError, match=f"Zarr needs the package zarr.*{INSTALL}"):
        ForecastStore(tmp_path / "a.zarr", layout, (3,), {})
    assert list(tmp_path.iterdir()) == []


def test_a_solver_that_writes_hdf5_names_the_extra(hide):
    hide("h5py")
    with pytest.raises(
        MissingPackageError,
        match=f"The solver gpo_bench.solvers.radiative_layer needs.*h5py.*{INSTALL}",
    ):
        solver_for("turbulent", "quick", {})


def test_a_solver_of_another_package_names_that_package(monkeypatch):
    elsewhere = Benchmark("arrays", "a data set of another package", solver="oceans.solver")
    monkeypatch.setitem(DATA_SETS._items, "oceans", elsewhere)
    with pytest.raises(
        MissingPackageError, match=r"solver oceans.* Install it: pip install oceans"
    ):
        solver_for("oceans", "quick", {})
    with pytest.raises(ValueError, match=r"got 'lakes'\. .*Install the package that registers it"):
        solver_for("lakes", "quick", {})
