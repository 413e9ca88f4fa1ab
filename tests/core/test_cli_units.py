"""Units and origins of a file do not change what the command line makes of it: run, then predict."""

import numpy as np
import pytest
import xarray as xr
from scipy.spatial import Delaunay

from gpo.cli import main
from gpo.evaluation.results import Results

SIZES = ["--no-auto", "--hidden-dim", "16", "--num-layers", "1", "--num-gaussians", "2",
         "--epochs", "2", "--batch-size", "8", "--quiet"]  # fmt: skip
TIMES = np.arange(30.0)
UTM = {"size": 10.0, "origin": (5e5, 5e6)}
"""Ten metres somewhere in a zone of Mercator's projection."""
EPSILON = np.finfo(np.float64).eps
CASES = [
    ("grid", {"factor": 1e-20}),
    ("grid", {"factor": 1e-22}),
    ("grid", {"factor": 1e20}),
    ("grid", {"factor": 0.05, "offset": 1e5}),
    ("grid", UTM),
    ("scattered", {"factor": 1e-30, "offset": 1e-24, **UTM}),
    ("mesh", {"factor": 1e30, "offset": -1e36, "size": 10.0, "origin": (1e8, -1e8)}),
]


def waves(x, y):
    t = TIMES[:, *(None,) * x.ndim]
    return np.sin(5 * x + 3 * y - 0.3 * t) + 0.3 * np.cos(4 * y - 0.2 * t)


def write(folder, kind, *, factor=1.0, offset=0.0, size=1.0, origin=(0.0, 0.0)):
    """Writes waves in double precision, and returns the file."""
    folder.mkdir()
    if kind == "grid":
        axes = [np.arange(12) / 16, np.arange(10) / 16]
        u = offset + factor * waves(*np.meshgrid(*axes, indexing="ij"))
        places = {n: o + size * axis for n, o, axis in zip("xy", origin, axes, strict=True)}
        path = folder / "grid.nc"
        xr.Dataset({"u": (("time", "x", "y"), u)}, {"time": TIMES, **places}).to_netcdf(path)
        return path
    unit = np.round(np.random.default_rng(0).random((80, 2)) * 2**20) / 2**20
    u, coords = offset + factor * waves(*unit.T), np.array(origin) + size * unit
    if kind == "scattered":
        np.savez(folder / "points.npz", coords=coords, time=TIMES, u=u)
        return folder / "points.npz"
    about = {
        "cf_role": "mesh_topology", "topology_dimension": 2, "node_coordinates": "px py",
        "face_node_connectivity": "faces",
    }  # fmt: skip
    faces = Delaunay(unit).simplices
    xr.Dataset(
        {
            "mesh": ((), 0, about), "faces": (("face", "corner"), faces, {"start_index": 0}),
            "px": ("node", coords[:, 0]), "py": ("node", coords[:, 1]),
            "u": (("time", "node"), u, {"mesh": "mesh", "location": "node"}),
        },
        {"time": TIMES},
    ).to_netcdf(folder / "mesh.nc")  # fmt: skip
    return folder / "mesh.nc"


def worked(folder, kind, **change):
    """Returns scores and forecasts of a run on a file, the latter in plain units."""
    path, out = write(folder, kind, **change), folder / "run"
    main(["run", "--data", str(path), *SIZES, "--scope", "one-step", "--out", str(out)])
    main(["predict", str(out), "--input", str(path), "--steps", "2", "--output", str(folder / "next.nc")])  # fmt: skip
    scores = Results.load(out / "results.json").variables["u"]
    with xr.open_dataset(folder / "next.nc", decode_times=False) as stored:
        assert stored.u.dtype == np.float64
        forecast = (stored.u.values.ravel() - change.get("offset", 0.0)) / change.get("factor", 1.0)
    return {who: one["rmse_over_std"] for who, one in scores.items()}, forecast


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What is made of the same fields in plain units, by kind of sites."""
    folder, made = tmp_path_factory.mktemp("plain"), {}

    def of(kind):
        if kind not in made:
            made[kind] = worked(folder / kind, kind)
        return made[kind]

    return of


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "change"), CASES)
def test_a_run_and_its_forecasts_do_not_depend_on_units_and_origins(kind, change, plain, tmp_path):
    scores, forecast = worked(tmp_path / "file", kind, **change)
    expected, wanted = plain(kind)
    # Training amplifies what rounding changes. A linear map is exact on these waves, to the rounding
    # of their values, which is that of a large offset.
    rounding = 64 * EPSILON * abs(change.get("offset", 0.0)) / change.get("factor", 1.0)
    assert scores == pytest.approx(expected, rel=2e-3, abs=max(rounding, 1e-12))
    np.testing.assert_allclose(forecast, wanted, atol=2e-3)


def test_a_file_that_rounds_its_signal_away_is_reported(tmp_path, capsys):
    path = write(tmp_path / "file", "grid", factor=0.05, offset=1e5)
    main(["data", "info", str(path)])
    assert "steps of" not in capsys.readouterr().out
    with xr.open_dataset(path) as stored:
        stored.load().astype(np.float32).to_netcdf(tmp_path / "single.nc")
    main(["data", "info", str(tmp_path / "single.nc")])
    said = " ".join(capsys.readouterr().out.split())
    assert "u varies by 0.03" in said
    assert "around 100000, and the file stores it in steps of 0.0078" in said


def test_whole_numbers_are_no_rounded_ones(tmp_path, capsys):
    path = tmp_path / "whole.npz"
    whole = np.random.default_rng(0).integers(0, 9, (9, 8, 7)) + 10_000_000.0
    np.savez(path, x=5e6 + np.arange(8.0), y=np.arange(7.0), u=whole, time=np.arange(9.0))
    main(["data", "info", str(path)])
    assert "steps of" not in capsys.readouterr().out


def test_coordinates_that_a_file_rounds_are_reported(tmp_path, capsys):
    path = write(tmp_path / "file", "scattered", **UTM)
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(tmp_path / "single.npz", **(arrays | {"coords": arrays["coords"].astype(np.float32)}))
    main(["data", "info", str(tmp_path / "single.npz")])
    said = " ".join(capsys.readouterr().out.split())
    assert "coordinates along y are stored in steps of 0.5, where sites are 1.1 apart" in said
