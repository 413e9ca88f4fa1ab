"""Inputs beside the state, as they are typed: trained, scored, predicted, exported."""

import numpy as np
import pytest
import xarray as xr

from gpo.cli import main
from gpo.evaluation.results import Results
from tests.core.data.test_map_inputs import as_arrays
from tests.core.test_cli import failure
from tests.core.training.test_forcings import driven

pytestmark = pytest.mark.usefixtures("small_pictures")
SIZES = ["--hidden-dim", "8", "--num-layers", "1", "--num-gaussians", "2",
         "--epochs", "1", "--quiet"]  # fmt: skip


@pytest.mark.thorough
def test_a_run_with_inputs_beside_the_state_predicts_and_says_what_is_missing(tmp_path, capsys):
    path, run = driven(tmp_path / "driven.nc", num_times=40), tmp_path / "run"
    given = ["--data", str(path), "--static", "depth", "same", "--forcing", "inflow", "flux"]
    main(["run", *given, "--time-features", "year", *SIZES, "--out", str(run)])
    assert set(Results.load(run / "results.json").per_variable["model"]) == {"u"}
    code, printed = failure(capsys, "predict", str(run), "--input", str(path), "--output", str(tmp_path / "a.nc"))  # fmt: skip
    assert code == 1
    assert "`inflow` must be known until 240 h" in printed
    stored = xr.load_dataset(path, decode_times=False)
    stored["u"][-2:] = np.nan
    stored.to_netcdf(tmp_path / "later.nc")
    main(["predict", str(run), "--input", str(tmp_path / "later.nc"), "--output", str(tmp_path / "b.nc"), "--steps", "2"])  # fmt: skip
    with xr.open_dataset(tmp_path / "b.nc", decode_times=False) as forecast:
        assert np.isfinite(forecast["u"]).all()
        np.testing.assert_allclose(np.ravel(forecast["time"])[-1], 39 * 6)


@pytest.mark.thorough
def test_a_run_from_parameters_to_a_field_predicts_for_new_parameters(tmp_path):
    path, run = as_arrays(tmp_path / "maps.npz"), tmp_path / "run"
    main(["run", "--data", str(path), "--inputs", "mu", "re", "--var", "u", *SIZES, "--out", str(run)])  # fmt: skip
    np.savez(tmp_path / "new.npz", mu=[0.7, 1.1, 1.9], re=[0.0, -1.0, 1.0])
    main(["predict", str(run), "--input", str(tmp_path / "new.npz"), "--output", str(tmp_path / "a.nc")])  # fmt: skip
    with xr.open_dataset(tmp_path / "a.nc") as forecast:
        assert forecast["u"].shape == (3, 24)
        assert np.isfinite(forecast["u"]).all()


def test_data_info_lists_what_may_be_an_input_and_its_flag(tmp_path, capsys):
    main(["data", "info", str(driven(tmp_path / "driven.nc", num_times=40))])
    printed = capsys.readouterr().out
    assert "depth: a field without a time axis (--static depth adds it as an input)" in printed
    assert "inflow: one value per time (--forcing inflow adds it as an input)" in printed
    assert "--time-features day year adds the time as an input" in printed


@pytest.mark.thorough
@pytest.mark.parametrize("flags", [[], ["--predict", "state"], ["--periodic", "x", "y"]])
def test_maps_without_coordinates_are_scored_at_another_resolution(tmp_path, capsys, flags):
    for count in (16, 32):
        # Both grids end at the same places, unless they are periodic.
        x = np.arange(count) / (count if "--periodic" in flags else count - 1)
        scale = np.random.default_rng(0).normal(size=(40, 1, 1))
        fields = 3 + scale * np.sin(2 * np.pi * x[:, None]) * np.cos(2 * np.pi * x)
        np.savez(tmp_path / f"{count}.npz", a=fields, u=fields**2)
    run = tmp_path / "run"
    main(["train", "--data", str(tmp_path / "16.npz"), "--inputs", "a", "--var", "u", *SIZES, *flags, "--out", str(run)])  # fmt: skip
    scores = {}
    for count in (16, 32):
        capsys.readouterr()
        main(["evaluate", str(run), "--data", str(tmp_path / f"{count}.npz")])
        note = "the 32 x 32 sites are taken for the region of the 16 x 16 of training"
        assert (note in capsys.readouterr().out) == (count == 32)
        results = Results.load(run / f"on-{count}" / "results.json")
        scores[count] = results.per_variable["model"]["u"]
    assert scores[32] == pytest.approx(scores[16], rel=0.15)
    main(["predict", str(run), "--input", str(tmp_path / "32.npz"), "--output", str(tmp_path / "a.nc")])  # fmt: skip
    with xr.open_dataset(tmp_path / "a.nc") as forecast:
        assert forecast["u"].shape == (40, 32, 32)
