"""Polygonal faces of a mesh: triangulation, areas and centres."""

import numpy as np
from jaxtyping import Float, Int

from gpo.data.geometry import Geometry, parallelogram_area, sphere_domain

NO_CORNER = -1
"""Fill value in the rows of faces with fewer corners than others."""


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
