import numpy as np
import pytest

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.data.query_points import (
    QueryPoints,
    block_shape,
    blocks,
    read_query_points,
    regular_query_points,
)
from gpo.data.rotated_pole import RotatedPole


@pytest.mark.parametrize("shape", [(1,), (17,), (4, 6), (1, 9), (3, 4, 5)])
@pytest.mark.parametrize("most", [1, 2, 5, 7, 20, 1000])
def test_blocks_cover_a_grid_once_in_its_order_and_none_is_too_large(shape, most):
    numbers = np.arange(np.prod(shape)).reshape(shape)
    parts = [numbers[block].ravel() for block in blocks(shape, block_shape(shape, most))]
    assert np.concatenate(parts).tolist() == list(range(numbers.size))
    assert max(len(part) for part in parts) <= most


def geometries():
    latitude, longitude = np.linspace(90, -90, 7), np.arange(12) * 30.0
    up, along = np.meshgrid([50.0, 51, 53], [8.0, 9, 12, 13], indexing="ij")
    x = np.random.default_rng(0).random((9, 2))
    return {
        "globe": Geometry.latitude_longitude(latitude, longitude),
        "patch": Geometry.curvilinear_sphere(up, along),
        "box": Geometry.rectilinear([np.arange(3.0), np.arange(4.0), np.arange(5.0)], periodic=True),
        "points": Geometry.unstructured(x),
        "mesh": Geometry.curvilinear(up, along),
        "rotated": Geometry.latitude_longitude(
            np.array([-2.0, 0, 1]), np.array([3.0, 4]), pole=RotatedPole(39.25, -162.0, 5.0)
        ),
    }  # fmt: skip


@pytest.mark.parametrize("geometry", geometries().values(), ids=geometries().keys())
def test_query_points_of_a_geometry_are_its_sites_in_order(geometry):
    points = QueryPoints.of(geometry)
    for most in (4, 1000):
        parts = blocks(points.shape, block_shape(points.shape, most))
        coords = np.concatenate([points.coords(part) for part in parts])
        np.testing.assert_allclose(coords, geometry.coords, atol=1e-12)


def test_a_large_grid_needs_the_memory_of_its_axes_only():
    globe = geometries()["globe"]
    points = regular_query_points((721_000, 1_440_000), globe)
    assert points.shape == (721_000, 1_440_000)
    block = (slice(360_500, 360_502), slice(360_000, 360_003))
    coords = points.coords(block)
    assert coords.shape == (6, 3)
    # At the equator, a quarter of the way around.
    np.testing.assert_allclose(coords, np.tile([0, 1, 0], (6, 1)), atol=2e-5)


def test_points_of_an_array_stay_on_disk(tmp_path):
    rows = np.random.default_rng(0).uniform(-80, 80, (50, 2)).astype(np.float32)
    np.save(tmp_path / "points.npy", rows)
    points = read_query_points(tmp_path / "points.npy", geometries()["globe"])
    assert isinstance(points.numbers[0], np.memmap)
    expected = Geometry.on_sphere(rows[:, 0], rows[:, 1]).coords
    np.testing.assert_allclose(points.coords((slice(10, 20),)), expected[10:20], atol=1e-12)


def test_points_on_a_rotated_grid_have_geographic_coordinates(tmp_path):
    rotated = geometries()["rotated"]
    np.savetxt(tmp_path / "points.txt", rotated.geographic_degrees(), fmt="%.12f")
    points = read_query_points(tmp_path / "points.txt", rotated)
    np.testing.assert_allclose(points.coords(points.whole), rotated.coords, atol=1e-12)
    finer = regular_query_points((5, 4), rotated)
    assert (finer.names, finer.shape) == (("latitude", "longitude"), (5, 4))
    assert finer.numbers[0].tolist() == [1, 0.25, -0.5, -1.25, -2]


@pytest.mark.parametrize("before", ["", "\n", "\ufeff", "x,y\n", "\ufeffx y\n"])
def test_the_first_point_of_a_text_file_is_kept(tmp_path, before):
    (tmp_path / "points.csv").write_text(f"{before}0.5,0.25\n0.75,0.125\n\n", encoding="utf-8")
    points = read_query_points(tmp_path / "points.csv", geometries()["points"])
    assert points.coords(points.whole).tolist() == [[0.5, 0.25], [0.75, 0.125]]


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("points", "1.5 0.5", r"in the domain of the data, x from \S+ to \S+, y .*; point 2 is 1.5 0.5"),
        ("mesh", "51 7.9", "in the domain of the data, x from 50 to 53, y from 8 to 13; point 2"),
        ("globe", "0 91", "at latitudes from -90 to 90; point 2 is 0 91"),
        ("patch", "100 -20", "near the sites of the data; point 2 is 100 -20"),
        ("rotated", "180 -40", "near the sites of the data; point 2"),
    ],
)  # fmt: skip
def test_points_out_of_the_domain_are_refused(tmp_path, kind, row, message):
    geometry = geometries()[kind]
    inside = geometry.geographic_degrees() if geometry.domain.is_sphere else geometry.coords
    first = " ".join(f"{number:.9g}" for number in inside[0])
    path = tmp_path / "points.txt"
    path.write_text(f"{first}\n{row}\n")
    with pytest.raises(DataError, match=f"queries` must lie {message}"):
        read_query_points(path, geometry)
    np.save(tmp_path / "sites.npy", inside)
    assert read_query_points(tmp_path / "sites.npy", geometry).shape == (len(inside),)


def test_points_anywhere_along_a_periodic_axis_are_taken(tmp_path):
    np.save(tmp_path / "points.npy", np.array([[-7.0, 20, 0.5], [0.0, 0, 0]]))
    assert read_query_points(tmp_path / "points.npy", geometries()["box"]).shape == (2,)
