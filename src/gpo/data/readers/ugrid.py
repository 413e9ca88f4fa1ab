"""UGRID: unstructured meshes in NetCDF, with data at nodes, faces or edges.

A variable with `cf_role = "mesh_topology"` names the coordinates of the nodes and the connectivity
of faces (`face_node_connectivity`) and edges. Quadrature weights are lumped areas at nodes, the
area of the face at faces, and an equal part of the area of adjacent faces at edges.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry, parallelogram_area, sphere_coords, sphere_domain
from gpo.data.readers.names import degrees_of, is_latitude, is_longitude
from gpo.data.readers.sites import unstructured

NO_CORNER = -1
"""Fill value in the rows of faces with fewer corners than others."""


@dataclass(frozen=True)
class Topology:
    """A mesh of a file, defined by its topology variable."""

    path: Path
    dataset: xr.Dataset
    variable: xr.DataArray

    @property
    def dims(self) -> dict[str, str]:
        """Names of the dimensions by kind: node, face and edge."""
        dims = {"node": str(self.dataset[self._names("node_coordinates")[0]].dims[0])}
        for kind in ("face", "edge"):
            stated = self.variable.attrs.get(f"{kind}_dimension")
            name = self.variable.attrs.get(f"{kind}_node_connectivity")
            if stated or (name and name in self.dataset.variables):
                dims[kind] = str(stated or self.dataset[name].dims[0])
        return dims

    @property
    def auxiliaries(self) -> set[str]:
        """Names of all variables that describe the mesh."""
        suffixes = ("_coordinates", "_connectivity")
        names = [value for key, value in self.variable.attrs.items() if key.endswith(suffixes)]
        return {str(self.variable.name), *" ".join(map(str, names)).split()}

    def geometry(self, dim: str) -> Geometry:
        """Returns the sites along a dimension of nodes, faces or edges."""
        kind = next(kind for kind, name in self.dims.items() if name == dim)
        nodes, is_sphere = self._coords("node")
        if kind == "node":
            return self._at_nodes(nodes, is_sphere)
        faces = self._corners("face", len(nodes))
        if kind == "face":
            if faces is None:
                raise self._lacks("face_node_connectivity")
            middles, areas = face_middles(faces, nodes), face_areas(faces, nodes)
        else:
            edges = self._corners("edge", len(nodes))
            if edges is None:
                raise self._lacks("edge_node_connectivity")
            middles = nodes[edges].mean(1)
            areas = np.ones(len(edges)) if faces is None else edge_areas(faces, nodes, edges)
        if self._has(f"{kind}_coordinates"):
            middles, _ = self._coords(kind)
        elif is_sphere:
            middles = middles / np.linalg.norm(middles, axis=1, keepdims=True)
        if not areas.any():
            raise DataError(self.path, str(self.variable.name), "must have faces with an area.")
        return weighted_points(middles, areas, is_sphere)

    def _at_nodes(self, nodes: np.ndarray, is_sphere: bool) -> Geometry:
        domain = sphere_domain(nodes) if is_sphere else None
        cells = self._corners("volume", len(nodes))
        if cells is None:
            faces = self._corners("face", len(nodes))
            cells = None if faces is None else cut_into_triangles(faces)[0]
        else:
            cells = cells[(cells != NO_CORNER).all(1)]
        return unstructured(self.path, nodes, cells, domain)

    def _coords(self, kind: str) -> tuple[np.ndarray, bool]:
        """Returns coordinates of nodes, faces or edges, and whether they are unit vectors."""
        arrays = [self.dataset[name] for name in self._names(f"{kind}_coordinates")]
        columns = [degrees_of(array) for array in arrays]
        for array, values in zip(arrays, columns, strict=True):
            if values.ndim != 1 or not np.isfinite(values).all():
                raise DataError(self.path, str(array.name), "must be a list of finite numbers.")
        pairs = list(zip(arrays, columns, strict=True))
        latitudes = [values for array, values in pairs if is_latitude(array)]
        longitudes = [values for array, values in pairs if is_longitude(array)]
        if latitudes and longitudes:
            return sphere_coords(longitudes[0], latitudes[0]), True
        return np.stack(columns, -1), False

    def _corners(self, kind: str, num_nodes: int) -> np.ndarray | None:
        """Returns the node indices of corners, from zero; -1 fills faces with fewer corners."""
        name = self.variable.attrs.get(f"{kind}_node_connectivity")
        if name is None or name not in self.dataset.variables:
            return None
        array = self.dataset[name]
        stated = self.variable.attrs.get(f"{kind}_dimension", array.dims[0])
        values = array.transpose(stated, ...).values.astype(np.float64)
        is_corner = np.isfinite(values) & (values >= 0)
        if not is_corner.any():
            raise DataError(self.path, str(name), "must name nodes, got fill values only.")
        start = float(array.attrs.get("start_index", 0))
        if "start_index" not in array.attrs and values[is_corner].max() == num_nodes:
            start = 1.0
        if start == 1:
            # With one-based indices, zero is a fill value.
            is_corner &= values > 0
        corners = np.where(is_corner, values - start, NO_CORNER).astype(np.int64)
        if corners[is_corner].min() < 0 or corners.max() >= num_nodes:
            problem = (
                f"must name nodes {start:g} to {num_nodes - 1 + start:g}, got "
                f"{values[is_corner].min():g} to {values[is_corner].max():g}; check start_index."
            )
            raise DataError(self.path, str(name), problem)
        return corners

    def _has(self, attribute: str) -> bool:
        """Returns whether the file has the variables that an attribute names."""
        names = str(self.variable.attrs.get(attribute, "")).split()
        return bool(names) and all(name in self.dataset.variables for name in names)

    def _names(self, attribute: str) -> list[str]:
        if not self._has(attribute):
            raise self._lacks(attribute)
        return str(self.variable.attrs[attribute]).split()

    def _lacks(self, attribute: str) -> DataError:
        problem = f"is a mesh whose {attribute} must name variables of the file."
        return DataError(self.path, str(self.variable.name), problem)


def topologies(path: Path, dataset: xr.Dataset) -> Iterator[Topology]:
    """Yields all meshes of a file."""
    for name, variable in dataset.variables.items():
        if variable.attrs.get("cf_role") == "mesh_topology":
            yield Topology(path, dataset, dataset[name])


def find_mesh(path: Path, dataset: xr.Dataset, dims: Sequence[str]) -> tuple[Topology, str] | None:
    """Returns the mesh with nodes, faces or edges along one of the dimensions, and which."""
    for topology in topologies(path, dataset):
        for dim in topology.dims.values():
            if dim in dims:
                return topology, dim
    return None


def cut_into_triangles(
    faces: Int[np.ndarray, "faces corners"],
) -> tuple[Int[np.ndarray, "triangles 3"], Int[np.ndarray, " triangles"]]:
    """Splits faces into triangles from their first corner; returns also the face of each."""
    triangles, sources = [], []
    for corner in range(1, faces.shape[1] - 1):
        part = faces[:, [0, corner, corner + 1]]
        is_complete = (part != NO_CORNER).all(1)
        triangles.append(part[is_complete])
        sources.append(np.flatnonzero(is_complete))
    return np.concatenate(triangles), np.concatenate(sources)


def face_areas(
    faces: Int[np.ndarray, "faces corners"], nodes: Float[np.ndarray, "nodes dim"]
) -> Float[np.ndarray, " faces"]:
    """Returns the area of each face; on the sphere, that of the chords between corners."""
    triangles, sources = cut_into_triangles(faces)
    first, second = (nodes[triangles[:, n]] - nodes[triangles[:, 0]] for n in (1, 2))
    return np.bincount(sources, parallelogram_area(first, second) / 2, minlength=len(faces))


def face_middles(
    faces: Int[np.ndarray, "faces corners"], nodes: Float[np.ndarray, "nodes dim"]
) -> Float[np.ndarray, "faces dim"]:
    """Returns the mean of the corners of each face."""
    is_corner = (faces != NO_CORNER)[..., None]
    return (nodes[faces] * is_corner).sum(1) / is_corner.sum(1)


def edge_areas(
    faces: Int[np.ndarray, "faces corners"],
    nodes: Float[np.ndarray, "nodes dim"],
    edges: Int[np.ndarray, "edges 2"],
) -> Float[np.ndarray, " edges"]:
    """Returns the area of each edge; a face distributes its area equally among its edges."""
    areas = face_areas(faces, nodes) / (faces != NO_CORNER).sum(1)
    following = np.roll(faces, -1, axis=1)
    # The first corner follows the last one.
    following = np.where(following == NO_CORNER, faces[:, :1], following)
    is_corner = faces != NO_CORNER
    sides = np.sort(np.stack([faces[is_corner], following[is_corner]], -1), -1)
    side_areas = np.broadcast_to(areas[:, None], faces.shape)[is_corner]
    side_keys = sides[:, 0] * len(nodes) + sides[:, 1]
    ends = np.sort(edges, -1)
    edge_keys = ends[:, 0] * len(nodes) + ends[:, 1]
    order = np.argsort(edge_keys)
    index = np.searchsorted(edge_keys, side_keys, sorter=order).clip(0, len(edge_keys) - 1)
    is_edge = edge_keys[order[index]] == side_keys
    return np.bincount(order[index[is_edge]], side_areas[is_edge], minlength=len(edges))


def weighted_points(
    coords: Float[np.ndarray, "points dim"], areas: Float[np.ndarray, " points"], is_sphere: bool
) -> Geometry:
    """Returns unstructured points with areas as quadrature weights.

    Args:
        coords: Coordinates in the plane, or unit vectors.
        areas: Area of the cell of each point, in any units.
        is_sphere: Whether `coords` are unit vectors.
    """
    domain = sphere_domain(coords) if is_sphere else None
    return Geometry.unstructured(coords, domain=domain).with_weights(areas)
