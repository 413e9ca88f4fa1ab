import numpy as np
import pytest
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.query_points import QueryPoints
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.readers.ugrid import NO_CORNER, edge_areas, face_areas, face_middles
from gpo.data.writers.layout import ForecastLayout
from gpo.data.writers.netcdf import new_forecast_file, write_forecast
from gpo.data.writers.table import new_table
from gpo.data.writers.zarr import ForecastStore
from tests.core.data.readers.gridded_files import read, save

# Two squares and a triangle: areas 1, 2 and 1/2.
NODES = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [3, 0], [3, 1], [0, 2.0]])
FACES = np.array([[0, 1, 2, 3], [1, 4, 5, 2], [3, 2, 6, NO_CORNER]])
EDGES = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [1, 4], [4, 5], [5, 2], [2, 6], [6, 3]])


def ugrid(start=0, fill=-999, is_turned=False, **topology):
    faces = np.where(FACES == NO_CORNER, fill, FACES + start)
    dims = ("corner", "face") if is_turned else ("face", "corner")
    attributes = {
        "cf_role": "mesh_topology", "topology_dimension": 2, "node_coordinates": "px py",
        "face_node_connectivity": "faces", "edge_node_connectivity": "edges",
        **({"face_dimension": "face"} if is_turned else {}), **topology,
    }  # fmt: skip
    fields = {
        f"at_{kind}": (("time", kind), np.arange(2.0 * count).reshape(2, count))
        for kind, count in (("node", 7), ("face", 3), ("edge", 9))
    }
    return xr.Dataset(
        {
            "mesh": ((), 0, attributes),
            "faces": (dims, faces.T if is_turned else faces, {"start_index": start, "_FillValue": fill}),
            "edges": (("edge", "two"), EDGES + start, {"start_index": start}),
            "px": ("node", NODES[:, 0]),
            "py": ("node", NODES[:, 1]),
            **fields,
        },
        {"time": ("time", [0.0, 1.0])},
    )  # fmt: skip


def test_areas_of_faces_and_edges_are_those_of_the_plane():
    np.testing.assert_allclose(face_areas(FACES, NODES), [1, 2, 0.5])
    np.testing.assert_allclose(face_middles(FACES, NODES)[2], [1 / 3, 4 / 3])
    areas = edge_areas(FACES, NODES, EDGES)
    assert areas.sum() == pytest.approx(3.5)
    # The edge between two squares gets a quarter of both.
    assert areas[1] == pytest.approx(1 / 4 + 2 / 4)
    assert areas[7] == pytest.approx(0.5 / 3)


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("is_turned", [False, True])
def test_sites_of_a_mesh_are_its_nodes_faces_or_edges(tmp_path, start, is_turned):
    path = save(tmp_path / "a.nc", ugrid(start, is_turned=is_turned))
    nodes = read(path, "at_node").geometry()
    np.testing.assert_array_equal(nodes.coords, NODES)
    assert len(nodes.triangles) == 5
    assert nodes.weights.sum() == pytest.approx(1)
    faces = read(path, "at_face").geometry()
    np.testing.assert_allclose(faces.coords, face_middles(FACES, NODES))
    np.testing.assert_allclose(faces.weights, np.array([1, 2, 0.5]) / 3.5)
    edges = read(path, "at_edge")
    np.testing.assert_allclose(edges.geometry().coords[4], [2, 0])
    assert edges.frames(0).shape == (2, 9, 1)


def test_faces_may_have_coordinates_of_their_own(tmp_path):
    dataset = ugrid(face_coordinates="fx fy")
    dataset = dataset.assign(fx=("face", [0.4, 2.0, 0.3]), fy=("face", [0.5, 0.5, 1.2]))
    geometry = read(save(tmp_path / "a.nc", dataset), "at_face").geometry()
    np.testing.assert_array_equal(geometry.coords[0], [0.4, 0.5])


def test_a_mesh_of_degrees_lies_on_the_sphere(tmp_path):
    dataset = ugrid()
    dataset["px"].attrs["units"], dataset["py"].attrs["units"] = "degrees_east", "degrees_north"
    geometry = read(save(tmp_path / "a.nc", dataset), "at_face").geometry()
    assert geometry.domain.is_sphere
    np.testing.assert_allclose(geometry.geographic_degrees()[0], [0.5, 0.5], atol=1e-3)
    np.testing.assert_allclose(geometry.weights, np.array([1, 2, 0.5]) / 3.5, atol=1e-3)


def test_corners_that_are_no_nodes_are_refused(tmp_path):
    dataset = ugrid(1)
    dataset["faces"].attrs["start_index"] = 3
    with pytest.raises(
        DataError, match="`faces` must name nodes 3 to 9, got 1 to 7; check start_index"
    ):
        read(save(tmp_path / "a.nc", dataset), "at_face")
    with pytest.raises(DataError, match="`mesh` is a mesh whose node_coordinates must name var"):
        read(save(tmp_path / "b.nc", ugrid(node_coordinates="qx qy")), "at_node")


def test_points_without_a_mesh_are_found_by_their_names_or_refused(tmp_path):
    columns = {"x_elem": ("p", NODES[:, 0]), "y_elem": ("p", NODES[:, 1])}
    series = {"q": (("time", "p"), np.zeros((2, 7)))}
    dataset = xr.Dataset({**series, **columns}, {"time": [0.0, 1.0]})
    np.testing.assert_array_equal(
        read(save(tmp_path / "a.nc", dataset), "q").geometry().coords, NODES
    )
    path = save(tmp_path / "b.nc", dataset.rename(x_elem="one", y_elem="two"))
    with pytest.raises(
        DataError, match=r"`one` and other variables have one value per `p`.*--coords one two"
    ):
        read(path, "q")


@pytest.mark.parametrize("kind", ["node", "face", "edge"])
@pytest.mark.parametrize("is_sphere", [False, True])
@pytest.mark.parametrize("suffix", [".nc", ".zarr", ".csv"])
def test_a_forecast_on_a_mesh_is_read_back_with_its_sites_and_weights(
    tmp_path, kind, is_sphere, suffix
):
    dataset = ugrid()
    if is_sphere:
        dataset["px"].attrs["units"], dataset["py"].attrs["units"] = "degrees_east", "degrees_north"
    # A site that is masked stays so.
    dataset[f"at_{kind}"][:, 1] = np.nan
    data = read(save(tmp_path / "a.nc", dataset), f"at_{kind}")
    geometry, path = data.geometry(), tmp_path / f"next{suffix}"
    layout = ForecastLayout(QueryPoints.of(geometry), data.variables, 1, np.array([2.0, 3.0]), "s")
    if suffix == ".zarr":
        writer = ForecastStore(path, layout, layout.points.shape, {})
        for step in range(2):
            writer.write(layout.index(0, step, (slice(None),)), data.frames(0)[step])
        writer.finish()
    else:
        with (new_table if suffix == ".csv" else new_forecast_file)(path, layout) as writer:
            for step in range(2):
                writer.write(layout.index(0, step, (slice(None),)), data.frames(0)[step])
    again = open_data(path, ReadOptions())
    assert [variable.name for variable in again.variables] == [f"at_{kind}"]
    result, order = again.geometry(), slice(None)
    if suffix == ".csv":
        # A table has no order of its own.
        order = np.argmin(
            np.linalg.norm(geometry.coords[:, None] - result.coords[None], axis=-1), axis=1
        )
    np.testing.assert_allclose(result.coords[order], geometry.coords, atol=1e-8)
    np.testing.assert_allclose(result.weights[order], geometry.weights, rtol=1e-8)
    np.testing.assert_allclose(again.frames(0)[:, order], data.frames(0))


def test_a_region_of_mpas_is_in_radians_without_units(tmp_path):
    columns = {"lonCell": ("nCells", 0.2 + NODES[:, 0] / 30), "latCell": ("nCells", 0.8 + NODES[:, 1] / 30)}  # fmt: skip
    field = {"q": (("Time", "nCells"), np.zeros((2, 7)))}
    dataset = xr.Dataset({**field, **columns}, {"Time": [0.0, 1.0]})
    dataset["Time"].attrs["units"] = "hours since 2000-01-01"
    degrees = read(save(tmp_path / "a.nc", dataset), "q").geometry().geographic_degrees()
    np.testing.assert_allclose(degrees[4], np.rad2deg([0.3, 0.8]))


def test_points_on_a_line_are_where_their_only_coordinate_is(tmp_path):
    x = np.array([0.0, 0.1, 0.5, 2.0, 1.0])
    series = {"q": (("time", "p"), np.zeros((2, 5))), "node_x": ("p", x)}
    path = save(tmp_path / "a.nc", xr.Dataset(series, {"time": [0.0, 1.0]}))
    data = read(path, "q")
    np.testing.assert_array_equal(data.geometry().coords[:, 0], x)
    # So is a forecast on them.
    write_forecast(tmp_path / "b.nc", np.zeros((1, 2, 5, 1)), data.geometry(), data.variables, np.arange(2.0))  # fmt: skip
    np.testing.assert_array_equal(read(tmp_path / "b.nc", "q").geometry().coords[:, 0], x)


def test_points_are_weighted_by_the_cell_areas_of_the_file(tmp_path):
    columns = {"x_elem": ("p", NODES[:, 0]), "y_elem": ("p", NODES[:, 1])}
    field = (("time", "p"), np.zeros((2, 7)), {"cell_measures": "area: size"})
    area = np.array([1.0, 2, 3, 4, 5, 6, 0])
    dataset = xr.Dataset({"q": field, **columns, "size": ("p", area)}, {"time": [0.0, 1.0]})
    data = read(save(tmp_path / "a.nc", dataset), "q")
    np.testing.assert_allclose(data.geometry().weights, area / 21)
    assert "size" not in [candidate.variable.name for candidate in data.candidates]
    del dataset["q"].attrs["cell_measures"]
    # MPAS has areas by a name of its own.
    path = save(tmp_path / "b.nc", dataset.rename(size="areaCell"))
    np.testing.assert_allclose(read(path, "q").geometry().weights, area / 21)
    dataset["size"].attrs["standard_name"] = "cell_area"
    dataset["size"][2] = -1.0
    with pytest.raises(DataError, match="`size` must be areas, zero or more, got -1 to 6"):
        read(save(tmp_path / "c.nc", dataset), "q")
