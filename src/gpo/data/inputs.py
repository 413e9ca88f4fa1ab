"""Opens a file together with the inputs that a model gets beside the state."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from gpo.data.dataset import DataError, StaticMaps, Trajectories, Variable, with_numbers
from gpo.data.forcing_config import ForcingConfig
from gpo.data.forcings import (
    AbstractForcing,
    FieldForcing,
    Parameters,
    SeriesForcing,
    StaticFields,
)
from gpo.data.geometry import Geometry
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data, open_static
from gpo.numerics.domain import unit_vectors

MAX_BYTES = 2**29
"""Prescribed fields up to this size are kept in memory."""
NUM_LOOKS = 8
"""Frames in which a field that shall not change is compared."""


def open_with_forcings(
    path: str | Path | Sequence[str | Path],
    options: ReadOptions,
    chosen: ForcingConfig,
    *,
    reserve: Path | None = None,
) -> Trajectories | StaticMaps:
    """Returns the data of a file with forcings before its variables, or more inputs of its maps.

    Args:
        path: A file, a folder, a pattern, or several files.
        options: What to read of it.
        chosen: The inputs, by the names that the file has for them.
        reserve: Where static fields come from that the file lacks.
    """
    named = (*chosen.static, *chosen.forcing)
    data = open_data(path, replace(options, beside=named))
    if isinstance(data, StaticMaps):
        return _with_more_inputs(data, chosen)
    left = tuple(one.name for one in data.variables if one.name not in named)
    if not left:
        problem = "are all inputs: name one that is predicted with --var."
        raise DataError(data.source, "variables", problem)
    if len(left) < len(data.variables):
        # What is missing in a forcing alone shall not mask a site.
        data = open_data(path, replace(options, variables=left, beside=named))
        assert isinstance(data, Trajectories)
    source = _Source(path, options, data)
    elsewhere = source
    if chosen.static_from is not None:
        elsewhere = replace(
            source, path=Path(chosen.static_from), options=ReadOptions(), is_own=False
        )
    known: list[AbstractForcing] = []
    for name in chosen.static:
        try:
            known.append(elsewhere.static(name))
        except DataError as error:
            if reserve is None or chosen.static_from is not None:
                raise
            try:
                known.append(replace(source, path=reserve, is_own=False).static(name))
            except DataError:
                raise error from None
    known += [source.forcing(name) for name in chosen.forcing]
    known += [_parameter(data, name) for name in chosen.parameters]
    return replace(data, known=tuple(known)).with_time_features(chosen.time_features)


@dataclass(frozen=True)
class _Source:
    """A file that holds inputs, and the data that they belong to."""

    path: str | Path | Sequence[str | Path]
    options: ReadOptions
    data: Trajectories
    is_own: bool = True
    """Whether it is the file of the data itself."""

    @property
    def name(self) -> Path:
        """What the file is called in messages."""
        return self.data.source if self.is_own else Path(str(self.path))

    def static(self, name: str) -> StaticFields:
        """Returns a field that does not change in time."""
        here = self._candidate(name, "static")
        if here is None and not self.is_own:
            here = self._elsewhere(name)
        if here is not None:
            variable, values = here
            values = values.reshape(-1, self.data.geometry().num_points)
            variables, rows = (variable,), [row[:, None] for row in values]
        else:
            variables, rows = self._constant(name)
        told: list[str] = []
        for row in rows:
            is_known = np.isfinite(row)
            if not is_known.any(0).all():
                raise DataError(self.name, name, "holds no number at all: it cannot be an input.")
            if not is_known.all():
                told = [f"{name} is missing at {np.sum(~is_known.all(1)):,} sites, where its mean stands"]  # fmt: skip
            np.copyto(row, np.nanmean(row, 0), where=~is_known)
        return StaticFields(variables, tuple(rows), "; ".join(told))

    def forcing(self, name: str) -> AbstractForcing:
        """Returns a variable that is prescribed at every time."""
        here = self._candidate(name, "series")
        if here is not None:
            variable, values = here
            values = values.reshape(-1, len(self.data.time), 1)
            if not np.isfinite(values).all():
                raise DataError(self.name, name, "must be known at every time, got NaN.")
            return SeriesForcing((variable,), values)
        other, numbers = self._series(name, "--forcing")
        if len(other.time) != len(self.data.time) or not np.allclose(other.time, self.data.time):
            raise DataError(self.name, name, "must have the times of the other variables.")
        note = ""
        num_missing = int(other.geometry().is_masked[numbers].sum())
        if num_missing:
            note = f"{name} is missing at {num_missing:,} sites, where its mean at each time stands"
        return FieldForcing(other.variables, _Fields(other, numbers), len(other.time), note=note)

    def _candidate(self, name: str, kind: str) -> tuple[Variable, np.ndarray] | None:
        if not self.is_own:
            return None
        for one in self.data.candidates:
            if one.variable.name == name and one.kind == kind:
                return one.variable, np.array(one.read(), dtype=np.float64)
        return None

    def _elsewhere(self, name: str) -> tuple[Variable, np.ndarray] | None:
        """Returns a field without a time axis of another file, at the sites of the data."""
        found = open_static(self.name, name, self.options)
        if found is None:
            return None
        variable, values, geometry = found
        numbers = _same_sites(self.name, name, geometry, self.data.geometry())
        return variable, np.array(values[..., numbers], dtype=np.float64)

    def _constant(self, name: str) -> tuple[tuple[Variable, ...], list[np.ndarray]]:
        """Returns a variable with a time axis along which nothing changes."""
        other, numbers = self._series(name, "--static")
        rows: list[np.ndarray] = []
        looks = np.unique(np.linspace(0, len(other.time) - 1, NUM_LOOKS).astype(int)).tolist()
        for trajectory in range(other.num_trajectories):
            frames = [other.frames(trajectory, slice(n, n + 1))[0] for n in looks]
            if any(not np.array_equal(frame, frames[0], equal_nan=True) for frame in frames):
                problem = f"changes in time. Prescribe it at every time: --forcing {name}"
                raise DataError(self.name, name, problem)
            rows.append(frames[0][numbers].astype(np.float64))
        if other.num_trajectories not in (1, self.data.num_trajectories):
            problem = f"must be one field or {self.data.num_trajectories}, one per trajectory."
            raise DataError(self.name, name, problem)
        return other.variables, rows

    def _series(self, name: str, flag: str) -> tuple[Trajectories, np.ndarray]:
        """Returns a variable as a time series, and its sites that are those of the data."""
        if len(self.data.geometries) > 1:
            problem = "lies on sites that differ from trajectory to trajectory: not supported."
            raise DataError(self.name, name, problem)
        try:
            other = self._open(name)
        except DataError as error:
            problem = f"cannot be given with {flag}: {error.problem} {self._told()}"
            raise DataError(self.name, name, problem.strip()) from error
        if isinstance(other, StaticMaps):
            raise DataError(self.name, name, "is part of a static map, not a time series.")
        return other, _same_sites(self.name, name, other.geometry(), self.data.geometry())

    def _open(self, name: str) -> Trajectories | StaticMaps:
        """Opens one variable; what is selected of the state may be no dimension of it."""
        select = dict(self.options.select)
        while True:
            options = replace(self.options, variables=(name,), beside=(), select=select)
            try:
                return open_data(self.path, options)
            except DataError as error:
                if error.field not in select:
                    raise
                select = {dim: text for dim, text in select.items() if dim != error.field}

    def _told(self) -> str:
        """Returns the flags that would give what there is."""
        if not self.is_own:
            return ""
        flags = [
            *(f"--static {one.variable.name}" for one in self.data.candidates if one.kind == "static"),
            *(f"--forcing {one.variable.name}" for one in self.data.candidates if one.kind == "series"),
            *(f"--parameters {name}" for name in self.data.parameters),
        ]  # fmt: skip
        return f"There are: {', '.join(flags)}." if flags else ""


@dataclass(frozen=True)
class _Fields:
    """Reads prescribed fields by frame; what is missing is the mean of what is known then."""

    data: Trajectories
    numbers: np.ndarray
    kept: dict[int, np.ndarray] = field(default_factory=dict)
    """Whole trajectories, where they are small."""

    def __call__(self, trajectory: int, frames: np.ndarray) -> np.ndarray:
        trajectory = trajectory if self.data.num_trajectories > 1 else 0
        count, size = len(self.data.time), len(self.numbers) * len(self.data.variables)
        if 4 * self.data.num_trajectories * count * size > MAX_BYTES:
            parts = [self._read(trajectory, slice(n, n + 1)) for n in frames.tolist()]
            return np.concatenate(parts) if parts else np.zeros((0, len(self.numbers), 1))
        if trajectory not in self.kept:
            self.kept[trajectory] = self._read(trajectory, slice(None))
        return self.kept[trajectory][frames]

    def _read(self, trajectory: int, times: slice) -> np.ndarray:
        values = self.data.frames(trajectory, times)[:, self.numbers]
        values = values.astype(np.result_type(values.dtype, np.float32), copy=False)
        is_known = np.isfinite(values)
        if not is_known.any(1).all():
            name = self.data.variables[0].name
            first = int(np.flatnonzero(~is_known.any((1, 2)))[0])
            problem = f"must be known at every time, got none in frame {first} of those read."
            raise DataError(self.data.source, name, problem)
        if is_known.all():
            return values
        total = np.where(is_known, values, 0).sum(1, keepdims=True, dtype=np.float64)
        return np.where(is_known, values, total / is_known.sum(1, keepdims=True)).astype(
            values.dtype
        )


def _same_sites(path: Path, name: str, there: Geometry, wanted: Geometry) -> np.ndarray:
    """Returns the numbers of the sites of a file at which data lie; refuses other places."""
    places = _places(there), _places(wanted)
    if np.array_equal(*places):
        return np.arange(there.num_points)
    if places[0].shape[1] != places[1].shape[1]:
        problem = f"must have sites of {places[1].shape[1]} coordinates as the data, got"
        raise DataError(path, name, f"{problem} {places[0].shape[1]}.")
    from scipy.spatial import KDTree

    distances, found = KDTree(places[0]).query(places[1])
    spacing = KDTree(places[1]).query(places[1][:64], k=min(2, wanted.num_points))[0].max()
    num_off = int(np.sum(distances > 0.01 * spacing))
    if num_off:
        problem = (
            f"must be known at the sites of the data; {num_off:,} of {wanted.num_points:,} are not "
            "in this file. Interpolate it to their grid first."
        )
        raise DataError(path, name, problem)
    return np.asarray(found)


def _places(geometry: Geometry) -> np.ndarray:
    """Returns where sites are in a frame that files share: true positions, where they are known."""
    degrees = geometry.true_degrees()
    if degrees is None:
        return geometry.coords
    return unit_vectors(*torch.from_numpy(degrees).unbind(-1)).numpy()


def _parameter(data: Trajectories | StaticMaps, name: str) -> Parameters:
    if name not in data.parameters:
        there = ", ".join(data.parameters) or "none"
        problem = f"is no parameter of the file: constants of its samples are {there}."
        raise DataError(data.source, name, problem)
    values = np.asarray(data.parameters[name], dtype=np.float64)
    if not np.isfinite(values).all():
        raise DataError(data.source, name, "must be known for every sample, got NaN.")
    return Parameters((Variable(name),), values[:, None])


def _with_more_inputs(data: StaticMaps, chosen: ForcingConfig) -> StaticMaps:
    """Returns maps that parameters are inputs of, too."""
    for flag, names in (
        ("static", chosen.static), ("forcing", chosen.forcing),
        ("time-features", chosen.time_features),
    ):  # fmt: skip
        if names:
            problem = f"holds static maps, in which no time passes: leave out --{flag}, name"
            raise DataError(data.source, "file", f"{problem} fields that are given with --inputs.")
    if not chosen.parameters:
        return data
    given = [_parameter(data, name) for name in chosen.parameters]
    values = np.concatenate([one.values for one in given], 1)
    variables = tuple(variable for one in given for variable in one.variables)
    fetch = partial(with_numbers, data.fetch, values)
    return replace(data, inputs=(*variables, *data.inputs), fetch=fetch)


def notes(data: Trajectories | StaticMaps) -> Sequence[str]:
    """Returns what a user should know of the forcings: where missing values were filled."""
    known = data.known if isinstance(data, Trajectories) else ()
    return [forcing.note for forcing in known if forcing.note]
