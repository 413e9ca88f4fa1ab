"""Traces as files: a loaded trace is the saved one."""

from dataclasses import fields

import pytest
import torch
import xarray as xr

from gpo import CheckpointError, Particles, Trace
from tests.conftest import DOMAINS, make_model, random_points

VARIANTS = ("waves", "paper")


def make_trace(domain, **changes):
    model = make_model(domain, num_waves=2, **changes)
    with torch.no_grad():
        return model.trace(torch.randn(2, 12, 2).double(), random_points(domain, 2, 12))


def assert_same(first, second):
    """Compares dataclasses of tensors, or tuples of them, part by part and bit by bit."""
    assert type(first) is type(second)
    if isinstance(first, tuple):
        assert len(first) == len(second)
        for pair in zip(first, second, strict=True):
            assert_same(*pair)
        return
    for field in fields(first):
        actual, expected = getattr(first, field.name), getattr(second, field.name)
        if isinstance(expected, torch.Tensor):
            assert actual.dtype == expected.dtype
            assert torch.equal(actual, expected)
        else:
            assert actual == expected


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["line", "torus", "cube", "patch"])
def test_a_saved_trace_is_the_same_bit_by_bit(tmp_path, name, variant, suffix):
    trace = make_trace(DOMAINS[name], variant=variant)
    trace.save(tmp_path / f"trace{suffix}")
    loaded = Trace.load(tmp_path / f"trace{suffix}")
    assert_same(loaded.particles, trace.particles)
    assert len(loaded.modes) == len(trace.modes) == 2
    for pair in zip(loaded.modes, trace.modes, strict=True):
        assert_same(*pair)
    assert len(loaded.states) == 3
    assert all(torch.equal(*pair) for pair in zip(loaded.states, trace.states, strict=True))
    assert torch.equal(loaded.output, trace.output)
    assert torch.equal(loaded.coords, trace.coords)
    assert loaded.domain == trace.domain
    assert loaded.waves == trace.waves


@pytest.mark.parametrize("variant", VARIANTS)
def test_models_without_layers_or_particles_have_traces_too(tmp_path, variant):
    torus = DOMAINS["torus"]
    without = {"has_gaussian_field": False, "num_transports": 0}
    for number, change in enumerate([{"num_layers": 0}, without]):
        trace = make_trace(torus, variant=variant, **change)
        trace.save(tmp_path / f"{number}.nc")
        loaded = Trace.load(tmp_path / f"{number}.nc")
        assert_same(loaded.particles, trace.particles)
        assert len(loaded.modes) == len(trace.modes)
        assert loaded.waves == trace.waves


def test_waves_on_a_mesh_stay_on_the_mesh(tmp_path):
    square = DOMAINS["square"]
    trace = make_trace(square, variant="waves", mesh_shape=(3, 4))
    trace.save(tmp_path / "trace.nc")
    assert Trace.load(tmp_path / "trace.nc").waves.mesh_shape == (3, 4)


def test_a_trace_of_training_can_be_saved(tmp_path):
    torus = DOMAINS["torus"]
    trace = make_model(torus).trace(torch.randn(1, 5, 2).double(), random_points(torus, 5))
    assert trace.output.requires_grad
    trace.save(tmp_path / "trace.zarr")
    assert torch.equal(Trace.load(tmp_path / "trace.zarr").output, trace.output)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_trace_has_its_sites(variant):
    patch = DOMAINS["patch"]
    model, coords = make_model(patch, variant=variant), random_points(patch, 7)
    trace = model.trace(torch.randn(2, 7, 2).double(), coords)
    assert torch.equal(trace.coords, coords.expand(2, -1, -1))
    assert trace.domain == patch
    (particles,) = trace.particles
    assert isinstance(particles, Particles)
    assert len(particles.cloud(trace.domain)) == 2 * 7 * 5


@pytest.mark.parametrize(
    ("variant", "names"),
    [
        ("waves", {"token", "response", "filtered", "wave_vector", "displacement_mode"}),
        ("paper", {"window", "token", "coupling", "coupled", "filtered"}),
    ],
)
def test_a_file_describes_its_variables(tmp_path, variant, names):
    make_trace(DOMAINS["patch"], variant=variant).save(tmp_path / "trace.nc")
    with xr.open_dataset(tmp_path / "trace.nc") as dataset:
        assert dataset.attrs["Conventions"] == "CF-1.8"
        scales = {"scale_x", "scale_y", "scale_z"}
        assert set(dataset.data_vars) == {"state", "output", "weight", *scales, *names}
        for variable in dataset.variables.values():
            assert variable.attrs["long_name"]
            assert variable.attrs["units"]
        assert set(dataset["output"].coords) == {"site_x", "site_y", "site_z", "site_longitude", "site_latitude"}  # fmt: skip
        assert dataset["center_latitude"].dims == ("transport", "sample", "site", "gaussian")


def test_a_missing_variable_is_named(tmp_path):
    path, other = tmp_path / "trace.nc", tmp_path / "other.nc"
    make_trace(DOMAINS["torus"], variant="waves").save(path)
    with xr.open_dataset(path, decode_cf=False) as dataset:
        dataset.load().drop_vars("response").to_netcdf(other)
    with pytest.raises(CheckpointError, match=r"other.nc: variable `response` is missing"):
        Trace.load(other)
    with pytest.raises(ValueError, match=r"trace.nc exists. Choose another name"):
        Trace.load(path).save(path)
    with pytest.raises(ValueError, match=r"`path` must end in .nc or .zarr, got 'trace.vtp'"):
        Trace.load(path).save(tmp_path / "trace.vtp")
