"""Inputs beside the state decide toy problems: with them the error is small, without it is large."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.forcing_config import ForcingConfig
from gpo.data.inputs import notes, open_with_forcings
from gpo.data.readers.base import ReadOptions
from gpo.evaluation.rollout import make_rollouts
from gpo.evaluation.score import evaluate
from gpo.forecast.examples import TimeSliceExamples, collate
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.predict import Forecasts
from gpo.runs import read_data
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.objective import training_losses
from gpo.training.setup import make_task, new_forecaster, split_of
from tests.conftest import PlainModel

SIZES = {
    "gpo": {"hidden_dim": 8, "num_layers": 1, "num_gaussians": 2},
    "fno": {
        "model": "fno",
        "widths": (8, 8, 8),
        "modes": (6, 6),
        "head": (16,),
        "learning_rate": 1e-2,
    },
}
TIMES = 120


def driven(path, num_times=TIMES):
    """A field that is half of the last one, plus a series, times a static field, plus a forcing."""
    generator = np.random.default_rng(0)
    x = np.arange(16) / 16
    depth, inflow = generator.normal(size=16), 3 + generator.normal(size=num_times)
    flux = generator.normal(size=(num_times, 1)) * np.sin(2 * np.pi * x + 1)
    state = np.zeros((num_times, 16))
    for number in range(1, num_times):
        state[number] = 0.5 * state[number - 1] + depth * inflow[number] + flux[number]
    dataset = xr.Dataset(
        {
            "u": (("time", "x"), state, {"units": "m"}),
            "flux": (("time", "x"), flux),
            "depth": (("x",), depth, {"units": "km"}),
            "same": (("time", "x"), np.tile(depth, (num_times, 1))),
            "inflow": (("time",), inflow),
        },
        {"time": ("time", np.arange(num_times) * 6.0, {"units": "hours since 2020-01-01"}), "x": x},
    )
    dataset.to_netcdf(path)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return driven(tmp_path_factory.mktemp("driven") / "driven.nc")


ALL = {"static": ("depth",), "forcing": ("inflow", "flux")}


def opened(path, *, var=("u",), **chosen):
    return open_with_forcings(path, ReadOptions(variables=var), ForcingConfig(**chosen))


def error_of(path, folder, **settings):
    config = RunConfig.of(data=str(path), steps=250, epochs=1000, noise=0.0, **settings)
    data = read_data(config)
    forecaster = train(data, config, folder, is_quiet=True)
    results = evaluate(forecaster, data, split_of(data, config), scope="one-step")
    return results.one_step["model"]["vrmse"]


@pytest.mark.thorough
@pytest.mark.parametrize("model", ["gpo", "fno"])
def test_what_forcings_decide_is_learned_with_them_and_not_without(model, file, tmp_path):
    given = {**SIZES[model], "var": ("u",)}
    without = error_of(file, tmp_path / "without", **given)
    with_all = error_of(file, tmp_path / "with", **given, **ALL)
    assert with_all < 0.35 * without


class Last(PlainModel):
    """Predicts the first input of the last frame: a forcing; remembers what it was given."""

    def __init__(self, num_inputs):
        super().__init__()
        self.num_inputs, self.given = num_inputs, []

    def forward(self, values, coords, *, weights=None):
        self.given.append(values)
        return values[..., -self.num_inputs : -self.num_inputs + 1]


def telling(data, config):
    """A forecaster that says the first forcing it is given for the next time."""
    task = make_task(data, split_of(data, config), config)
    num_inputs = len(task.inputs)
    plain = {"input_mean": (0.0,) * num_inputs, "input_std": (1.0,) * num_inputs}
    plain |= {"predict": "state", "output_mean": (0.0,), "output_std": (1.0,)}
    return Forecaster(Last(num_inputs), replace(task, **plain))


@pytest.mark.parametrize(("history", "lead"), [(1, 1), (2, 3)])
def test_rollouts_have_the_forcing_of_every_time_they_predict(file, history, lead):
    data = opened(file, forcing=("inflow", "flux"))
    config = RunConfig.of(data="driven", history=history, lead=lead)
    forecaster = telling(data, config)
    samples = split_of(data, config).test
    inflow = xr.load_dataset(file)["inflow"].values
    found = make_rollouts(forecaster, data, samples[:1] + samples[-1:], 3, None)
    number = found.errors["model"].shape[1]
    last = samples[0].last + number * lead
    np.testing.assert_allclose(found.forecast[0][:, 0], inflow[last], rtol=1e-5)


def test_the_first_step_has_the_forcing_of_its_target(file):
    data = opened(file, forcing=("flux",), static=("depth",))
    windows = split_of(data, RunConfig.of(data="driven", history=2)).training
    example = TimeSliceExamples(data, windows)[5]
    stored = xr.load_dataset(file)
    assert data.forcings[0].units == "km"
    np.testing.assert_allclose(
        example.frames[0, :, :, 0], np.tile(stored["depth"], (2, 1)), rtol=1e-6
    )
    np.testing.assert_allclose(
        example.frames[0, :, :, 1],
        stored["flux"][windows[5].last : windows[5].target + 1],
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        example.frames[0, :, :, 2], stored["u"][windows[5].first : windows[5].last + 1], rtol=1e-5
    )


def test_rollouts_that_are_trained_have_the_forcing_of_every_step(file):
    data, config = opened(file, forcing=("inflow",)), RunConfig.of(data="driven", lead=2)
    windows = split_of(data, config).training
    examples = TimeSliceExamples(data, windows, num_steps=3)
    forecaster = telling(data, config)
    training_losses(forecaster, collate([examples[0], examples[4]]), num_steps=3)
    inflow = xr.load_dataset(file)["inflow"].values
    for step, values in enumerate(forecaster.model.given):
        targets = [examples.windows[n].target + 2 * step for n in (0, 4)]
        np.testing.assert_allclose(values[:, 3, 0], inflow[targets], rtol=1e-5)


def untrained(path, **chosen):
    config = RunConfig.of(data=str(path), var=("u",), **SIZES["gpo"], **chosen)
    data = read_data(config)
    return data, new_forecaster(data, split_of(data, config), config).eval()


def test_forecasts_start_at_the_last_state_and_need_forcings_after_it(file, tmp_path):
    data, forecaster = untrained(file, **ALL)
    with pytest.raises(DataError, match=r"`inflow` must be known until 720 h, 121 frames in all"):
        Forecasts(forecaster, data, 1)
    stored = xr.load_dataset(file, decode_times=False)
    stored["u"][-3:] = np.nan
    stored.to_netcdf(tmp_path / "later.nc")
    later = opened(tmp_path / "later.nc", **ALL)
    forecasts = Forecasts(forecaster, later, 3)
    np.testing.assert_allclose(forecasts.layout.times, later.time[-3:])
    with pytest.raises(DataError, match="must be known until 720 h"):
        Forecasts(forecaster, later, 4)


def test_a_forecast_from_the_file_is_the_rollout_of_the_test_split(file, tmp_path):
    from gpo.data.query_points import blocks
    from gpo.data.writers.netcdf import new_forecast_file

    data, forecaster = untrained(file, **ALL, history=2)
    window = split_of(data, RunConfig.of(data="driven", history=2)).test[0]
    expected = make_rollouts(forecaster, data, [window, replace(window, first=window.first + 3, last=window.last + 3, target=window.target + 3)], 3, None)  # fmt: skip
    steps = expected.errors["model"].shape[1]
    stored = xr.load_dataset(file, decode_times=False).isel(time=slice(0, window.last + steps + 1))
    stored["u"][window.last + 1 :] = np.nan
    stored.to_netcdf(tmp_path / "cut.nc")
    forecasts = Forecasts(forecaster, opened(tmp_path / "cut.nc", **ALL), steps)
    with new_forecast_file(tmp_path / "out.nc", forecasts.layout) as writer:
        list(forecasts.write(writer, blocks(forecasts.layout.points.shape, (16,))))
    found = xr.load_dataset(tmp_path / "out.nc", decode_times=False)["u"].values
    np.testing.assert_allclose(np.squeeze(found)[-1], expected.forecast[0][:, 0], rtol=1e-5)


def test_a_field_with_a_time_axis_is_static_where_it_never_changes(file):
    found = opened(file, static=("same",)).forcing_frames(0, np.array([7]))
    np.testing.assert_allclose(
        found, opened(file, static=("depth",)).forcing_frames(0, np.array([7]))
    )
    with pytest.raises(DataError, match=r"`flux` changes in time.*--forcing flux"):
        opened(file, static=("flux",))


def test_variables_that_are_inputs_are_not_predicted(file):
    data = opened(file, var=(), forcing=("flux",), static=("same",))
    assert [variable.name for variable in data.variables] == ["u"]
    with pytest.raises(DataError, match="are all inputs: name a variable to predict"):
        opened(file, var=("flux",), forcing=("flux",))


def test_names_that_are_no_inputs_are_refused_with_those_that_are(file):
    with pytest.raises(DataError, match=r"`deep` cannot be used.*--static depth.*--forcing inflow"):
        opened(file, static=("deep",))
    with pytest.raises(DataError, match="`sun` cannot be used with --forcing"):
        opened(file, forcing=("sun",))
    with pytest.raises(DataError, match="`nu` must be a parameter of the file"):
        opened(file, parameters=("nu",))
    with pytest.raises(ValueError, match="Each input must be named once, got depth twice"):
        ForcingConfig(static=("depth",), forcing=("depth",))


def test_missing_values_of_inputs_become_their_mean_and_this_is_reported(file, tmp_path):
    stored = xr.load_dataset(file, decode_times=False)
    stored["depth"][2] = np.nan
    stored["flux"][:, 3] = np.nan
    stored.to_netcdf(tmp_path / "gaps.nc")
    data = opened(tmp_path / "gaps.nc", static=("depth",), forcing=("flux",))
    found = data.forcing_frames(0, np.array([5]))[0]
    assert found[2, 0] == pytest.approx(float(stored["depth"].mean()), rel=1e-5)
    assert found[3, 1] == pytest.approx(float(stored["flux"][5].mean()), rel=1e-4)
    assert not data.geometry().is_masked.any()
    first, second = notes(data)
    assert first == "depth is missing at 1 sites, which are filled with its mean"
    assert second.startswith("flux is missing at 1 sites")
    stored["inflow"][4] = np.nan
    stored.to_netcdf(tmp_path / "hole.nc")
    with pytest.raises(DataError, match="`inflow` must be known at every time, got NaN"):
        opened(tmp_path / "hole.nc", forcing=("inflow",))


def test_static_fields_come_from_a_larger_grid_at_the_same_places(tmp_path):
    def grid(latitude, longitude, num_times, value):
        shape = (num_times, len(latitude), len(longitude))
        place = 100 * np.array(latitude)[:, None] + np.array(longitude)
        return xr.Dataset(
            {"z": (("time", "lat", "lon"), np.broadcast_to(place, shape) + value)},
            {
                "time": ("time", np.arange(num_times), {"units": "hours since 2020-01-01"}),
                "lat": ("lat", np.array(latitude, float), {"units": "degrees_north"}),
                "lon": ("lon", np.array(longitude, float), {"units": "degrees_east"}),
            },
        )

    grid(range(-60, 61, 5), range(0, 360, 5), 1, 0.0).to_netcdf(tmp_path / "world.nc")
    part = grid(range(20, -1, -5), range(-10, 11, 5), 8, 0.0).rename(z="t")
    part["t"] = part["t"] + np.arange(8)[:, None, None]
    part.to_netcdf(tmp_path / "part.nc")
    data = opened(tmp_path / "part.nc", var=("t",), static=("z",), static_from=str(tmp_path / "world.nc"))  # fmt: skip
    found = data.forcing_frames(0, np.array([0]))[0, :, 0].reshape(5, 5)
    np.testing.assert_allclose(found[:, 2:], [[100 * up + along for along in (0, 5, 10)] for up in range(20, -1, -5)])  # fmt: skip
    np.testing.assert_allclose(found[:, 0], [100 * up + 350 for up in range(20, -1, -5)])
    world = grid(range(-60, 61, 5), range(0, 360, 5), 1, 0.0)
    world.isel(time=0, drop=True).to_netcdf(tmp_path / "timeless.nc")
    same = opened(tmp_path / "part.nc", var=("t",), static=("z",), static_from=str(tmp_path / "timeless.nc"))  # fmt: skip
    np.testing.assert_allclose(same.forcing_frames(0, np.array([0]))[0, :, 0], found.ravel())
    grid(range(-60, 61, 5), range(2, 360, 5), 1, 0.0).to_netcdf(tmp_path / "shifted.nc")
    with pytest.raises(DataError, match=r"`z` must be known at the sites of the data; 25 of 25"):
        opened(tmp_path / "part.nc", var=("t",), static=("z",), static_from=str(tmp_path / "shifted.nc"))  # fmt: skip


def test_what_is_selected_of_the_state_need_not_be_a_dimension_of_a_forcing(file, tmp_path):
    stored = xr.load_dataset(file, decode_times=False)
    levels = xr.DataArray([500.0, 850.0], dims="level", name="level")
    stored["u"] = stored["u"] * (1 + 0 * levels)
    stored.assign_coords(level=levels).to_netcdf(tmp_path / "levels.nc")
    options = ReadOptions(variables=("u",), select={"level": "500"})
    data = open_with_forcings(tmp_path / "levels.nc", options, ForcingConfig(**ALL))
    found = data.forcing_frames(0, np.array([4]))
    np.testing.assert_allclose(found, opened(file, **ALL).forcing_frames(0, np.array([4])))


def test_static_fields_that_a_file_lacks_are_those_of_the_run(file, tmp_path):
    stored = xr.load_dataset(file, decode_times=False)
    stored.drop_vars(["depth", "same"]).to_netcdf(tmp_path / "bare.nc")
    chosen = ForcingConfig(static=("depth",))
    with pytest.raises(DataError, match="`depth` cannot be used with --static"):
        open_with_forcings(tmp_path / "bare.nc", ReadOptions(variables=("u",)), chosen)
    data = open_with_forcings(
        tmp_path / "bare.nc", ReadOptions(variables=("u",)), chosen, reserve=file
    )
    found = data.forcing_frames(0, np.array([0]))[0, :, 0]
    np.testing.assert_allclose(found, stored["depth"], rtol=1e-6)


def test_coarser_and_finer_sites_have_their_own_forcings(file):
    from gpo.data.coarsen import coarsen
    from gpo.evaluation.transfer import refined

    data = opened(file, **ALL)
    whole = data.forcing_frames(0, np.array([3, 9]))
    np.testing.assert_allclose(coarsen(data, 2).forcing_frames(0, np.array([3, 9])), whole[:, ::2])
    geometry = data.geometry()
    closed = replace(geometry, domain=replace(geometry.domain, periodic=(True,)))
    finer = refined(replace(data, geometries=(closed,))).forcing_frames(0, np.array([3, 9]))
    np.testing.assert_allclose(finer[:, ::2], whole, atol=1e-5)


def test_time_features_of_earlier_runs_are_refused_with_their_new_place(tmp_path):
    (tmp_path / "config.yaml").write_text("task: {time_features: day}\n")
    with pytest.raises(ValueError, match=r"gpo 0.3.0, whose runs.*`forcings: {time_features: .day"):
        RunConfig.load(tmp_path / "config.yaml")


def test_settings_of_forcings_survive_a_file(tmp_path):
    config = RunConfig.of(data="a.nc", **ALL, time_features=("day", "year"), parameters=("nu",))
    config.save(tmp_path / "config.yaml")
    assert RunConfig.load(tmp_path / "config.yaml") == config
