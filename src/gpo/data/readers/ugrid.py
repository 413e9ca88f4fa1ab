"""UGRID: unstructured meshes in NetCDF, with data at nodes, faces or edges.

A variable with `cf_role = "mesh_topology"` names the coordinates of the nodes and the arrays that
say which nodes are corners of which face (`face_node_connectivity`) or ends of which edge. Sites
at nodes have lumped areas as quadrature weights, those in faces the area of the face, those at
edges what the faces beside them give.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry, sphere_domain
from gpo.data.readers.cf_attributes import degrees_of, is_latitude, is_longitude
from gpo.data.readers.faces import (
    NO_CORNER,
    cut_into_triangles,
    edge_areas,
    face_areas,
    face_middles,
    weighted_points,
)
from gpo.data.readers.sites import scattered
from gpo.numerics.domain import unit_vectors


@dataclass(frozen=True)
class Topology:
    """One mesh of a file: the variable that describes it."""

    path: Path
    dataset: xr.Dataset
    variable: xr.DataArray

    @property
    def dims(self) -> dict[str, str]:
        """The dimension of nodes, faces and edges, by these words."""
        found = {"node": str(self.dataset[self._names("node_coordinates")[0]].dims[0])}
        for kind in ("face", "edge"):
            stated = self.variable.attrs.get(f"{kind}_dimension")
            name = self.variable.attrs.get(f"{kind}_node_connectivity")
            if stated or (name and name in self.dataset.variables):
                found[kind] = str(stated or self.dataset[name].dims[0])
        return found

    @property
    def auxiliaries(self) -> set[str]:
        """Names of all that describes the mesh."""
        kinds = ("_coordinates", "_connectivity")
        given = [str(value) for key, value in self.variable.attrs.items() if key.endswith(kinds)]
        return {str(self.variable.name), *" ".join(given).split()}

    def geometry(self, dim: str) -> Geometry:
        """Returns the sites along the dimension of nodes, faces or edges."""
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
            raise DataError(self.path, str(self.variable.name), "has faces that cover no area.")
        return weighted_points(middles, areas, is_sphere)

    def _at_nodes(self, nodes: np.ndarray, is_sphere: bool) -> Geometry:
        domain = sphere_domain(nodes) if is_sphere else None
        cells = self._corners("volume", len(nodes))
        if cells is None:
            faces = self._corners("face", len(nodes))
            cells = None if faces is None else cut_into_triangles(faces)[0]
        return scattered(self.path, nodes, cells, domain)

    def _coords(self, kind: str) -> tuple[np.ndarray, bool]:
        """Returns the places of nodes, faces or edges, and whether they are unit vectors."""
        arrays = [self.dataset[name] for name in self._names(f"{kind}_coordinates")]
        columns = [degrees_of(array) for array in arrays]
        for array, values in zip(arrays, columns, strict=True):
            if values.ndim != 1 or not np.isfinite(values).all():
                raise DataError(self.path, str(array.name), "must be a list of finite numbers.")
        up = [values for array, values in zip(arrays, columns, strict=True) if is_latitude(array)]
        along = [
            values for array, values in zip(arrays, columns, strict=True) if is_longitude(array)
        ]
        if up and along:
            return unit_vectors(torch.from_numpy(along[0]), torch.from_numpy(up[0])).numpy(), True
        return np.stack(columns, -1), False

    def _corners(self, kind: str, num_nodes: int) -> np.ndarray | None:
        """Returns which nodes are corners, counted from zero, -1 where a face has no more."""
        name = self.variable.attrs.get(f"{kind}_node_connectivity")
        if name is None or name not in self.dataset.variables:
            return None
        array = self.dataset[name]
        stated = self.variable.attrs.get(f"{kind}_dimension", array.dims[0])
        values = array.transpose(stated, ...).values.astype(np.float64)
        is_there = np.isfinite(values) & (values >= 0)
        if not is_there.any():
            raise DataError(self.path, str(name), "names no node at all.")
        start = float(array.attrs.get("start_index", 0))
        if "start_index" not in array.attrs and values[is_there].max() == num_nodes:
            start = 1.0
        if start == 1:
            # Where nodes count from one, zero stands for no more corners.
            is_there &= values > 0
        corners = np.where(is_there, values - start, NO_CORNER).astype(np.int64)
        if corners[is_there].min() < 0 or corners.max() >= num_nodes:
            problem = (
                f"must name nodes {start:g} to {num_nodes - 1 + start:g}, got "
                f"{values[is_there].min():g} to {values[is_there].max():g}; is start_index right?"
            )
            raise DataError(self.path, str(name), problem)
        return corners

    def _has(self, attribute: str) -> bool:
        """Returns whether the file holds the variables that an attribute names."""
        names = str(self.variable.attrs.get(attribute, "")).split()
        return bool(names) and all(name in self.dataset.variables for name in names)

    def _names(self, attribute: str) -> list[str]:
        if not self._has(attribute):
            raise self._lacks(attribute)
        return str(self.variable.attrs[attribute]).split()

    def _lacks(self, attribute: str) -> DataError:
        problem = f"is a mesh whose {attribute} must name variables of the file, and does not."
        return DataError(self.path, str(self.variable.name), problem)


def topologies(path: Path, dataset: xr.Dataset) -> Iterator[Topology]:
    """Yields all meshes that a file describes."""
    for name, variable in dataset.variables.items():
        if variable.attrs.get("cf_role") == "mesh_topology":
            yield Topology(path, dataset, dataset[name])


def find_mesh(path: Path, dataset: xr.Dataset, dims: Sequence[str]) -> tuple[Topology, str] | None:
    """Returns the mesh whose nodes, faces or edges lie along one of the dimensions, and which."""
    for topology in topologies(path, dataset):
        for dim in topology.dims.values():
            if dim in dims:
                return topology, dim
    return None
