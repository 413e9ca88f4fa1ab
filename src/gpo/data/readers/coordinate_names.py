"""Which arrays are the coordinates of sites, by their names: `elem_xy`, `node_x`, `lonCell`.

A name is cut into words at underscores and capitals. Arrays of one number per site belong
together where their names are alike but for the words x, y and z, or longitude and latitude.
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
"""Words of arrays that hold all coordinates of a site."""
AREAS = "cell_area"
"""Name of the area that every point stands for, in what we write and read."""
MPAS = re.compile(r"(lon|lat)(Cell|Vertex|Edge)")
"""Coordinates of MPAS, which its older files have without units."""
CELLS = (
    *("cells", "cell", "triangles", "triangle", "tri", "tris", "elements", "elems", "faces"),
    *("simplices", "connectivity", "conn", "trivec"),
)
"""Words of arrays that hold the corners of cells."""


def words(name: str) -> list[str]:
    """Returns the words of a name in small letters."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word for word in re.split(r"[^a-z]+", parts.lower()) if word]


def column_groups(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Returns names of coordinates that belong together: x and y, or x, y and z, in this order."""
    found: dict[tuple[str, ...], dict[int, str]] = {}
    for name in names:
        parts = words(name)
        for number, known in enumerate((ACROSS, UPWARDS, THIRD)):
            for word in parts:
                if word in known:
                    # Longitudes go with latitudes, x with y.
                    kind = "degrees" if word in DEGREES else "length"
                    stem = tuple(part for part in parts if part != word)
                    found.setdefault((kind, *stem), {}).setdefault(number, name)
    return [
        tuple(group[number] for number in sorted(group))
        for group in found.values()
        if 0 in group and 1 in group
    ]


def is_in_degrees(columns: Iterable[str]) -> bool:
    """Returns whether names of coordinates are those of longitudes and latitudes."""
    return all(any(word in DEGREES for word in words(name)) for name in columns)


def is_upwards(name: str) -> bool:
    """Returns whether a name is that of latitudes, or of the second coordinate of a plane."""
    return any(word in UPWARDS for word in words(name))


def is_along_line(name: str) -> bool:
    """Returns whether a name is that of places on a line, such as x or node_x."""
    return any(word in (ACROSS[0], UPWARDS[0], *THIRD) for word in words(name))


def in_degrees(
    longitude: np.ndarray, latitude: np.ndarray, units: str, name: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """Returns longitudes and latitudes in degrees: radians are told by units, or by a whole globe.

    Args:
        longitude: As stored.
        latitude: As stored.
        units: Those that the file states, if any.
        name: Of the longitudes or latitudes; those of MPAS are radians.
    """
    if not units and MPAS.fullmatch(name) and np.abs(longitude).max() < 6.3:
        units = "radian"
    is_globe = np.ptp(longitude) > 6 and np.abs(longitude).max() < 6.3
    is_globe = is_globe and np.ptp(latitude) > 2.5 and np.abs(latitude).max() < 1.5709
    if units.lower().startswith("rad") or (not units and is_globe):
        return np.rad2deg(longitude), np.rad2deg(latitude)
    return longitude.copy(), latitude.copy()


def is_table(name: str) -> bool:
    """Returns whether a name says that an array holds all coordinates of every site."""
    return any(word in TABLES for word in words(name))


def is_cells(name: str) -> bool:
    """Returns whether a name says that an array holds corners of cells."""
    return any(word in CELLS for word in words(name)) and not is_table(name)
