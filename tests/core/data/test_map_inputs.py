"""Static maps with named inputs, and additional inputs among named arrays."""

import numpy as np
import pytest
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.forcing_config import ForcingConfig
from gpo.data.inputs import open_with_forcings
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.evaluation.score import evaluate
from gpo.runs import read_data
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.setup import split_of
from tests.core.data.files import pair

X = np.linspace(0, 1, 24)


def family(count=90):
    """Fields that depend on two parameters."""
    generator = np.random.default_rng(0)
    mu, re = generator.uniform(0.5, 2, count), generator.normal(size=count)
    u = mu[:, None] * np.sin(2 * np.pi * X) + re[:, None] * np.cos(5 * X) + 4
    return {"x": X, "mu": mu, "re": re, "u": u}


def as_netcdf(path):
    arrays = family()
    fields = {"u": (("case", "x"), arrays["u"], {"units": "m"}), "mu": ("case", arrays["mu"])}
    xr.Dataset({**fields, "re": ("case", arrays["re"])}, {"x": X}).to_netcdf(path)
    return path


def as_arrays(path):
    np.savez(path, **family())
    return path


def as_table(path):
    arrays = family()
    mu = np.stack([arrays.pop("mu"), arrays.pop("re")], -1)
    np.savez(path, **arrays, mu=mu)
    return path


@pytest.mark.parametrize(
    ("write", "name", "inputs", "names"),
    [
        (as_netcdf, "a.nc", ("mu", "re"), ["mu", "re"]),
        (as_arrays, "a.npz", ("mu", "re"), ["mu", "re"]),
        (as_arrays, "a.npz", ("re",), ["re"]),
        (as_table, "a.npz", ("mu",), ["mu_0", "mu_1"]),
    ],
)
@pytest.mark.parametrize("var", [(), ("u",)])
def test_scalars_of_a_sample_are_mapped_to_its_field(tmp_path, write, name, inputs, names, var):
    path = write(tmp_path / name)
    data = open_data(path, ReadOptions(inputs=inputs, variables=var))
    assert not data.has_time
    assert [variable.name for variable in data.inputs] == names
    assert [variable.name for variable in data.outputs] == ["u"]
    values, outputs = pair(data, 7)
    arrays = family()
    columns = {"mu": "mu", "re": "re", "mu_0": "mu", "mu_1": "re"}
    for column, label in zip(values.T, names, strict=True):
        np.testing.assert_allclose(column, arrays[columns[label]][7])
    np.testing.assert_allclose(outputs[:, 0], arrays["u"][7])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_dim": 8, "num_layers": 1, "num_gaussians": 2},
        {
            "model": "fno",
            "widths": (8, 8, 8),
            "modes": (6, 6),
            "head": (16,),
            "learning_rate": 1e-2,
        },
    ],
    ids=["gpo", "fno"],
)
def test_a_field_is_learned_from_its_parameters(tmp_path, sizes):
    errors = {}
    path = as_arrays(tmp_path / "a.npz")
    for inputs in (("mu", "re"), ("mu",)):
        config = RunConfig.of(
            data=str(path), inputs=inputs, steps=250, noise=0.0, epochs=1000, **sizes
        )
        data = read_data(config)
        forecaster = train(data, config, tmp_path / "-".join(inputs), is_quiet=True)
        results = evaluate(forecaster, data, split_of(data, config), scope="one-step")
        errors[inputs] = results.one_step["model"]["rmse"]
    assert errors["mu", "re"] < 0.2 * errors["mu",]


def test_fields_and_scalars_may_be_inputs_together(tmp_path):
    arrays = family()
    np.savez(tmp_path / "a.npz", **arrays, source=2 * arrays["u"])
    data = open_data(tmp_path / "a.npz", ReadOptions(inputs=("source", "mu"), variables=("u",)))
    assert [variable.name for variable in data.inputs] == ["mu", "source"]
    inputs, outputs = pair(data, 3)
    np.testing.assert_allclose(inputs[:, 1:], 2 * outputs)
    np.testing.assert_allclose(inputs[:, 0], arrays["mu"][3])


def test_an_ambiguous_array_is_refused_with_both_flags(tmp_path):
    with pytest.raises(
        DataError, match=r"samples: `--inputs mu re`; if they are times: `--forcing mu re`"
    ):
        open_data(as_arrays(tmp_path / "a.npz"))


def test_unknown_inputs_and_layouts_with_fixed_inputs_are_refused(tmp_path):
    with pytest.raises(DataError, match="`nu` is not in the file, which has"):
        open_data(as_arrays(tmp_path / "a.npz"), ReadOptions(inputs=("nu",)))
    with pytest.raises(DataError, match="`nu` is not in the file, which has"):
        open_data(as_netcdf(tmp_path / "a.nc"), ReadOptions(inputs=("nu",)))
    np.savez(tmp_path / "b.npz", **family(), other=np.zeros(7))
    with pytest.raises(
        DataError, match=r"`other` has shape \(7,\); an input must have a first axis of 90 samples"
    ):
        open_data(tmp_path / "b.npz", ReadOptions(inputs=("other",), variables=("u",)))


def test_parameters_can_be_inputs_of_recognised_maps(tmp_path):
    arrays = family()
    np.savez(tmp_path / "a.npz", a=arrays["u"], u=arrays["u"] ** 2, mu=arrays["mu"])
    data = open_with_forcings(tmp_path / "a.npz", ReadOptions(), ForcingConfig(parameters=("mu",)))
    assert [variable.name for variable in data.inputs] == ["mu", "a"]
    np.testing.assert_allclose(pair(data, 5)[0][:, 0], arrays["mu"][5])
    with pytest.raises(DataError, match="holds static maps, which have no time"):
        open_with_forcings(tmp_path / "a.npz", ReadOptions(), ForcingConfig(forcing=("mu",)))


def test_additional_inputs_are_recognised_by_their_shapes(tmp_path):
    generator = np.random.default_rng(0)
    stored = {
        "x": X, "t": np.arange(9) * 0.1, "w": generator.normal(size=(5, 9, 24)),
        "nu": generator.normal(size=5), "porosity": generator.normal(size=(5, 24)),
        "depth": generator.normal(size=24), "wind": generator.normal(size=9),
        "inflow": generator.normal(size=(5, 9)),
    }  # fmt: skip
    np.savez(tmp_path / "a.npz", **stored)
    data = open_data(tmp_path / "a.npz")
    assert [variable.name for variable in data.variables] == ["w"]
    assert [*data.parameters] == ["nu"]
    kinds = {part.variable.name: part.kind for part in data.candidates}
    expected = {"porosity": "static", "depth": "static", "wind": "series", "inflow": "series"}
    assert kinds == expected
    chosen = ForcingConfig(
        static=("porosity", "depth"), forcing=("wind", "inflow"), parameters=("nu",)
    )
    data = open_with_forcings(tmp_path / "a.npz", ReadOptions(), chosen)
    forcings = data.forcing_frames(3, np.array([2, 6]))
    for number, values in enumerate((
        stored["porosity"][3], stored["depth"], stored["wind"][[2, 6], None],
        stored["inflow"][3, [2, 6], None], stored["nu"][3],
    )):  # fmt: skip
        np.testing.assert_allclose(
            forcings[..., number], np.broadcast_to(values, (2, 24)), rtol=1e-6
        )
    assert [part.name for part in data.forcings] == ["porosity", "depth", "wind", "inflow", "nu"]
