"""A reader of another package joins by one registration."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from gpo.cli import main
from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions, check_axis
from gpo.data.readers.build import Reader
from gpo.data.readers.registry import READERS, open_data
from gpo.optional import MissingPackageError

FRAMES = np.random.default_rng(0).normal(size=(30, 12))


def open_tides(path: Path, options: ReadOptions) -> xr.Dataset:
    """Water levels along a channel: a line of positions, then a line per hour."""
    positions, *levels = np.loadtxt(path)
    axis = check_axis(path, "positions", positions)
    times = ("time", np.arange(float(len(levels))), {"units": "h"})
    level = (("time", "x"), np.array(levels), {"units": "m"})
    return xr.Dataset({"level": level}, {"time": times, "x": ("x", axis, {"units": "km"})})


def open_archive(path: Path, options: ReadOptions) -> xr.Dataset:
    raise DataError(path, "file", "was recognised by the reader of tide archives.")


TIDES = Reader(
    name="tides",
    layout="text with a line of positions and a line of levels per hour (.tide)",
    recognises=lambda path: path.suffix == ".tide",
    open=open_tides,
)
ARCHIVE = Reader("tide-archive", "tides", lambda p: p.name.endswith(".tide.npz"), open_archive)


@pytest.fixture
def register():
    """Registers readers for one test."""
    names = []

    def add(name, reader):
        READERS.register(name, reader)
        names.append(name)

    yield add
    for name in names:
        del READERS[name]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "harbour.tide"
    np.savetxt(path, np.concatenate([np.arange(12.0)[None], FRAMES]))
    return path


@pytest.mark.parametrize("reader", [TIDES, f"{__name__}:TIDES"])
def test_a_file_of_a_new_suffix_is_opened_once_its_reader_is_registered(file, register, reader):
    with pytest.raises(DataError, match="has an unknown layout"):
        open_data(file)
    register("tides", reader)
    for data in (open_data(file), open_data(file, reader="tides")):
        assert data.layout == "tides"
        np.testing.assert_allclose(data.frames(0)[..., 0], FRAMES)
    with pytest.raises(DataError, match="`salinity` is not in the file, which has level"):
        open_data(file, ReadOptions(variables=("salinity",)))


def test_its_data_are_described_on_the_command_line(file, register, capsys):
    register("tides", TIDES)
    main(["data", "info", str(file)])
    printed = capsys.readouterr().out
    assert "layout    tides" in printed
    assert "x from 0 to 11 km" in printed
    assert "1 x 30 frames, one every 1 h" in printed
    assert "level" in printed


def test_its_files_are_joined_by_a_pattern_and_periodic_on_request(file, register):
    register("tides", TIDES)
    file.with_stem("river").write_bytes(file.read_bytes())
    joined = open_data(f"{file.parent}/*.tide", ReadOptions(periodic=("x",)))
    assert joined.num_samples == 2
    assert joined.geometry().domain.periodic == (True,)


def test_it_precedes_the_built_in_readers_of_general_layouts(tmp_path, register):
    path = tmp_path / "harbour.tide.npz"
    np.savez(path, t=np.arange(30.0), x=np.arange(12.0), u=FRAMES)
    assert open_data(path).layout == "arrays"
    register("tide-archive", ARCHIVE)
    with pytest.raises(DataError, match="recognised by the reader of tide archives"):
        open_data(path)
    assert open_data(path, reader="arrays").layout == "arrays"


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(ValueError, match="reader 'arrays' is already registered"):
        READERS.register("arrays", TIDES)


def test_a_reader_whose_package_is_missing_names_it(file, register):
    register("tides", "no_such_oceanography.readers:TIDES")
    needed = (
        r"tides \(no_such_oceanography\).*Install all of them: pip install no_such_oceanography"
    )
    with pytest.raises(MissingPackageError, match=needed):
        open_data(file)
    with pytest.raises(MissingPackageError, match="Reader tides needs the package no_such"):
        open_data(file, reader="tides")
