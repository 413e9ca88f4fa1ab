"""Faces of a mesh: polygons of any number of corners, their areas, and sites in their middle."""

import numpy as np
from jaxtyping import Float, Int

from gpo.data.geometry import Geometry, sphere_domain
from gpo.numerics.domain import Domain

NO_CORNER = -1
"""Fills the rows of faces that have fewer corners than others."""


def cut_into_triangles(
    faces: Int[np.ndarray, "faces corners"],
) -> tuple[Int[np.ndarray, "triangles 3"], Int[np.ndarray, " triangles"]]:
    """Returns the triangles between the first corner and every other side, and whose they are."""
    triangles, owners = [], []
    for corner in range(1, faces.shape[1] - 1):
        part = faces[:, [0, corner, corner + 1]]
        is_there = (part != NO_CORNER).all(1)
        triangles.append(part[is_there])
        owners.append(np.flatnonzero(is_there))
    return np.concatenate(triangles), np.concatenate(owners)


def face_areas(
    faces: Int[np.ndarray, "faces corners"], nodes: Float[np.ndarray, "nodes dim"]
) -> Float[np.ndarray, " faces"]:
    """Returns the area of every face, in the plane or along chords of the sphere."""
    triangles, owners = cut_into_triangles(faces)
    first, second = (nodes[triangles[:, n]] - nodes[triangles[:, 0]] for n in (1, 2))
    squared = (first**2).sum(-1) * (second**2).sum(-1) - (first * second).sum(-1) ** 2
    return np.bincount(owners, np.sqrt(squared.clip(0)) / 2, minlength=len(faces))


def face_middles(
    faces: Int[np.ndarray, "faces corners"], nodes: Float[np.ndarray, "nodes dim"]
) -> Float[np.ndarray, "faces dim"]:
    """Returns the mean of the corners of every face."""
    is_there = (faces != NO_CORNER)[..., None]
    return (nodes[faces] * is_there).sum(1) / is_there.sum(1)


def edge_areas(
    faces: Int[np.ndarray, "faces corners"],
    nodes: Float[np.ndarray, "nodes dim"],
    edges: Int[np.ndarray, "edges 2"],
) -> Float[np.ndarray, " edges"]:
    """Returns what every edge gets of the faces beside it; a face gives all its edges the same."""
    areas = face_areas(faces, nodes) / (faces != NO_CORNER).sum(1)
    following = np.roll(faces, -1, axis=1)
    # The last corner of a face is followed by the first one.
    following = np.where(following == NO_CORNER, faces[:, :1], following)
    is_there = faces != NO_CORNER
    sides = np.sort(np.stack([faces[is_there], following[is_there]], -1), -1)
    given = np.broadcast_to(areas[:, None], faces.shape)[is_there]
    keys = sides[:, 0] * len(nodes) + sides[:, 1]
    wanted = np.sort(edges, -1)
    wanted = wanted[:, 0] * len(nodes) + wanted[:, 1]
    order = np.argsort(wanted)
    place = np.searchsorted(wanted, keys, sorter=order).clip(0, len(wanted) - 1)
    is_known = wanted[order[place]] == keys
    return np.bincount(order[place[is_known]], given[is_known], minlength=len(edges))


def weighted_points(
    coords: Float[np.ndarray, "points dim"], areas: Float[np.ndarray, " points"], is_sphere: bool
) -> Geometry:
    """Returns scattered points that stand for these areas.

    Args:
        coords: In the plane, or unit vectors.
        areas: Of what is around every point, in any units.
        is_sphere: Whether they are unit vectors.
    """
    domain: Domain | None = sphere_domain(coords) if is_sphere else None
    geometry = Geometry.scattered(coords, domain=domain)
    return geometry.with_weights(areas)
