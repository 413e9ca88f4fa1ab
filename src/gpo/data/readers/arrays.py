"""Named arrays in `.npz`, `.mat`, `.h5` or `.npy` files, or in a folder of `.npy` files.

The role of an array follows from its name, in any case, and its shape.

- Times: `t`, `tt`, `time` or `times`, a vector.
- Axes of a rectilinear grid: vectors `x`, `y`, `z`. If `x` and `y` are 2D arrays of the same shape
  and there are other arrays, they are the coordinates of a curvilinear (body-fitted) grid.
- Axes on the sphere: vectors `lat` and `lon` in degrees, if another array has an axis for each.
- Points: the arrays that `--coords` names, otherwise `coords`, `coordinates`, `points`, `pts`, `pos`,
  `mesh_pos`, `nodes`, `vertices` or `X_star` (points, dim), or another recognised name
  (`names.py`), such as `elem_xy`, or `node_x` and `node_y`; a constant third coordinate is
  dropped.
- Mesh cells: `cells`, `triangles`, `elements` or `faces` (cells, 3 or 4), zero-based indices of
  sites; in `.mat` files also one-based, if the last site occurs and zero does not.
- Static maps: `input` and `output`, `inputs` and `outputs`, `a` and `u`, `coeff` and `sol`, or `x` and
  `y`, with samples along the first axis, in a file without times; other fields are not read. A file
  whose arrays have only the site axes has a single sample. Arrays in `ReadOptions.inputs` are mapped
  to all other fields, or to the requested variables.
- Scalars, vectors with one entry per sample and narrow tables with one row are parameters.
- Arrays of the shape of the sites, and vectors with one entry per time, can be additional inputs
  (`array_roles.py`).
- All others are fields, whose axes `axis_order.py` finds by their lengths. If more than one order of
  axes fits, an error asks for it, such as `--select axes=time,y,x`.

Without coordinates, grid axes are indices, and axes of at most four entries are components. A single
`.npy` file is (time, x) or (time, x, y). An evenly spaced axis is periodic if its last site repeats
the first one smoothly in every frame. A prefix `snapshots_` of all fields is removed from their names.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.array_files import SUFFIXES, open_arrays
from gpo.data.readers.array_roles import (
    check_no_coordinates,
    find_inputs,
    is_extra_input,
    match_series,
    parameter_tables,
    possible_coordinates,
    recognised_sites,
    sample_parameters,
    split_map_inputs,
    stated_sites,
)
from gpo.data.readers.axis_order import (
    BARE_SERIES,
    POINTS,
    SERIES,
    SITE_LABELS,
    SMALLEST_GRID,
    Axes,
    Field,
    Sites,
    common_length,
    find,
    find_sites,
    match,
    match_maps,
    state_order,
)
from gpo.data.readers.base import ReadOptions, check_axis, choose_variables
from gpo.data.readers.build import Reader
from gpo.data.readers.lazy import (
    FIND_PERIODIC,
    INPUTS,
    NAME,
    PART_OF,
    SITE_DIMS,
    TIME_UNITS,
    TRAJECTORY,
    Stored,
    named_dataset,
)
from gpo.data.readers.names import is_cells
from gpo.data.readers.sites import component_names

TIMES = ("t", "tt", "time", "times")
MAP_NAMES = (("input", "output"), ("inputs", "outputs"), ("a", "u"), ("coeff", "sol"), ("x", "y"))
PREFIX = "snapshots_"


def _recognises(path: Path) -> bool:
    """Returns whether the suffix fits, or a folder contains `.npy` files."""
    return any(path.glob("*.npy")) if path.is_dir() else path.suffix in SUFFIXES


def open_named_arrays(path: Path, options: ReadOptions) -> xr.Dataset:
    """Returns static maps if names indicate them and there are no times, else time series."""
    for name in options.select:
        if name != "axes":
            raise DataError(path, name, "cannot be selected here; only `axes` can.")
    arrays = open_arrays(path)
    if options.inputs:
        return _maps_of_inputs(path, arrays, options)
    names = _find_static_map(arrays)
    if names is not None:
        return _maps_of_names(path, arrays, names, options)
    return _time_series(path, arrays, options)


def _time_series(path: Path, arrays: dict[str, Stored], options: ReadOptions) -> xr.Dataset:
    times = find(path, arrays, TIMES, lambda stored: stored.is_vector)
    sites = _find_sites(path, arrays, times, options)
    lengths = {**sites.lengths, **({"time": arrays[times].size} if times else {})}
    axes = Axes(lengths, sites.orders)
    stated = options.select.get("axes") or _convention(path, arrays)
    if stated:
        axes = state_order(path, stated, axes, ["time"])
    patterns = BARE_SERIES if axes.is_bare else SERIES
    rest = {name: arrays[name] for name in arrays if name not in (times, *sites.used)}
    state = {name: stored for name, stored in rest.items() if name not in options.extra_inputs}
    tables = parameter_tables(state, lengths.get("time"))
    fields = {name: array for name, array in state.items() if name not in tables}
    possible = _possible_fields(path, fields, options.variables)
    changing = {
        name: array for name, array in possible.items() if not is_extra_input(axes, array, patterns)
    }
    if axes.is_bare and not stated and not options.variables:
        check_no_coordinates(path, rest)
    fields = [
        match_series(path, name, stored, axes, patterns, rest)
        for name, stored in (changing or possible).items()
    ]
    if axes.is_bare and not stated:
        _check_no_line(path, rest, fields)
    num_times = common_length(path, fields, "time")
    count = common_length(path, fields, "sample")
    for name in tables if not options.variables else ():
        if rest[name].shape[0] != count:
            match(path, name, rest[name], axes, patterns)
    extra = find_inputs(path, rest, fields, num_times)
    is_known = [name for name, part in extra.items() if times or "time" not in part.dims]
    parameters = sample_parameters(
        path, rest, fields, count, bool(options.variables),
        {*is_known, *options.extra_inputs}, None if times or stated else num_times,
    )  # fmt: skip
    parameters |= {name: rest[name].values() for name in tables if rest[name].shape[0] == count}
    columns = _columns(path, fields, sites, options.variables, ("sample", "time"))
    content = _dataset(columns, sites, parameters, extra)
    content.attrs[FIND_PERIODIC] = True
    if times:
        time = check_axis(path, times, np.ravel(arrays[times].values()))
        content["time"] = xr.Variable("time", time, {TIME_UNITS: arrays[times].units})
    return content.rename(sample=TRAJECTORY)


def _maps_of_inputs(path: Path, arrays: dict[str, Stored], options: ReadOptions) -> xr.Dataset:
    """Returns maps with the named inputs: fields, or scalars of each sample."""
    choose_variables(path, options.inputs, list(arrays))
    others = {name: array for name, array in arrays.items() if name not in options.inputs}
    sites = find_sites(path, others)
    rest = {name: array for name, array in others.items() if name not in sites.used}
    targets = _possible_fields(path, rest, options.variables)
    outputs = match_maps(path, targets, sites, options.select.get("axes"), options.num_files)
    fields, scalars = split_map_inputs(path, {n: arrays[n] for n in options.inputs}, outputs)
    names = [*(field.name for field in fields), *(options.variables or targets)]
    columns = _columns(path, [*fields, *outputs], sites, names, ("sample",))
    inputs = [name for name, part in columns.items() if part.attrs[PART_OF] in options.inputs]
    return _maps(path, {**scalars, **columns}, (*scalars, *inputs), sites, rest, outputs)


def _maps_of_names(
    path: Path, arrays: dict[str, Stored], names: tuple[str, str], options: ReadOptions
) -> xr.Dataset:
    """Returns maps between two arrays whose names say so."""
    others = {name: stored for name, stored in arrays.items() if name not in names}
    sites = _find_sites(path, others, None, options)
    both = {name: arrays[name] for name in names}
    fields = match_maps(path, both, sites, options.select.get("axes"), options.num_files)
    columns = _columns(path, fields, sites, options.variables, ("sample",))
    sides = [[key for key, part in columns.items() if part.attrs[PART_OF] == n] for n in names]
    for name, side in zip(names, sides, strict=True):
        if not side:
            problem = "must be among the variables: a map needs input and output."
            raise DataError(path, name, problem)
    rest = {name: stored for name, stored in others.items() if name not in sites.used}
    return _maps(path, columns, sides[0], sites, rest, fields)


def _maps(
    path: Path,
    variables: Mapping[str, xr.Variable],
    inputs: Sequence[str],
    sites: Sites,
    rest: Mapping[str, Stored],
    fields: Sequence[Field],
) -> xr.Dataset:
    count = common_length(path, fields, "sample")
    content = _dataset(variables, sites, sample_parameters(path, rest, fields, count, True), {})
    by_name = {part.attrs.get(NAME, name): name for name, part in content.variables.items()}
    content.attrs[INPUTS] = [str(by_name[name]) for name in inputs]
    return content


def _columns(
    path: Path,
    fields: Sequence[Field],
    sites: Sites,
    requested: Sequence[str],
    leading: tuple[str, ...],
) -> dict[str, xr.Variable]:
    """Returns the requested components of fields on common sites, or all.

    Args:
        path: The file, for error messages.
        fields: The fields.
        sites: Their sites.
        requested: Names of variables, or of arrays, which select all their components.
        leading: Labels of the axes before those of sites.
    """
    labels = max((field.sites for field in fields), key=len)
    for label in labels:
        common_length(path, fields, label)
    columns: dict[str, xr.Variable] = {}
    for field in fields:
        count = field.length("component")
        for number, name in enumerate(component_names(field.name, count, sites.dim or len(labels))):
            columns[name] = field.variable((*leading, *labels), number)
            columns[name].attrs[PART_OF] = field.name
    chosen = [
        part
        for name in requested
        for part in [n for n, column in columns.items() if column.attrs[PART_OF] == name] or [name]
    ]
    return {name: columns[name] for name in choose_variables(path, chosen, list(columns))}


def _dataset(
    fields: Mapping[str, xr.Variable],
    sites: Sites,
    parameters: Mapping[str, np.ndarray],
    extra: Mapping[str, xr.Variable],
) -> xr.Dataset:
    """Returns the data set of fields, sites, parameters of samples, and possible inputs."""
    dims = next(part.dims for part in fields.values() if len(part.dims) > 1)
    site_dims = [dim for dim in dims if dim in SITE_LABELS]
    numbers = {
        name: xr.Variable(("sample", f"{name}_columns")[: values.ndim], values)
        for name, values in parameters.items()
    }
    everything = {**extra, **fields}
    return named_dataset(everything, sites.coords, {SITE_DIMS: site_dims}, numbers)


def _find_sites(
    path: Path, arrays: Mapping[str, Stored], times: str | None, options: ReadOptions
) -> Sites:
    """Returns the sites by the coordinates that the user states, or by recognised names."""
    others = {name: stored for name, stored in arrays.items() if name != times}
    if options.coords:
        return stated_sites(path, others, options.coords)
    if "axes" in options.select:
        return find_sites(path, others)
    if any(map(is_cells, others)) and not any(name.lower() in POINTS for name in others):
        # Cells of points whose coordinates are vectors, such as lon and lat.
        sites = recognised_sites(path, others)
        if sites is not None:
            return sites
    sites = find_sites(path, others) if not _are_columns(others) else None
    if sites is not None and sites.used:
        has_cells = len(sites.used) == 1 and any(is_cells(name) for name in others)
        is_unstructured = sites.orders == (("points",),)
        return stated_sites(path, others, sites.used) if is_unstructured and has_cells else sites
    return recognised_sites(path, others) or find_sites(path, others)


def _are_columns(arrays: Mapping[str, Stored]) -> bool:
    """Returns whether vectors x and y are coordinates of points: no array has an axis for each."""
    pair = [arrays[name] for name in arrays if name.lower() in ("x", "y")]
    sizes = {stored.size for stored in pair if stored.is_vector}
    if len(pair) != 2 or len(sizes) != 1 or not all(stored.is_vector for stored in pair):
        return False
    (size,) = sizes
    shapes = [stored.shape for stored in arrays.values() if not stored.is_vector]
    return size > 1 and bool(shapes) and all(shape.count(size) == 1 for shape in shapes)


def _check_no_line(path: Path, rest: Mapping[str, Stored], fields: Sequence[Field]) -> None:
    """Raises a `DataError` if sites would be read as a line but may have coordinates."""
    if any(field.sites != ("x",) for field in fields):
        return
    count = fields[0].length("x")
    names = possible_coordinates(rest, count, [field.name for field in fields])
    if names:
        order = ",".join(fields[0].order)
        problem = (
            f"may be coordinates of the {count} sites. If so: `--coords {' '.join(names)}`; "
            f"if the sites are a line: `--select axes={order}`."
        )
        raise DataError(path, names[0], problem)


def _find_static_map(arrays: Mapping[str, Stored]) -> tuple[str, str] | None:
    """Returns the names of the input and the output of static maps; None for time series."""
    by_name = {name.lower(): name for name, stored in arrays.items() if not stored.is_vector}
    vectors = [name for name, stored in arrays.items() if stored.is_vector and stored.size > 1]
    if any(name.lower() in TIMES for name in vectors):
        return None
    for first, second in MAP_NAMES:
        # If there are other fields, x and y are coordinates.
        is_alone = len(by_name) == 2 or (first, second) != ("x", "y")
        if first in by_name and second in by_name and is_alone:
            return by_name[first], by_name[second]
    return None


def _convention(path: Path, arrays: Mapping[str, Stored]) -> str | None:
    """Returns the conventional order of axes of a single `.npy` file."""
    if path.is_dir() or path.suffix != ".npy":
        return None
    (stored,) = arrays.values()
    if min(stored.shape[1:], default=0) < SMALLEST_GRID:
        return None
    return {2: "time,x", 3: "time,x,y"}.get(len(stored.shape))


def _possible_fields(
    path: Path, rest: Mapping[str, Stored], requested: Sequence[str]
) -> dict[str, Stored]:
    """Returns the arrays that must be fields: all, or those with requested variables."""
    several = {name: stored for name, stored in rest.items() if stored.size > 1}
    tables = {name: stored for name, stored in several.items() if not stored.is_vector}
    fields = tables or several
    if not fields:
        content = ", ".join(f"{name} {stored.shape}" for name, stored in rest.items()) or "nothing"
        raise DataError(path, "variables", f"are none: besides coordinates there is {content}.")
    if all(name.startswith(PREFIX) for name in fields):
        fields = {name.removeprefix(PREFIX): stored for name, stored in fields.items()}
    kept = {
        name: stored
        for name, stored in fields.items()
        if not requested or any(part == name or part.startswith(f"{name}_") for part in requested)
    }
    if not kept:
        choose_variables(path, requested, list(fields))
    return kept


READER = Reader(
    name="arrays",
    layout="named arrays in .npz, .npy, .mat, .h5, .pt or a folder of .npy files",
    recognises=_recognises,
    open=open_named_arrays,
    takes_inputs=True,
    handles=("coords", "inputs", "select", "variables"),
)
