"""Recognises coordinates of sites by their names, such as `elem_xy`, `node_x` or `lonCell`.

Names are split into words at underscores and capitals. 1D arrays form a group of coordinates if
their names differ only in the words x, y and z, or longitude and latitude.
"""

import re
from collections.abc import Iterable

import numpy as np

ACROSS = ("x", "lon", "long", "longitude", "easting")
UPWARDS = ("y", "lat", "latitude", "northing")
THIRD = ("z",)
DEGREES = (*ACROSS[1:4], *UPWARDS[1:3])
TABLES = (
    *("coords", "coord", "coordinates", "coordinate", "points", "point", "pts", "pos", "position"),
    *("positions", "xy", "xyz", "nodes", "vertices", "verts", "centers", "centres", "centroids"),
    *("locations", "location", "loc", "locs", "sites", "lonlat", "latlon"),
)
"""Words in names of 2D arrays with all coordinates of each site."""
AREAS = "cell_area"
"""Name of the cell areas of points in files that gpo writes and reads."""
MPAS = re.compile(r"(lon|lat)(Cell|Vertex|Edge)")
"""Coordinates of MPAS, which have no units in older files."""
CELLS = (
    *("cells", "cell", "triangles", "triangle", "tri", "tris", "elements", "elems", "faces"),
    *("simplices", "connectivity", "conn", "trivec"),
)
"""Words in names of arrays with the corners of cells."""


def words(name: str) -> list[str]:
    """Returns the words of a name in lower case."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word for word in re.split(r"[^a-z]+", parts.lower()) if word]


def column_groups(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Returns groups of coordinate names, each x and y, or x, y and z, in this order."""
    groups: dict[tuple[str, ...], dict[int, str]] = {}
    for name in names:
        parts = words(name)
        for axis, axis_words in enumerate((ACROSS, UPWARDS, THIRD)):
            for word in parts:
                if word in axis_words:
                    # Longitudes belong to latitudes, x to y.
                    kind = "degrees" if word in DEGREES else "length"
                    stem = tuple(part for part in parts if part != word)
                    groups.setdefault((kind, *stem), {}).setdefault(axis, name)
    return [
        tuple(group[axis] for axis in sorted(group))
        for group in groups.values()
        if 0 in group and 1 in group
    ]


def is_in_degrees(columns: Iterable[str]) -> bool:
    """Returns whether the names are those of longitudes and latitudes."""
    return all(any(word in DEGREES for word in words(name)) for name in columns)


def is_upwards(name: str) -> bool:
    """Returns whether a name is that of a latitude or a y coordinate."""
    return any(word in UPWARDS for word in words(name))


def is_along_line(name: str) -> bool:
    """Returns whether a name is that of a Cartesian coordinate, such as x or node_x."""
    return any(word in (ACROSS[0], UPWARDS[0], *THIRD) for word in words(name))


def in_degrees(
    longitude: np.ndarray, latitude: np.ndarray, units: str, name: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """Returns longitudes and latitudes in degrees.

    Radians are recognised by their units, or without units by the ranges of a global grid.

    Args:
        longitude: Longitudes as stored.
        latitude: Latitudes as stored.
        units: Units in the file, if any.
        name: Name of a coordinate; those of MPAS are in radians.
    """
    if not units and MPAS.fullmatch(name) and np.abs(longitude).max() < 6.3:
        units = "radian"
    is_globe = np.ptp(longitude) > 6 and np.abs(longitude).max() < 6.3
    is_globe = is_globe and np.ptp(latitude) > 2.5 and np.abs(latitude).max() < 1.5709
    if units.lower().startswith("rad") or (not units and is_globe):
        return np.rad2deg(longitude), np.rad2deg(latitude)
    return longitude.copy(), latitude.copy()


def is_table(name: str) -> bool:
    """Returns whether a name is that of a 2D array with all coordinates of each site."""
    return any(word in TABLES for word in words(name))


def is_cells(name: str) -> bool:
    """Returns whether a name is that of an array of cell corners."""
    return any(word in CELLS for word in words(name)) and not is_table(name)
