"""Which named arrays are coordinates with arbitrary names, additional inputs, or parameters.

Inputs are recognised by shape: an array with the shape of the sites, with or without a leading sample
axis, is a static field; an array with one entry per frame is a scalar series.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.axis_order import (
    MAX_COMPONENTS,
    SMALLEST_GRID,
    Axes,
    Field,
    Sites,
    common_length,
    from_zero,
    match,
    points_sites,
)
from gpo.data.readers.base import check_latitudes, choose_variables
from gpo.data.readers.lazy import (
    DEGREES,
    NAME,
    SITES,
    Key,
    Stored,
    mesh_variables,
    point_coordinates,
)
from gpo.data.readers.names import (
    column_groups,
    in_degrees,
    is_cells,
    is_in_degrees,
    is_table,
    is_upwards,
    words,
)
from gpo.data.readers.sites import check_cells, check_points

Arrays = Mapping[str, Stored]


def stated_sites(path: Path, arrays: Arrays, names: Sequence[str]) -> Sites:
    """Returns the sites with the coordinates that the user names: one 2D array, or 1D arrays."""
    choose_variables(path, names, list(arrays))
    if len(names) > 1 or arrays[names[0]].is_vector:
        lengths = {arrays[name].size for name in names}
        if len(lengths) > 1 or not all(arrays[name].is_vector for name in names):
            shapes = ", ".join(f"{name} {arrays[name].shape}" for name in names)
            problem = f"must have one value per site, as all of --coords, got {shapes}."
            raise DataError(path, names[0], problem)
    return _sites(path, arrays, tuple(names))


def recognised_sites(path: Path, arrays: Arrays) -> Sites | None:
    """Returns sites with coordinates of recognised names that fit other arrays; None if none."""
    for names in _candidates(arrays):
        count = _count(arrays, names)
        fields = [
            stored
            for name, stored in arrays.items()
            if name not in names and not stored.is_vector and not is_table(name)
        ]
        if any(_may_be_field(stored, count) for stored in fields):
            return _sites(path, arrays, names)
    return None


def check_no_coordinates(path: Path, arrays: Arrays) -> None:
    """Raises a `DataError` for an array that may be coordinates but has no recognised name."""
    for name, stored in arrays.items():
        shape = stored.shape
        if len(shape) != 2 or not _is_table(stored):
            continue
        count = max(shape)
        others = [other for key, other in arrays.items() if key != name and not _is_table(other)]
        if any(len(other.shape) == 2 and _may_be_field(other, count) for other in others):
            problem = (
                f"has shape {shape} and may be the coordinates of {count} sites. If so: "
                f"`--coords {name}`; otherwise name the variables to read with --var."
            )
            raise DataError(path, name, problem)


def possible_coordinates(arrays: Arrays, count: int, fields: Sequence[str]) -> list[str]:
    """Returns names of arrays whose shapes may be those of coordinates of `count` sites."""
    others = {name: stored for name, stored in arrays.items() if name not in fields}
    tables = [
        name
        for name, stored in others.items()
        if len(stored.shape) == 2 and sorted(stored.shape) in ([2, count], [3, count])
    ]
    columns = [name for name, stored in others.items() if stored.is_vector and stored.size == count]
    return tables[:1] or (columns[:3] if len(columns) > 1 else [])


def _candidates(arrays: Arrays) -> Iterator[tuple[str, ...]]:
    """Yields groups of names that may be coordinates, 2D arrays first."""
    tables = [name for name, stored in arrays.items() if is_table(name) and _is_table(stored)]
    vectors = [name for name, stored in arrays.items() if stored.is_vector and stored.size > 1]
    groups = [
        group
        for group in column_groups(vectors)
        if len({arrays[name].size for name in group}) == 1
        and arrays[group[0]].size >= SMALLEST_GRID
    ]
    yield from ((name,) for name in tables)
    yield from groups


def _is_table(stored: Stored) -> bool:
    shape = stored.shape
    return len(shape) == 2 and min(shape) in (2, 3) and max(shape) >= SMALLEST_GRID


def _may_be_field(stored: Stored, count: int) -> bool:
    """Returns whether an array has `count` sites along one axis and may be a time series."""
    shape = stored.shape
    # An array with this length along two axes is a grid.
    if not 2 <= len(shape) <= 4 or shape.count(count) != 1:
        return False
    if len(shape) == 2:
        return min(shape) > 3
    # A first axis is more likely that of samples, unless components follow.
    others = [length for length in shape if length != count]
    return shape[0] != count or (len(shape) == 3 and min(others) <= MAX_COMPONENTS)


def _count(arrays: Arrays, names: tuple[str, ...]) -> int:
    return max(arrays[names[0]].shape)


def _sites(path: Path, arrays: Arrays, names: tuple[str, ...]) -> Sites:
    coords, labels = _coords(path, arrays, names)
    cells = [name for name in arrays if is_cells(name) and len(arrays[name].shape) == 2]
    cells = [name for name in cells if min(arrays[name].shape) in (3, 4)]
    sites, used = None, names
    if cells:
        corners = _corners(path, arrays, cells[0])
        used = (*names, cells[0])
        sites = _in_elements(path, arrays, points_sites(coords, None, used, labels), corners)
        if sites is None and corners.max() <= len(coords):
            corners = from_zero(path, cells[0], corners, len(coords))
            corners = check_cells(path, cells[0], corners, coords)
            sites = points_sites(coords, corners, used, labels)
    sites = sites or points_sites(coords, None, used, labels)
    others = tuple(name for group in _candidates(arrays) for name in group if name not in used)
    return replace(sites, used=(*used, *others))


def _in_elements(path: Path, arrays: Arrays, sites: Sites, corners: np.ndarray) -> Sites | None:
    """Returns sites at the centres of elements, weighted by their areas; None without nodes."""
    if len(corners) != sites.lengths["points"]:
        return None
    for names in _candidates(arrays):
        # The largest index of one-based elements is the number of nodes.
        start = int(corners.min() >= 1 and corners.max() == _count(arrays, names))
        if not set(names) & set(sites.used) and _count(arrays, names) > corners.max() - start:
            nodes, labels = _coords(path, arrays, names)
            labels = [f"node_{label}" for label in labels]
            coords = point_coordinates(("nodes",), nodes, labels)
            for name, part in zip(labels, coords.values(), strict=False):
                if name.endswith(DEGREES):
                    part.attrs = {"standard_name": name.removeprefix("node_")}
            mesh = mesh_variables(
                tuple(coords), corners.astype(np.int64) - start, ("points", "corner"),
                faces=tuple(sites.coords),
            )  # fmt: skip
            return replace(sites, coords={**sites.coords, **coords, **mesh})
    return None


def _corners(path: Path, arrays: Arrays, name: str) -> np.ndarray:
    values = arrays[name].values()
    values = values.T if values.shape[0] in (3, 4) and values.shape[1] > 4 else values
    if not np.array_equal(values, np.rint(values)):
        raise DataError(path, name, "must be integers, the indices of sites from zero.")
    return values


def _coords(
    path: Path, arrays: Arrays, names: tuple[str, ...]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns coordinates, (points, dim), and their names, which say whether they are degrees."""
    first = names[0]
    columns = [np.ravel(arrays[name].values()).astype(np.float64) for name in names]
    if len(names) == 1 and not arrays[first].is_vector:
        table = arrays[first].values().astype(np.float64)
        table = table.T if table.shape[0] in (2, 3) and table.shape[1] > 3 else table
        kinds = words(first)
        if "lonlat" not in kinds and "latlon" not in kinds:
            return check_points(path, first, table), SITES
        columns = list(table.T[:: -1 if "latlon" in kinds else 1])
    elif len(names) < 2 or not is_in_degrees(names[:2]):
        return check_points(path, first, np.stack(columns, -1)), SITES
    elif is_upwards(first):
        columns = columns[::-1]
    longitude, latitude = check_points(path, first, np.stack(columns[:2], -1)).T
    longitude, latitude = in_degrees(longitude, latitude, arrays[first].units, first)
    check_latitudes(path, names[-1], latitude)
    return np.stack([longitude, latitude], -1), DEGREES


def is_extra_input(axes: Axes, stored: Stored, patterns: Sequence[str]) -> bool:
    """Returns whether an array has axes of sites or of times, but not of both."""
    if axes.is_bare or axes.stated or stored.is_vector:
        return False
    if any(axes.fits(order, stored.shape) for order in axes.orders(patterns)):
        return False
    others = ["sites", "sample sites", *(["sample time"] if "time" in axes.lengths else [])]
    return any(axes.fits(order, stored.shape) for order in axes.orders(others))


def find_inputs(
    path: Path, rest: Mapping[str, Stored], fields: Sequence[Field], num_times: int
) -> dict[str, xr.Variable]:
    """Returns static fields and scalar series.

    Args:
        path: The file, for error messages.
        rest: Arrays that are neither coordinates nor times.
        fields: Time series of fields among them.
        num_times: Number of frames.
    """
    used = [field.stored for field in fields]
    widest = max(fields, key=lambda field: len(field.sites))
    labels = tuple(label for label in widest.order if label in widest.sites)
    lengths = {label: common_length(path, fields, label) for label in ("sample", *labels)}
    lengths["time"] = num_times
    # Try the order of the fields first, then the reverse, such as y before x.
    orders = [order for sites in (labels, labels[::-1]) for order in (sites, ("sample", *sites))]
    orders += [("time",), ("sample", "time")]
    inputs: dict[str, xr.Variable] = {}
    for name, stored in rest.items():
        squeezed = _squeezed(stored)
        fitting = [
            order for order in orders
            if stored not in used and stored.size > 1
            and squeezed.shape == tuple(lengths[label] for label in order)
        ]  # fmt: skip
        # A vector may be both: a field on a line, and a series of as many times.
        static = next((order for order in fitting if "time" not in order), None)
        series = next((order for order in fitting if "time" in order), None)
        for key, order in ((name, static), (f"{name}_series" if static else name, series)):
            if order is not None:
                inputs[key] = Field(name, squeezed, order).variable(order)
                inputs[key].attrs[NAME] = name
    return inputs


def split_map_inputs(
    path: Path, inputs: Mapping[str, Stored], outputs: Sequence[Field]
) -> tuple[list[Field], dict[str, xr.Variable]]:
    """Splits the inputs of static maps into fields and scalars.

    Arrays with one entry or one row per sample are scalars.

    Args:
        path: The file, for error messages.
        inputs: Arrays that are inputs.
        outputs: Fields that are outputs.
    """
    count, sites = common_length(path, outputs, "sample"), outputs[0].sites
    labels = tuple(label for label in outputs[0].order if label in sites)
    lengths = tuple(outputs[0].length(label) for label in labels)
    fields: list[Field] = []
    scalars: dict[str, xr.Variable] = {}
    for name, stored in inputs.items():
        shape = stored.shape
        if "sample" not in outputs[0].order and shape == lengths:
            fields.append(Field(name, stored, labels))
        elif shape[:1] == (count,) and shape[1:] == lengths:
            fields.append(Field(name, stored, ("sample", *labels)))
        elif shape[:1] == (count,) and shape[1:-1] == lengths and len(lengths):
            fields.append(Field(name, stored, ("sample", *labels, "component")))
        elif (stored.size == count and max(shape, default=1) == count) or (
            len(shape) == 2 and shape[0] == count
        ):
            values = stored.values().astype(np.float64).reshape(count, -1)
            width = values.shape[1]
            names = [name] if width == 1 else [f"{name}_{column}" for column in range(width)]
            for column, values_of in zip(names, values.T, strict=True):
                scalars[column] = xr.Variable("sample", values_of, {"units": stored.units})
        else:
            problem = (
                f"has shape {shape}; an input must have a first axis of {count} samples, as "
                f"{outputs[0].name} has, then no other axis, scalars, or the sites {lengths}."
            )
            raise DataError(path, name, problem)
    return fields, scalars


def _squeezed(stored: Stored) -> Stored:
    """Returns a vector with one axis, without those of length one; other arrays unchanged."""
    if not stored.is_vector or len(stored.shape) <= 1:
        return stored
    return Stored((stored.size,), stored.dtype, partial(_read_vector, stored), stored.units)


def _read_vector(stored: Stored, key: Key) -> np.ndarray:
    return np.asarray(np.ravel(stored.values())[key])


def parameter_tables(arrays: Mapping[str, Stored], num_times: int | None) -> list[str]:
    """Returns names of arrays with a row of parameters for each sample of larger arrays."""
    counts = {stored.shape[0] for stored in arrays.values() if len(stored.shape) > 2}
    return [
        name
        for name, stored in arrays.items()
        if len(stored.shape) == 2
        and 1 < stored.shape[1] < SMALLEST_GRID
        and stored.shape[0] in counts - {num_times}
    ]


def sample_parameters(
    path: Path,
    rest: Mapping[str, Stored],
    fields: Sequence[Field],
    count: int,
    is_selected: bool,
    inputs: Collection[str] = (),
    unknown_times: int | None = None,
) -> dict[str, np.ndarray]:
    """Returns scalars, and vectors with one value per sample; other vectors are an error.

    Args:
        path: The file, for error messages.
        rest: Arrays that are neither coordinates nor times.
        fields: Fields among them.
        count: Number of samples.
        is_selected: Whether the user named variables, so that other arrays are ignored.
        inputs: Names of arrays that are additional inputs.
        unknown_times: Number of frames if nothing states that they are times, and not samples.
    """
    used = [field.stored for field in fields]
    parameters: dict[str, np.ndarray] = {}
    for name, stored in rest.items():
        if stored in used or not stored.is_vector:
            continue
        if stored.size in (1, count):
            parameters[name] = np.broadcast_to(np.ravel(stored.values()), (count,)).copy()
        elif name not in inputs and (not is_selected or stored.size == unknown_times):
            alike = " ".join(n for n, array in rest.items() if array.shape == stored.shape)
            problem = (
                f"has shape {stored.shape}, which is neither a field nor one value for each of "
                f"{count} samples."
            )
            if stored.size == fields[0].length("time"):
                order = ",".join(fields[0].order)
                problem += (
                    f" If the {stored.size} frames are samples: `--inputs {alike}`; if they are times: "
                    f"`--forcing {alike}`, or without it `--select axes={order}`."
                )
            else:
                problem += (
                    f" Leave it out by naming the variables to read: `--var {fields[0].name}`."
                )
            raise DataError(path, name, problem)
    return parameters


def match_series(
    path: Path,
    name: str,
    stored: Stored,
    axes: Axes,
    patterns: Sequence[str],
    rest: Mapping[str, Stored],
) -> Field:
    """Returns a field with its axes; an error names vectors that may be parameters of samples."""
    try:
        return match(path, name, stored, axes, patterns)
    except DataError as error:
        alike = [
            key for key, part in rest.items() if part.is_vector and part.size == stored.shape[0]
        ]
        if "time" in axes.lengths or axes.stated or not alike:
            raise
        advice = f"If its {stored.shape[0]} entries are samples: `--inputs {' '.join(alike)}`."
        raise DataError(path, name, f"{error.problem} {advice}") from None
