"""`gpo represent` on tiny files: output, files and errors."""

import numpy as np
import pytest
import xarray as xr

from gpo.cli import main
from gpo_mixture import load


@pytest.fixture
def file(tmp_path):
    x, y = np.linspace(0, 1, 18), np.linspace(0, 2, 14)
    time = np.arange(4.0)
    waves = np.sin(4 * x[None, None] + time[:, None, None]) * np.cos(2 * y)[None, :, None]
    level = waves.copy()
    level[:, :3, :4] = np.nan
    dataset = xr.Dataset(
        {"level": (("time", "y", "x"), level), "heat": (("time", "y", "x"), 300 + waves)},
        {
            "time": ("time", time, {"units": "s"}),
            "y": ("y", y, {"units": "m"}),
            "x": ("x", x, {"units": "m"}),
        },
    )
    dataset.to_netcdf(tmp_path / "waves.nc")
    return tmp_path / "waves.nc"


@pytest.mark.thorough
def test_it_prints_the_error_and_writes_every_format(file, capsys):
    paths = [file.parent / f"result.{suffix}" for suffix in ("nc", "vtp", "ply", "png")]
    main(["represent", str(file), "--particles", "9", "--var", "level", "--steps", "4", "--out", *map(str, paths)])  # fmt: skip
    output = capsys.readouterr().out
    (mixture,) = load(paths[0]).mixtures
    assert len(mixture) == 9
    assert mixture.variables == ("level",)
    sites = 14 * 18 - 12
    assert f"numbers stored: {9 * 6 + 1} in place of {sites}" in output
    error = float(output.split("relative L2 ")[1].split(",")[0])
    assert error < 0.1
    assert all(path.stat().st_size > 500 for path in paths)


def test_several_frames_are_fitted_as_a_series(file, capsys):
    path = file.parent / "result.nc"
    main(["represent", str(file), "--particles", "4", "--frames", "3", "--steps", "3", "--out", str(path)])  # fmt: skip
    series = load(path)
    assert len(series) == 3
    assert series.times == (1.0, 2.0, 3.0)
    assert series[0].variables == ("level", "heat")
    lines = [line for line in capsys.readouterr().out.splitlines() if "relative L2" in line]
    assert [line.split(": ")[0] for line in lines] == [f"frame {n} ({n} s)" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--particles", "1000"], "`num_particles` must be at least 1 and at most"),
        (["--frame", "9"], "`frame` must be from -4 to 3, got 9."),
        (["--frame", "2", "--frames", "3"], "`frames` must be from 1 to 2"),
        (["--trajectory", "1"], "`trajectory` must be from 0 to 0, got 1."),
        (["--out", "result.obj"], "must end in .nc or .zarr"),
    ],
)
def test_invalid_flags_are_reported(file, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(file.parent)
    with pytest.raises(SystemExit) as ended:
        main(["represent", str(file), "--steps", "1", *arguments])
    assert ended.value.code == 1
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in file.parent.iterdir()) == ["waves.nc"]
