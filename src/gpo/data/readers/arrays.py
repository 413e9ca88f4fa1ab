"""Users' own arrays: `.npz`, `.mat`, `.h5`, `.npy`, or a folder of `.npy` files.

Names and shapes decide which array is what; capitals do not matter.

- Times: `t`, `tt`, `time` or `times`, a vector.
- Axes of a rectilinear grid: `x`, `y`, `z`, vectors. Where `x` and `y` are two-dimensional and
  of one shape, and there are other arrays, they are the mesh of a body-fitted grid.
- Points: arrays that `--coords` names, else `coords`, `coordinates`, `points`, `pts`, `pos`, `mesh_pos`, `nodes`, `vertices` or
  `X_star` (points, dim), or any other telling name (`coordinate_names.py`), such as `elem_xy`, or
  `node_x` and `node_y`; a constant third coordinate is dropped.
- Mesh cells: `cells`, `triangles`, `elements` or `faces` (cells, 3 or 4), which count sites from
  zero; in `.mat` files also from one, where the last site is named and number zero is not.
- Static maps: `input` and `output`, `inputs` and `outputs`, `a` and `u`, `coeff` and `sol`, or
  `x` and `y`, whose first axis is samples, in a file without times; other fields are not read.
  A file whose arrays have the axes of the sites alone holds one sample.
  Names in `inputs` are mapped to all other fields, or to the variables that are named.
- Single numbers, and vectors with one entry per sample, are parameters.
- Arrays of the shape of the sites, and vectors with one entry per time, may be inputs beside the
  variables (`array_inputs.py`).
- All else are fields, whose axes `axis_order.py` finds by lengths. Where more than one order of
  axes fits, the file is refused and the user says `--select axes=time,y,x`, or the like.

Without coordinates the axes of a grid are numbered, and at most four entries are components. A
single `.npy` file is (time, x) or (time, x, y). An even axis is periodic where its last site is
the first one again in every frame, without a kink; else it is taken as open. A prefix
`snapshots_` that all fields have is dropped from their names.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from gpo.data.dataset import (
    DataError,
    RowReader,
    StaticMaps,
    Trajectories,
    Variable,
    fetch_with_scalars,
)
from gpo.data.geometry import Geometry
from gpo.data.readers.array_files import SUFFIXES, Stored, open_arrays
from gpo.data.readers.array_inputs import find_array_candidates, is_beside, split_map_inputs
from gpo.data.readers.array_sites import (
    check_no_coordinates,
    possible_coordinates,
    recognised_sites,
    stated_sites,
)
from gpo.data.readers.axis_order import (
    BARE_SERIES,
    SERIES,
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
from gpo.data.readers.base import AbstractReader, ReadOptions, check_axis, choose_variables
from gpo.data.readers.coordinate_names import is_cells
from gpo.data.readers.sites import (
    Column,
    choose_columns,
    close_axes,
    component_names,
    mask_missing,
    portions,
)

TIMES = ("t", "tt", "time", "times")
MAP_NAMES = (("input", "output"), ("inputs", "outputs"), ("a", "u"), ("coeff", "sol"), ("x", "y"))
PREFIX = "snapshots_"


class ArraysReader(AbstractReader):
    """Time series or static maps on a grid, on scattered points or on a mesh."""

    name = "arrays"
    layout = "named arrays in .npz, .npy, .mat, .h5 or a folder of .npy files"
    takes_inputs = True

    def recognises(self, path: Path) -> bool:
        """Goes by the suffix; a folder must hold `.npy` files."""
        return any(path.glob("*.npy")) if path.is_dir() else path.suffix in SUFFIXES

    def read(self, path: Path, options: ReadOptions) -> Trajectories | StaticMaps:
        """Returns a static map where names say so and there are no times, else a time series."""
        for name in options.select:
            if name != "axes":
                raise DataError(path, name, "cannot be selected here; only `axes` can.")
        arrays = open_arrays(path)
        if options.inputs:
            return self._read_maps_of(path, arrays, options)
        names = _find_static_map(arrays)
        if names is not None:
            return self._read_static_maps(path, arrays, names, options)
        return self._read_series(path, arrays, options)

    def _read_series(
        self, path: Path, arrays: dict[str, Stored], options: ReadOptions
    ) -> Trajectories:
        times = find(path, arrays, TIMES, lambda stored: stored.is_vector)
        sites = _find_sites(path, arrays, times, options)
        lengths = {**sites.lengths, **({"time": arrays[times].size} if times else {})}
        axes = Axes(lengths, sites.orders)
        stated = options.select.get("axes") or _convention(path, arrays)
        if stated:
            axes = state_order(path, stated, axes, ["time"])
        patterns = BARE_SERIES if axes.is_bare else SERIES
        rest = {name: arrays[name] for name in arrays if name not in (times, *sites.used)}
        state = {name: stored for name, stored in rest.items() if name not in options.beside}
        found = _candidates(path, state, options.variables)
        changing = {name: one for name, one in found.items() if not is_beside(axes, one, patterns)}
        if axes.is_bare and not stated and not options.variables:
            check_no_coordinates(path, rest)
        fields = [
            match(path, name, stored, axes, patterns)
            for name, stored in (changing or found).items()
        ]
        if axes.is_bare and not stated:
            _check_no_line(path, rest, fields)
        num_times = common_length(path, fields, "time")
        time = np.ravel(arrays[times].values()) if times else np.arange(num_times)
        count = common_length(path, fields, "sample")
        content = _Content.of(path, fields, sites, options.variables)
        fetch = RowReader(content.frames, content.row_size)
        geometry = close_axes(content.geometry, portions(fetch, range(count), num_times))
        frames = portions(fetch, range(count), num_times)
        candidates = find_array_candidates(path, rest, fields, num_times)
        told = {one.variable.name for one in candidates if times or one.kind == "static"}
        is_choice = bool(options.variables)
        return Trajectories(
            layout=self.name,
            source=path,
            variables=tuple(Variable(name, content.units(name)) for name in content.names),
            geometries=(mask_missing(path, content.names, geometry, frames),),
            time=check_axis(path, times or "time", time),
            time_units=arrays[times].units if times else "",
            num_trajectories=count,
            fetch=fetch,
            parameters=_parameters(path, rest, fields, count, is_choice, {*told, *options.beside}),
            candidates=candidates,
        )

    def _read_maps_of(
        self, path: Path, arrays: dict[str, Stored], options: ReadOptions
    ) -> StaticMaps:
        """Returns maps whose inputs are named: fields, or numbers of every sample."""
        choose_variables(path, options.inputs, list(arrays))
        others = {name: one for name, one in arrays.items() if name not in options.inputs}
        sites = find_sites(path, others)
        rest = {name: one for name, one in others.items() if name not in sites.used}
        wanted = _candidates(path, rest, options.variables)
        outputs = match_maps(path, wanted, sites, options.select.get("axes"), options.num_files)
        given = {name: arrays[name] for name in options.inputs}
        fields, numbers, values = split_map_inputs(path, given, outputs)
        count = common_length(path, outputs, "sample")
        named = [*(field.name for field in fields), *(options.variables or wanted)]
        content = _Content.of(path, [*fields, *outputs], sites, named)
        variables = tuple(Variable(name, content.units(name)) for name in content.names)
        width = sum(column.array in options.inputs for column in content.columns)
        frames = (content.read(sample=sample)[None] for sample in range(count))
        return StaticMaps(
            layout=self.name,
            source=path,
            inputs=(*numbers, *variables[:width]),
            outputs=variables[width:],
            geometries=(mask_missing(path, content.names, content.geometry, frames),),
            num_samples=count,
            fetch=partial(fetch_with_scalars, partial(content.two_sides, width), values),
            parameters=_parameters(path, rest, outputs, count, True),
        )

    def _read_static_maps(
        self, path: Path, arrays: dict[str, Stored], names: tuple[str, str], options: ReadOptions
    ) -> StaticMaps:
        others = {name: stored for name, stored in arrays.items() if name not in names}
        sites = _find_sites(path, others, None, options)
        both = {name: arrays[name] for name in names}
        fields = match_maps(path, both, sites, options.select.get("axes"), options.num_files)
        count = common_length(path, fields, "sample")
        content = _Content.of(path, fields, sites, options.variables)
        # Columns may be asked for in any order; those of the input come first.
        sides = [[column for column in content.columns if column.array == name] for name in names]
        for name, side in zip(names, sides, strict=True):
            if not side:
                raise DataError(path, name, "must be among the variables: a map has two sides.")
        content = replace(content, columns=tuple(sides[0] + sides[1]))
        variables = tuple(Variable(name, content.units(name)) for name in content.names)
        width = len(sides[0])
        frames = (content.read(sample=sample)[None] for sample in range(count))
        rest = {name: stored for name, stored in others.items() if name not in sites.used}
        return StaticMaps(
            layout=self.name,
            source=path,
            inputs=variables[:width],
            outputs=variables[width:],
            geometries=(mask_missing(path, content.names, content.geometry, frames),),
            num_samples=count,
            fetch=partial(content.two_sides, width),
            parameters=_parameters(path, rest, fields, count, True),
        )


@dataclass(frozen=True)
class _Content:
    """Fields on common sites, and which of their components to read."""

    fields: Mapping[str, Field]
    columns: tuple[Column, ...]
    geometry: Geometry
    rows: str
    """Label of the first axis of the sites."""

    @classmethod
    def of(
        cls, path: Path, fields: Sequence[Field], sites: Sites, wanted: Sequence[str]
    ) -> "_Content":
        labels = max((field.sites for field in fields), key=len)
        geometry = sites.build([common_length(path, fields, label) for label in labels])
        dim = geometry.coords.shape[1]
        components = {
            field.name: component_names(field.name, field.length("component"), dim)
            for field in fields
        }
        columns = choose_columns(path, wanted, components)
        return cls({field.name: field for field in fields}, tuple(columns), geometry, labels[0])

    @property
    def names(self) -> list[str]:
        return [column.variable for column in self.columns]

    def units(self, variable: str) -> str:
        column = self.columns[self.names.index(variable)]
        return self.fields[column.array].stored.units

    @property
    def row_size(self) -> int:
        """Sites of one entry along the first axis."""
        length = max(field.length(self.rows) for field in self.fields.values())
        return self.geometry.num_points // length

    def frames(self, trajectory: int, times: slice, rows: slice) -> np.ndarray:
        return self.read(sample=trajectory, time=times, **{self.rows: rows})

    def two_sides(self, width: int, sample: int) -> tuple[np.ndarray, np.ndarray]:
        values = self.read(sample=sample)
        return values[:, :width], values[:, width:]

    def read(self, **index: int | slice) -> np.ndarray:
        arrays = dict.fromkeys(column.array for column in self.columns)
        parts = {name: self.fields[name].read(**index) for name in arrays}
        return np.stack([parts[one.array][..., one.component] for one in self.columns], -1)


def _find_sites(
    path: Path, arrays: Mapping[str, Stored], times: str | None, options: ReadOptions
) -> Sites:
    """Returns the sites by what the user says, by the usual names, or by telling names."""
    others = {name: stored for name, stored in arrays.items() if name != times}
    if options.coords:
        return stated_sites(path, others, options.coords)
    if "axes" in options.select:
        return find_sites(path, others)
    usual = find_sites(path, others) if not _are_columns(others) else None
    if usual is not None and usual.used:
        has_more = len(usual.used) == 1 and any(is_cells(name) for name in others)
        is_cloud = usual.orders == (("points",),)
        return stated_sites(path, others, usual.used) if is_cloud and has_more else usual
    return recognised_sites(path, others) or find_sites(path, others)


def _are_columns(arrays: Mapping[str, Stored]) -> bool:
    """Returns whether vectors x and y place points one by one: no array has an axis for each."""
    pair = [arrays[name] for name in arrays if name.lower() in ("x", "y")]
    sizes = {stored.size for stored in pair if stored.is_vector}
    if len(pair) != 2 or len(sizes) != 1 or not all(stored.is_vector for stored in pair):
        return False
    (size,) = sizes
    shapes = [stored.shape for stored in arrays.values() if not stored.is_vector]
    return size > 1 and bool(shapes) and all(shape.count(size) == 1 for shape in shapes)


def _check_no_line(path: Path, rest: Mapping[str, Stored], fields: Sequence[Field]) -> None:
    """Refuses to read sites as a line where other arrays may be their coordinates."""
    if any(field.sites != ("x",) for field in fields):
        return
    count = fields[0].length("x")
    suspects = possible_coordinates(rest, count, [field.name for field in fields])
    if suspects:
        order = ",".join(fields[0].order)
        problem = (
            f"may be coordinates of the {count} sites, which would else be a line. Say so: "
            f"`--coords {' '.join(suspects)}`; or that it is a line: `--select axes={order}`."
        )
        raise DataError(path, suspects[0], problem)


def _find_static_map(arrays: Mapping[str, Stored]) -> tuple[str, str] | None:
    """Returns the names of the input and the output of a static map."""
    by_name = {name.lower(): name for name, stored in arrays.items() if not stored.is_vector}
    vectors = [name for name, stored in arrays.items() if stored.is_vector and stored.size > 1]
    if any(name.lower() in TIMES for name in vectors):
        return None
    for first, second in MAP_NAMES:
        # Beside other fields, x and y are coordinates.
        is_alone = len(by_name) == 2 or (first, second) != ("x", "y")
        if first in by_name and second in by_name and is_alone:
            return by_name[first], by_name[second]
    return None


def _convention(path: Path, arrays: Mapping[str, Stored]) -> str | None:
    """Returns the order of axes of a single `.npy` file, where nothing else could say it."""
    if path.is_dir() or path.suffix != ".npy":
        return None
    (stored,) = arrays.values()
    if min(stored.shape[1:], default=0) < SMALLEST_GRID:
        return None
    return {2: "time,x", 3: "time,x,y"}.get(len(stored.shape))


def _candidates(path: Path, rest: Mapping[str, Stored], wanted: Sequence[str]) -> dict[str, Stored]:
    """Returns the arrays that must be fields: all, or those whose names are wanted."""
    several = {name: stored for name, stored in rest.items() if stored.size > 1}
    tables = {name: stored for name, stored in several.items() if not stored.is_vector}
    fields = tables or several
    if not fields:
        there = ", ".join(f"{name} {stored.shape}" for name, stored in rest.items()) or "nothing"
        raise DataError(path, "variables", f"are none: beside coordinates there is {there}.")
    if all(name.startswith(PREFIX) for name in fields):
        fields = {name.removeprefix(PREFIX): stored for name, stored in fields.items()}
    kept = {
        name: stored
        for name, stored in fields.items()
        if not wanted or any(one == name or one.startswith(f"{name}_") for one in wanted)
    }
    if not kept:
        choose_variables(path, wanted, list(fields))
    return kept


def _parameters(
    path: Path,
    rest: Mapping[str, Stored],
    fields: Sequence[Field],
    count: int,
    is_choice: bool,
    told: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """Returns single numbers, and vectors of one number per sample; other vectors are refused.

    Args:
        path: The file, for messages.
        rest: Arrays that are neither coordinates nor times.
        fields: Those of them that are fields.
        count: Number of samples.
        is_choice: Whether variables were named, so that others may be anything.
        told: Arrays whose meaning is clear.
    """
    known = [field.stored for field in fields]
    parameters: dict[str, np.ndarray] = {}
    for name, stored in rest.items():
        if stored in known or not stored.is_vector:
            continue
        if stored.size in (1, count):
            parameters[name] = np.broadcast_to(np.ravel(stored.values()), (count,)).copy()
        elif not is_choice and name not in told:
            alike = " ".join(n for n, one in rest.items() if one.shape == stored.shape)
            length = fields[0].length("time")
            advice = f" `--forcing {alike}` where they belong to the {length} frames, `--inputs {alike}` where frames are samples."  # fmt: skip
            problem = (
                f"has shape {stored.shape}, which is neither a field nor one number for each of "
                f"{count} samples. Leave it out by naming the variables to read: `--var "
                f"{fields[0].name}`.{advice if stored.size == length else ''}"
            )
            raise DataError(path, name, problem)
    return parameters
