"""Particle clouds as files: a loaded cloud is the saved one."""

import base64
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import xarray as xr

from gpo import CheckpointError, ParticleCloud
from gpo.inspect.cloud import COLUMNS
from tests.conftest import DOMAINS
from tests.core.model.test_cloud import random_cloud

VTK_TYPES = {"Float32": "<f4", "Float64": "<f8", "Int32": "<i4"}
PLY_TYPES = {"float": "<f4", "double": "<f8", "int": "<i4"}


def single(cloud):
    changed = {name: getattr(cloud, name) for name in COLUMNS}
    changed |= {name: changed[name].float() for name in ("centers", "scales", "weights")}
    return ParticleCloud(**changed, domain=cloud.domain)


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_a_saved_cloud_is_the_same_bit_by_bit(tmp_path, domain, suffix):
    for name, cloud in {"double": random_cloud(domain), "single": single(random_cloud(domain))}.items():  # fmt: skip
        path = tmp_path / f"new/{name}{suffix}"
        cloud.save(path)
        loaded = ParticleCloud.load(path)
        assert loaded.domain == domain
        for column in COLUMNS:
            assert getattr(loaded, column).dtype == getattr(cloud, column).dtype
            assert torch.equal(getattr(loaded, column), getattr(cloud, column))
    assert {file.suffix for file in (tmp_path / "new").iterdir()} == {suffix}


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_no_particles_are_saved_and_loaded_too(tmp_path, suffix):
    path = tmp_path / f"none{suffix}"
    random_cloud().above(2.0).save(path)
    assert len(ParticleCloud.load(path)) == 0


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_a_file_says_what_its_variables_are(tmp_path, suffix):
    path = tmp_path / f"particles{suffix}"
    random_cloud(DOMAINS["square"]).save(path, length_units="km")
    with xr.open_dataset(path, engine="netcdf4" if suffix == ".nc" else "zarr") as dataset:
        assert dataset.attrs["Conventions"] == "CF-1.8"
        assert dataset.attrs["title"].startswith("Gaussian particles")
        assert set(dataset.data_vars) == {"weight", "scale_x", "scale_y"}
        assert set(dataset.coords) == {"center_x", "center_y", "sample", "site", "gaussian"}
        assert all(variable.attrs["long_name"] for variable in dataset.variables.values())
        assert dataset["center_x"].attrs["units"] == "km"
        assert dataset["scale_y"].attrs["units"] == "km"
        assert dataset["weight"].attrs["units"] == "1"
        # CF knows no whole numbers of 64 bits, and coordinates are never missing.
        assert dataset["site"].dtype == np.int32
        assert all("_FillValue" not in variable.encoding for variable in dataset.variables.values())


def test_on_the_sphere_a_file_has_longitudes_and_latitudes(tmp_path):
    cloud = random_cloud(DOMAINS["patch"])
    cloud.save(tmp_path / "particles.nc")
    with xr.open_dataset(tmp_path / "particles.nc") as dataset:
        longitude, latitude = (dataset[f"center_{name}"] for name in ("longitude", "latitude"))
        assert longitude.attrs["units"] == "degrees_east"
        assert latitude.attrs["standard_name"] == "latitude"
        np.testing.assert_allclose(np.sin(np.deg2rad(latitude)), cloud.centers[:, 2])
    with pytest.raises(ValueError, match="`length_units` must be '1' on the sphere"):
        cloud.save(tmp_path / "other.nc", length_units="km")


def read_vtp(path):
    """Returns the arrays of a file by element and name, and the attributes of its parts."""
    root = ElementTree.parse(path).getroot()
    assert root.attrib == {"type": "PolyData", "version": "1.0", "byte_order": "LittleEndian", "header_type": "UInt64"}  # fmt: skip
    (piece,) = root.findall("PolyData/Piece")
    arrays = {}
    for element in piece:
        for array in element:
            dtype = VTK_TYPES[array.attrib["type"]]
            if array.attrib["format"] == "ascii":
                values = np.array((array.text or "").split(), dtype)
            else:
                content = base64.b64decode(array.text)
                assert int.from_bytes(content[:8], "little") == len(content) - 8
                values = np.frombuffer(content[8:], dtype)
            width = int(array.attrib.get("NumberOfComponents", 1))
            values = values.reshape(-1, width) if width > 1 else values
            arrays[element.tag, array.attrib["Name"]] = values
    return arrays, piece


@pytest.mark.parametrize("is_text", [True, False])
def test_vtk_points_have_centers_weights_sites_and_footprints(tmp_path, domain, is_text):
    cloud, path = single(random_cloud(domain)), tmp_path / "particles.vtp"
    cloud.export(path, is_text=is_text)
    arrays, piece = read_vtp(path)
    assert piece.attrib["NumberOfPoints"] == piece.attrib["NumberOfVerts"] == str(len(cloud))
    assert piece.find("PointData").attrib == {"Scalars": "weight", "Tensors": "footprint"}
    dim = domain.dim
    points, tensors = arrays["Points", "Points"], arrays["PointData", "footprint"].reshape(-1, 3, 3)
    np.testing.assert_array_equal(points[:, :dim], cloud.centers)
    np.testing.assert_array_equal(points[:, dim:], 0)
    np.testing.assert_array_equal(tensors[:, :dim, :dim], cloud.footprints().tensors)
    np.testing.assert_allclose(tensors, tensors.swapaxes(1, 2), atol=1e-6)
    assert np.abs(tensors[:, dim:]).sum() == 0
    np.testing.assert_array_equal(arrays["PointData", "weight"], cloud.weights)
    np.testing.assert_array_equal(arrays["PointData", "scale"][:, :dim], cloud.scales)
    for name in ("sample", "site", "gaussian"):
        np.testing.assert_array_equal(arrays["PointData", name], getattr(cloud, f"{name}s"))
    np.testing.assert_array_equal(arrays["Verts", "connectivity"], range(len(cloud)))
    np.testing.assert_array_equal(arrays["Verts", "offsets"], range(1, len(cloud) + 1))


def read_ply(path):
    """Returns the format and the columns of a file."""
    header, body = path.read_bytes().split(b"end_header\n", 1)
    lines = header.decode().splitlines()
    assert lines[0] == "ply"
    (count,) = re.findall(r"^element vertex (\d+)$", header.decode(), re.MULTILINE)
    properties = re.findall(r"^property (\w+) (\w+)$", header.decode(), re.MULTILINE)
    dtype = np.dtype([(name, PLY_TYPES[kind]) for kind, name in properties])
    if lines[1] == "format ascii 1.0":
        rows = [tuple(line.split()) for line in body.decode().splitlines()]
        table = np.array(rows, dtype)
    else:
        assert lines[1] == "format binary_little_endian 1.0"
        table = np.frombuffer(body, dtype)
    assert len(table) == int(count)
    return table


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_a_point_cloud_has_centers_scales_and_weights(tmp_path, domain, is_text, precision):
    cloud, path = random_cloud(domain), tmp_path / "particles.ply"
    cloud = single(cloud) if precision == "single" else cloud
    cloud.export(path, is_text=is_text)
    table = read_ply(path)
    assert table.dtype.names == ("x", "y", "z", "scale_x", "scale_y", "scale_z", "weight", "sample", "site", "gaussian")  # fmt: skip
    for axis, name in enumerate("xyz"):
        is_there = axis < domain.dim
        np.testing.assert_array_equal(table[name], cloud.centers[:, axis] if is_there else 0)
        expected = cloud.scales[:, axis] if is_there else 0
        np.testing.assert_array_equal(table[f"scale_{name}"], expected)
    np.testing.assert_array_equal(table["weight"], cloud.weights)
    np.testing.assert_array_equal(table["site"], cloud.sites)


@pytest.mark.parametrize("is_text", [True, False])
def test_no_particles_are_exported_too(tmp_path, is_text):
    empty = random_cloud().above(2.0)
    empty.export(tmp_path / "none.vtp", is_text=is_text)
    empty.export(tmp_path / "none.ply", is_text=is_text)
    assert read_vtp(tmp_path / "none.vtp")[1].attrib["NumberOfPoints"] == "0"
    assert len(read_ply(tmp_path / "none.ply")) == 0


@pytest.mark.parametrize("name", ["a.nc", "a.zarr", "a.vtp", "a.ply"])
def test_a_file_that_is_there_stays_as_it_is(tmp_path, name):
    cloud, path = random_cloud(), tmp_path / name
    write = cloud.save if path.suffix in (".nc", ".zarr") else cloud.export
    path.write_text("content")
    with pytest.raises(ValueError, match=f"{name} exists. Choose another name"):
        write(path)
    assert path.read_text() == "content"


@pytest.mark.parametrize("name", ["a.nc", "a.zarr"])
def test_a_write_that_fails_leaves_nothing(tmp_path, name, monkeypatch):
    def fail(self, path, **settings):
        path.mkdir()
        (path / "half").write_text("")
        raise OSError("disk full")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", fail)
    monkeypatch.setattr(xr.Dataset, "to_zarr", fail)
    with pytest.raises(OSError, match="disk full"):
        random_cloud().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_ending_that_is_not_known_is_named(tmp_path):
    cloud = random_cloud()
    with pytest.raises(ValueError, match=r"`path` must end in .nc or .zarr, got 'a.vtp'"):
        cloud.save(tmp_path / "a.vtp")
    with pytest.raises(ValueError, match=r"`path` must end in .vtp or .ply, got 'a.nc'"):
        cloud.export(tmp_path / "a.nc")
    with pytest.raises(ValueError, match=r"`path` must end in .nc or .zarr, got 'a.ply'"):
        ParticleCloud.load(tmp_path / "a.ply")


def altered(path, change):
    with xr.open_dataset(path, decode_cf=False) as dataset:
        content = change(dataset.load())
    other = path.with_name("altered.nc")
    content.to_netcdf(other)
    return other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.drop_vars("weight"), "variable `weight` is missing"),
        (lambda data: data.drop_vars("center_y"), "variable `center_y` is missing"),
        (lambda data: data.drop_attrs(deep=False), "must hold a ParticleCloud, got none of gpo"),
        (lambda data: data.assign_attrs(gpo_kind="Trace"), "must hold a ParticleCloud, got Trace"),
        (lambda data: data.assign_attrs(domain_lower=[5.0, 5.0]), "`lower` must be finite and below"),
        (lambda data: data.assign(weight=("other", np.ones(3))), r"`weight` must hold numbers along \(particle\), got float64 along \(other\)"),
        (lambda data: data.assign_attrs(domain_upper="far"), "`domain_upper` must be numbers, got 'far'"),
    ],
)  # fmt: skip
def test_what_is_missing_in_a_file_is_named(tmp_path, change, message):
    path = tmp_path / "whole.nc"
    random_cloud().save(path)
    with pytest.raises(CheckpointError, match=message):
        ParticleCloud.load(altered(path, change))


def test_a_file_that_is_no_data_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="there is no such file"):
        ParticleCloud.load(tmp_path / "a.nc")
    (tmp_path / "a.nc").write_text("nothing of the kind")
    with pytest.raises(CheckpointError, match=r"a.nc: cannot be read"):
        ParticleCloud.load(tmp_path / "a.nc")
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(CheckpointError, match=r"a.zarr: "):
        ParticleCloud.load(tmp_path / "a.zarr")
