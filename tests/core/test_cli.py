import re
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from gpo import count_parameters, preset
from gpo.cli import main
from tests.contracts.samples import airfoil, ns2d
from tests.processes import Forked


def failure(capsys, *arguments):
    """Runs a command that must fail; returns its exit code and message."""
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return stopped.value.code, capsys.readouterr().err


def test_presets_prints_every_count(capsys):
    main(["presets"])
    printed = capsys.readouterr().out
    for name in ("ns2d", "ns3d", "era5-temp", "era5-wind", "carra", "airfoil", "turbulent", "planetswe"):  # fmt: skip
        assert name in printed
        assert f"{count_parameters(*preset(name)):,}" in printed


def test_an_unknown_command_lists_the_known(capsys):
    code, message = failure(capsys, "prests")
    assert code == 2
    assert "presets" in message


@pytest.mark.parametrize("words", ["represent", "data info", "data plot"])
def test_a_command_without_a_file_names_what_is_missing(words, capsys):
    code, message = failure(capsys, *words.split())
    assert (code, message) == (1, "error: PATH must name a file or a folder, got none.\n")


@pytest.mark.thorough
def test_data_is_made_described_and_drawn(tmp_path, capsys):
    path, picture = tmp_path / "ns.mat", tmp_path / "ns.png"
    make = ["data", "make", "ns2d", "--preset", "quick", "--out", str(path)]
    changes = ["--set", "size=16", "num_trajectories=4", "num_frames=3", "viscosity=1e-3"]
    main([*make, *changes])
    assert f"made: {path}" in capsys.readouterr().out
    main([*make, *changes])
    assert f"already there: {path}" in capsys.readouterr().out
    main(["data", "info", str(path)])
    printed = capsys.readouterr().out
    for text in ("layout    ns2d", "4 x 3 frames, one every 1 s", "256 on a grid of 16 x 16", "vorticity"):  # fmt: skip
        assert text in printed
    assert "x from 0 to 1 (periodic); y from 0 to 1 (periodic)" in printed
    assert "4 / 2 / 2 examples to train / validate / test, split by trajectory" in printed
    main(["data", "plot", str(path), "--out", str(picture)])
    assert picture.stat().st_size > 10_000


def test_made_data_goes_into_the_cache_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPO_CACHE", str(tmp_path / "cache"))
    main(["data", "make", "ns2d", "--preset", "quick", "--set", "size=16", "num_trajectories=2", "num_frames=1"])  # fmt: skip
    assert (tmp_path / "cache" / "ns2d-quick.mat").is_file()


def test_missing_values_masks_and_selected_variables_are_reported(tmp_path, capsys):
    values = np.random.default_rng(0).normal(size=(9, 8, 6))
    values[:, 2:4, :] = np.nan
    np.savez(tmp_path / "my.npz", x=np.arange(8.0), y=np.arange(6.0), t=np.arange(9.0), u=values, v=values + 1)  # fmt: skip
    main(["data", "info", str(tmp_path / "my.npz"), "--var", "v"])
    printed = capsys.readouterr().out
    assert "25.0% of the sites masked" in printed
    assert "25.0%" in printed.splitlines()[-3]
    assert " u " not in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("data", "make", "ns4d"), "error: `name` must be one of ns2d"),
        (("data", "make", "carra"), "carra has no solver"),
        (("data", "make", "ns2d", "--set", "viscosity"), "--set takes name=value, got 'viscosity'"),
        (("data", "make", "ns2d", "--set", "size=7"), "`size` must be even"),
        (("data", "info", "nowhere.nc"), "nowhere.nc: `file` does not exist"),
        (("data", "plot", "nowhere.nc"), "nowhere.nc: `file` does not exist"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_exit_code_one(arguments, message, capsys):
    code, printed = failure(capsys, *arguments)
    assert code == 1
    assert message in printed
    assert "Traceback" not in printed


def test_a_variable_the_file_lacks_is_named_with_those_it_has(tmp_path, capsys):
    code, printed = failure(capsys, "data", "info", str(ns2d(tmp_path)), "--var", "pressure")
    assert code == 1
    assert "`pressure` is not in the file, which has vorticity" in printed


def test_a_folder_that_cannot_be_written_is_an_error_not_a_traceback(tmp_path, capsys):
    (tmp_path / "file").write_text("not a folder")
    code, printed = failure(capsys, "data", "make", "ns2d", "--out", str(tmp_path / "file" / "x.mat"))  # fmt: skip
    assert code == 1
    assert "error:" in printed


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "gpo", "--help"], capture_output=True, check=True)
    assert b"presets" in done.stdout


@pytest.mark.thorough
def test_a_run_goes_from_a_file_to_a_report(tmp_path, capsys):
    folder = tmp_path / "run"
    path = ns2d(tmp_path)
    command = ["run", "--data", str(path), "--epochs", "2", "--hidden-dim", "16", "--num-layers", "1", "--quiet", "--out", str(folder)]  # fmt: skip
    main(command)
    printed = capsys.readouterr().out
    assert "1 frame(s) predict the one 1 step(s) later (as increment)" in printed
    assert "split by trajectory" in printed
    assert "persistence" in printed
    for name in ("config.yaml", "results.json", "report.html", "model/model.safetensors", "figures/rollout.png"):  # fmt: skip
        assert (folder / name).is_file(), name
    page = (folder / "report.html").read_text()
    pictures = page.count("data:image/webp;base64") + page.count("data:image/png;base64")
    assert pictures >= 6
    assert not re.search(r"https?:", page)
    main(command)
    code, message = failure(capsys, *command, "--seed", "1")
    assert code == 1
    assert "has a run of another configuration" in message


@pytest.mark.thorough
def test_training_scoring_reporting_and_forecasting_are_commands_of_their_own(tmp_path, capsys):
    folder, path = tmp_path / "run", ns2d(tmp_path)
    main(["train", "--data", str(path), "--epochs", "1", "--hidden-dim", "16", "--num-layers", "1", "--quiet", "--out", str(folder)])  # fmt: skip
    assert not (folder / "results.json").exists()
    code, message = failure(capsys, "report", str(folder))
    assert code == 1
    assert f"has no results yet. Evaluate it: gpo evaluate {folder}" in message
    main(["evaluate", str(folder)])
    main(["report", str(folder)])
    assert (folder / "report.html").is_file()
    forecast = tmp_path / "forecast.nc"
    main(["predict", str(folder), "--input", str(path), "--output", str(forecast), "--steps", "3"])
    with xr.open_dataset(forecast) as written:
        assert dict(written.sizes) == {"trajectory": 4, "time": 3, "x": 8, "y": 8}
        assert written["time"].values.tolist() == [7, 8, 9]
        assert written["vorticity"].attrs["units"] == "1/s"
        assert np.isfinite(written["vorticity"].values).all()
    code, message = failure(capsys, "predict", str(folder), "--input", str(path), "--output", str(forecast))  # fmt: skip
    assert code == 1
    assert "exists. Choose another --output" in message


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    code, message = failure(capsys, "evaluate", str(tmp_path))
    assert code == 1
    assert "is not a run folder: it has no config.yaml" in message


def test_a_run_on_unreadable_data_leaves_no_folder(tmp_path, capsys):
    (tmp_path / "broken.nc").write_bytes(b"CDF\x01 nonsense")
    code, message = failure(capsys, "run", "--data", str(tmp_path / "broken.nc"), "--out", str(tmp_path / "run"))  # fmt: skip
    assert code == 1
    assert "broken.nc" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_static_maps_run_too(tmp_path, capsys, small_pictures):
    folder = tmp_path / "run"
    main(["run", "--data", str(airfoil(tmp_path)), "--epochs", "2", "--hidden-dim", "16", "--num-layers", "1", "--quiet", "--out", str(folder)])  # fmt: skip
    printed = capsys.readouterr().out
    assert (
        "mach from x, y; 1 / 1 / 1 examples to train / validate / test, split by sample" in printed
    )
    assert "training mean" in printed
    assert (folder / "report.html").is_file()


def test_a_reader_that_stops_listening_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m gpo run --help | head -c 10", shell=True, capture_output=True, check=False
    )  # fmt: skip
    assert done.stdout.strip()
    assert b"Traceback" not in done.stderr
    assert b"error" not in done.stderr


@pytest.mark.thorough
def test_an_interrupted_training_says_how_to_go_on(tmp_path):
    command = ["run", "--data", str(ns2d(tmp_path)), "--epochs", "100000", "--patience", "100000",
               "--hidden-dim", "16", "--num-layers", "1", "--quiet", "--out", str(tmp_path / "run")]  # fmt: skip
    with Forked("gpo", command) as running:
        running.wait_until((tmp_path / "run" / "checkpoints" / "last.ckpt").exists)
        running.interrupt()
        assert running.end() == 130
        assert "run the same command again to resume" in running.said
