"""Recognises coordinates and dimensions by attributes and names, without reading values.

CF attributes (`standard_name`, `units`, `axis`) take precedence over common names. Other names are
split into words at underscores and capitals, such as `elem_xy`, `node_x` or `lonCell`: 1D arrays form
a group of coordinates if their names differ only in the words x, y and z, or longitude and latitude.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import xarray as xr

from gpo.data.geometry import Geometry

TIME_NAMES = ("valid_time", "time", "t", "date")
LATITUDE_NAMES = ("lat", "latitude", "nav_lat", "xlat", "tlat", "lat_rho", "geolat", "gphit")
LONGITUDE_NAMES = (
    *("lon", "long", "longitude", "nav_lon", "xlong", "tlon", "tlong", "lon_rho"),
    *("geolon", "glamt"),
)
NORTH = ("degrees_north", "degree_north", "degrees_n", "degree_n", "degreesn", "degreen")
EAST = ("degrees_east", "degree_east", "degrees_e", "degree_e", "degreese", "degreee")
FLAT_STANDARD_NAMES = (
    *("projection_x_coordinate", "projection_y_coordinate", "grid_latitude", "grid_longitude"),
    *("projection_x_angular_coordinate", "projection_y_angular_coordinate"),
)
FLAT_NAMES = ("x", "y", "rlat", "rlon", *LATITUDE_NAMES, *LONGITUDE_NAMES)
EXTRA_NAMES = (
    *("level", "lev", "plev", "pressure_level", "model_level", "isobaricinhpa", "hybrid"),
    *("height", "altitude", "depth", "number", "member", "ensemble", "realization"),
    *("step", "forecast_period", "forecast_reference_time", "expver", "trajectory", "sample"),
    *("bottom_top", "bottom_top_stag", "soil_layers_stag", "nvertlevels", "nvertlevelsp1"),
    *("s_rho", "s_w", "deptht", "depthu", "depthv", "depthw"),
)
AREA_NAMES = ("cell_area", "areacell", "areacella", "areacello", "area")
EXTRA_STANDARD_NAMES = (
    *("air_pressure", "height", "altitude", "depth", "model_level_number", "realization"),
    *("forecast_period", "forecast_reference_time"),
)

VARIABLE_ATTRIBUTES = ("units", "long_name", "standard_name")
"""Attributes of a variable to keep, in the order of the fields of `Variable`."""
AXIS_ATTRIBUTES = ("standard_name", "long_name", "axis")
LEVEL_NAMES = EXTRA_NAMES[: EXTRA_NAMES.index("number")]
LEVEL_STANDARD_NAMES = EXTRA_STANDARD_NAMES[: EXTRA_STANDARD_NAMES.index("realization")]
ALIASES = (
    ("t2m", "2t", "2m_temperature"),
    ("u10", "10u", "10m_u_component_of_wind"),
    ("v10", "10v", "10m_v_component_of_wind"),
    ("msl", "mean_sea_level_pressure"),
    ("sst", "sea_surface_temperature"),
)
"""Names of the same variable in files of different services."""


def coordinate_along(dataset: xr.Dataset, dim: str) -> xr.DataArray | None:
    """Returns the numeric coordinate variable of a dimension; None if there is none."""
    if dim not in dataset.variables or dataset[dim].dims != (dim,):
        return None
    return dataset[dim] if dataset[dim].dtype.kind in "iuf" else None


def standard_name(array: xr.DataArray) -> str:
    """Returns the CF standard name in lower case; empty if there is none."""
    return str(array.attrs.get("standard_name", "")).lower()


def units_of(array: xr.DataArray) -> str:
    """Returns the units in lower case; empty if there are none."""
    return str(array.attrs.get("units", "")).strip().lower()


def degrees_of(array: xr.DataArray) -> np.ndarray:
    """Returns latitudes or longitudes in degrees, converted from radians if necessary."""
    values = np.asarray(array.values, dtype=np.float64)
    return np.rad2deg(values) if units_of(array).startswith("rad") else values


def is_time(array: xr.DataArray) -> bool:
    """Returns whether an array contains times of frames."""
    return standard_name(array) == "time" or " since " in units_of(array)


def is_latitude(array: xr.DataArray) -> bool:
    """Returns whether an array contains geographic latitudes."""
    return _is_angle(array, "latitude", NORTH, "y", LATITUDE_NAMES)


def is_longitude(array: xr.DataArray) -> bool:
    """Returns whether an array contains geographic longitudes."""
    return _is_angle(array, "longitude", EAST, "x", LONGITUDE_NAMES)


def _is_angle(
    array: xr.DataArray, standard: str, units: tuple[str, ...], axis: str, names: tuple[str, ...]
) -> bool:
    """Returns whether an array contains geographic angles, not those of a rotated grid."""
    if array.dtype.kind not in "iuf":
        return False
    if standard_name(array) in (standard, f"grid_{standard}"):
        return standard_name(array) == standard
    is_axis = str(array.attrs.get("axis", "")).lower() == axis
    has_units = units_of(array) in units or (is_axis and units_of(array) in ("degree", "degrees"))
    name = str(array.name).lower()
    return name in names or (has_units and name not in ("rlat", "rlon"))


def area_along(dataset: xr.Dataset, dim: str) -> xr.DataArray | None:
    """Returns the cell areas along a dimension; None if the file has none.

    `cell_measures` take precedence over the standard name, and that over common names.
    """
    stated = [
        words[words.index("area:") + 1]
        for variable in dataset.variables.values()
        if "area:" in (words := str(variable.attrs.get("cell_measures", "")).split())[:-1]
        and dim in variable.dims
    ]
    lists = [dataset[name] for name, part in dataset.variables.items() if part.dims == (dim,)]
    lists = [array for array in lists if array.dtype.kind in "iuf"]
    is_time_dim = dim.lower() in TIME_NAMES or any(is_time(array) for array in lists)
    ranked = (
        [array for array in lists if array.name in stated],
        [array for array in lists if standard_name(array) == "cell_area"],
        # Along time, an area may be a scalar series, such as that of sea ice.
        [array for array in lists if str(array.name).lower() in AREA_NAMES and not is_time_dim],
    )
    return next((array for arrays in ranked for array in arrays), None)


def is_flat(dataset: xr.Dataset, dim: str) -> bool:
    """Returns whether a dimension is a horizontal axis."""
    coordinate = coordinate_along(dataset, dim)
    if coordinate is not None:
        axis = str(coordinate.attrs.get("axis", "")).upper()
        if axis in ("X", "Y") or standard_name(coordinate) in FLAT_STANDARD_NAMES:
            return True
        if is_latitude(coordinate) or is_longitude(coordinate):
            return True
    return dim.lower() in FLAT_NAMES


def is_extra(dataset: xr.Dataset, dim: str) -> bool:
    """Returns whether a dimension is that of levels, ensemble members or forecast steps."""
    coordinate = coordinate_along(dataset, dim)
    if coordinate is None:
        return dim.lower() in EXTRA_NAMES
    return _is_vertical(coordinate, EXTRA_NAMES, EXTRA_STANDARD_NAMES)


def name_in_file(name: str, available: Sequence[str]) -> str | None:
    """Returns the name of a variable in the file, which may be an alias; None if it is missing."""
    aliases = next((group for group in ALIASES if name in group), ())
    return next((alias for alias in (name, *aliases) if alias in available), None)


def read_levels(dataset: xr.Dataset, at: Mapping[str, int]) -> dict[str, str]:
    """Returns the selected value of each vertical coordinate, by name.

    Args:
        dataset: The open file.
        at: Index along each dimension of which one value is read.
    """
    levels: dict[str, str] = {}
    for key, variable in dataset.variables.items():
        name = str(key)
        is_selected = variable.dims == (name,) and name in at
        is_number = variable.dtype.kind in "iuf"
        if (
            (is_selected or variable.ndim == 0)
            and is_number
            and _is_vertical(dataset[name], LEVEL_NAMES, LEVEL_STANDARD_NAMES)
        ):
            value = variable.values[at[name]] if is_selected else variable.values
            levels[name] = f"{float(value):g}"
    return levels


def axis_attributes(dataset: xr.Dataset, dims: Sequence[str]) -> tuple[dict[str, str], ...]:
    """Returns the names and the axis letter of each axis."""
    return tuple(
        {
            key: str(dataset[dim].attrs[key])
            for key in AXIS_ATTRIBUTES
            if dim in dataset.variables and key in dataset[dim].attrs
        }
        for dim in dims
    )


def file_axes(
    dataset: xr.Dataset, dims: Sequence[str], geometry: Geometry
) -> tuple[tuple[str, np.ndarray], ...]:
    """Returns names and numbers of the dimensions of sites as in the file.

    Longitudes may differ from those of the geometry by full turns; other units are converted.
    """
    numbers: list[np.ndarray] = []
    for number, dim in enumerate(dims):
        coordinate = coordinate_along(dataset, dim)
        values = np.arange(dataset.sizes[dim]) if coordinate is None else coordinate.values
        axis = geometry.axes[number] if geometry.axes else values
        turns = np.round((axis - values) / 360) * 360 if geometry.domain.is_sphere else 0.0
        numbers.append(values if np.array_equal(axis, values + turns) else axis)
    return tuple(zip(dims, numbers, strict=True))


def _is_vertical(array: xr.DataArray, names: Sequence[str], standard_names: Sequence[str]) -> bool:
    """Returns whether a coordinate is a level by its attributes, or has one of the names."""
    is_stated = "positive" in array.attrs or array.attrs.get("axis") == "Z"
    name, standard = str(array.name).lower(), standard_name(array)
    return is_stated or name in names or standard in standard_names


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
