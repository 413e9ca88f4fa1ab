"""The Well's files: HDF5 with fields grouped by tensor order and a grid in `dimensions`.

Attributes state the axes of a data set: `sample_varying`, `time_varying` and `dim_varying`, which has
one value per grid axis. A folder of such files is one split of a benchmark.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions, check_axis, check_increasing
from gpo.data.readers.build import Reader
from gpo.data.readers.hdf5 import (
    array,
    dataset,
    group,
    is_hdf5,
    open_hdf5,
    stored_array,
    text_attribute,
)
from gpo.data.readers.lazy import (
    PERIODIC,
    SITE_DIMS,
    TIME_UNITS,
    TRAJECTORY,
    Stored,
    joined,
)

ORDERS = ("t0_fields", "t1_fields", "t2_fields")
NUMBERS = "fiub"  # dtype kinds
Arrays = Mapping[str, np.ndarray]


def _recognises(path: Path) -> bool:
    """Returns whether there are the groups `dimensions` and `t0_fields`."""
    files = _files(path)
    if not files or not is_hdf5(files[0]):
        return False
    with h5py.File(files[0]) as file:
        return all(isinstance(file.get(key), h5py.Group) for key in ("dimensions", ORDERS[0]))


def open_well(path: Path, options: ReadOptions) -> xr.Dataset:
    """Returns all trajectories, in the order of file names; each component is a variable.

    Files of a folder must agree in grid, variables and time steps; the times are those of
    the first file, since some benchmarks split a long run into several files.
    """
    files = tuple(_describe(file) for file in _files(path))
    if not files:
        raise DataError(path, "file", "must be a folder with .h5 or .hdf5 files, got none.")
    first = files[0]
    for other in files[1:]:
        _check_compatible(first, other)
    if not first.components:
        problem = "are none: the file must have at least one field to predict."
        raise DataError(path, "variables", problem)
    dims = tuple(first.axes)
    fields = {
        name: joined([file.components[name] for file in files]).variable(
            (TRAJECTORY, "time", *dims)
        )
        for name in first.components
    }
    coords = _coordinates(first)
    coords["time"] = xr.Variable("time", first.time, {TIME_UNITS: first.units["time"]})
    for name in first.parameters:
        values = np.concatenate([file.parameters[name] for file in files])
        coords[name] = xr.Variable(TRAJECTORY, values)
    return xr.Dataset(fields, coords, {SITE_DIMS: dims})


@dataclass(frozen=True)
class _File:
    """The content of a file, without values."""

    path: Path
    axes: dict[str, np.ndarray]
    is_periodic: tuple[bool, ...]
    is_cartesian: bool
    time: np.ndarray
    units: dict[str, str]
    num_trajectories: int
    parameters: dict[str, np.ndarray]
    components: dict[str, Stored]
    """Components of fields, with all axes: trajectories, times and those of the grid."""


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(child for child in path.iterdir() if child.suffix in (".h5", ".hdf5"))
    return [path]


def _describe(path: Path) -> _File:
    with open_hdf5(path) as file:
        return _describe_open(path, file)


def _describe_open(path: Path, file: h5py.File) -> _File:
    dimensions = group(path, file, "dimensions")
    names = _names(dimensions, "spatial_dims")
    count = int(file.attrs.get("n_trajectories", 0))
    if not 1 <= len(names) <= 3:
        raise DataError(path, "spatial_dims", f"must name 1, 2 or 3 axes, got {names}.")
    if count < 1:
        raise DataError(path, "n_trajectories", f"must be a positive number, got {count}.")
    axes = {name: check_axis(path, name, _axis(path, dimensions, name)) for name in names}
    time = _axis(path, dimensions, "time")
    if time.size == 0:
        raise DataError(path, "time", "has length zero: there are no frames.")
    return _File(
        path=path,
        axes=axes,
        is_periodic=_periodic(path, file, names),
        is_cartesian=text_attribute(file, "grid_type") in ("", "cartesian"),
        time=check_axis(path, "time", time),
        units={
            name: text_attribute(dataset(path, dimensions, name), "units")
            for name in (*names, "time")
        },
        num_trajectories=count,
        parameters=_parameters(path, file, count),
        components=_components(path, file, axes, (count, len(time))),
    )


def _axis(path: Path, dimensions: h5py.Group, name: str) -> np.ndarray:
    data = dataset(path, dimensions, name)
    values = array(path, dimensions, name)
    if not _flag(data, "sample_varying"):
        return values
    if values.ndim != 2 or len(values) == 0 or np.any(values != values[0]):
        raise DataError(path, name, "must be the same in every sample, got samples that differ.")
    return values[0]


def _periodic(path: Path, file: h5py.File, names: Sequence[str]) -> tuple[bool, ...]:
    periodic: set[str] = set()
    conditions = group(path, file, "boundary_conditions")
    for condition in (group(path, conditions, str(name)) for name in conditions):
        if text_attribute(condition, "bc_type").upper() == "PERIODIC":
            periodic.update(_names(condition, "associated_dims"))
    return tuple(name in periodic for name in names)


def _parameters(path: Path, file: h5py.File, count: int) -> dict[str, np.ndarray]:
    """Returns numeric parameters; attributes have more digits than scalars."""
    parameters: dict[str, np.ndarray] = {}
    for name in _names(file, "simulation_parameters"):
        value = np.asarray(file.attrs.get(name))
        if value.size == 1 and value.dtype.kind in NUMBERS:
            parameters[name] = np.full(count, float(value.item()))
    scalars = group(path, file, "scalars")
    for name in _names(scalars, "field_names"):
        data = dataset(path, scalars, name)
        by_sample = _flag(data, "sample_varying")
        if not _flag(data, "time_varying") and (by_sample or name not in parameters):
            values = np.ravel(array(path, scalars, name)).astype(np.float64)
            if len(values) != (count if by_sample else 1):
                raise DataError(path, name, f"must be one number per sample, got {len(values)}.")
            parameters[name] = np.resize(values, count)
    return parameters


def _components(
    path: Path, file: h5py.File, axes: Arrays, sizes: tuple[int, int]
) -> dict[str, Stored]:
    components: dict[str, Stored] = {}
    dims = (TRAJECTORY, "time", *axes)
    lengths = dict(zip(dims, [*sizes, *map(len, axes.values())], strict=True))
    for order, kind in enumerate(ORDERS):
        fields = group(path, file, kind)
        _check_all_named(path, fields)
        for field in _names(fields, "field_names"):
            data = dataset(path, fields, field)
            labels = _axes_of(path, data, lengths, order)
            for index in itertools.product(range(len(axes)), repeat=order):
                suffix = "".join(list(axes)[entry] for entry in index)
                name = f"{field}_{suffix}" if suffix else field
                if name in components:
                    problem = "must be unique, but is both a field and a component of another."
                    raise DataError(path, name, problem)
                at = {f"entry {number}": entry for number, entry in enumerate(index)}
                components[name] = stored_array(path, data).arranged(labels, dims, at, lengths)
    return components


def _check_all_named(path: Path, fields: h5py.Group) -> None:
    """Raises a `DataError` for data sets missing in `field_names`, which would be ignored."""
    unnamed = [str(name) for name in fields if name not in _names(fields, "field_names")]
    if unnamed:
        problem = f"is in {fields.name}, but its `field_names` do not list it. It may be damaged."
        raise DataError(path, unnamed[0], problem)


def _axes_of(
    path: Path, data: h5py.Dataset, lengths: Mapping[str, int], order: int
) -> tuple[str, ...]:
    """Returns the labels of the axes of a field, which may not depend on all of them."""
    series, axes = list(lengths)[:2], list(lengths)[2:]
    flags = [_flag(data, "sample_varying"), _flag(data, "time_varying")]
    leading = list(itertools.compress(series, flags))
    is_used = np.broadcast_to(np.asarray(data.attrs.get("dim_varying", True), bool), len(axes))
    entries = [f"entry {number}" for number in range(order)]
    known = {**lengths, **dict.fromkeys(entries, len(axes))}
    # The specification drops constant axes; The Well's own loader expects length one.
    kept = [axis if used else f"constant {axis}" for axis, used in zip(axes, is_used, strict=True)]
    dropped = list(itertools.compress(axes, is_used))
    field, shape = str(data.name).rsplit("/", 1)[-1], list(data.shape)
    for labels in ([*leading, *kept, *entries], [*leading, *dropped, *entries]):
        if shape == [known.get(label, 1) for label in labels]:
            break
    else:
        expected = [known.get(label, 1) for label in (*leading, *kept, *entries)]
        raise DataError(path, field, f"must have shape {expected}, got {shape}.")
    if data.dtype.kind not in NUMBERS:
        raise DataError(path, field, f"must hold numbers, got {data.dtype}.")
    return tuple(labels)


def _check_compatible(first: _File, other: _File) -> None:
    """Raises a `DataError` if files differ in more than their values and starting times."""
    axes = zip(first.axes, first.axes.values(), other.axes.values(), strict=False)
    checks = [
        ("spatial_dims", list(first.axes) == list(other.axes)),
        *((name, np.array_equal(axis, other_axis)) for name, axis, other_axis in axes),
        ("boundary_conditions", first.is_periodic == other.is_periodic),
        ("field_names", set(first.components) == set(other.components)),
        ("simulation_parameters", set(first.parameters) == set(other.parameters)),
        ("time", len(first.time) == len(other.time) and _same_steps(first.time, other.time)),
    ]
    for field, is_same in checks:
        if not is_same:
            raise DataError(other.path, field, f"must be as in {first.path.name}.")


def _same_steps(first: np.ndarray, other: np.ndarray) -> bool:
    difference = (first - first[0]) - (other - other[0])
    # Rounding of late times to single precision is far below a thousandth of a step.
    return bool(np.abs(difference).max() * len(difference) <= 1e-3 * np.ptp(first))


def _coordinates(file: _File) -> dict[str, xr.Variable]:
    """Returns the axes: increasing in a box, polar angle or latitude and longitude on a sphere."""
    if not file.is_cartesian and set(file.axes) == {"theta", "phi"}:
        return _sphere(file.path, file.axes)
    return {
        name: xr.Variable(
            name,
            check_increasing(file.path, name, axis),
            {"units": file.units[name], PERIODIC: is_periodic},
        )
        for (name, axis), is_periodic in zip(file.axes.items(), file.is_periodic, strict=True)
    }


def _sphere(path: Path, axes: Arrays) -> dict[str, xr.Variable]:
    """Returns the latitudes of polar angles or latitudes `theta`, and longitudes `phi`, in radians."""
    if list(axes) != ["theta", "phi"]:
        raise DataError(path, "spatial_dims", f"must be theta, phi on a sphere, got {list(axes)}.")
    theta = np.rad2deg(axes["theta"])
    # In single precision, a pole may be off by 1e-5 degrees.
    low, high = theta.min() + 1e-3, theta.max() - 1e-3
    if low >= 0 and high <= 180:
        theta = 90 - theta
    elif low < -90 or high > 90:
        raise DataError(path, "theta", "must lie in [0, π] or [-π/2, π/2], in radians.")
    return {
        "theta": xr.Variable("theta", theta.clip(-90, 90), {"units": "degrees_north"}),
        "phi": xr.Variable("phi", np.rad2deg(axes["phi"]), {"units": "degrees_east"}),
    }


def _flag(item: h5py.Dataset, key: str) -> bool:
    return bool(np.all(item.attrs.get(key, False)))


def _names(item: h5py.Group | h5py.Dataset, key: str) -> list[str]:
    names = np.atleast_1d(np.asarray(item.attrs.get(key, [])))
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names]


READER = Reader(
    name="well",
    layout="The Well's HDF5 file, or a folder of them, with dimensions and t0_fields",
    recognises=_recognises,
    open=open_well,
)
