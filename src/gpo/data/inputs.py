"""Opens data together with additional inputs: static fields, forcings and parameters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError, FieldData, Variable, check_same_kind
from gpo.data.forcing_config import ForcingConfig
from gpo.data.forcings import (
    AbstractForcing,
    FieldForcing,
    Parameters,
    SeriesForcing,
    StaticFields,
)
from gpo.data.geometry import Geometry, sphere_coords
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data, open_static

NUM_COMPARED = 8
"""Frames compared to verify that a static field does not change in time."""


def open_with_forcings(
    path: str | Path | Sequence[str | Path],
    options: ReadOptions,
    chosen: ForcingConfig,
    *,
    reserve: Path | None = None,
) -> FieldData:
    """Returns data with forcings, or with parameters as additional inputs of static maps.

    Args:
        path: A file, a folder, a pattern, or several files.
        options: Which variables to read.
        chosen: Names of the additional inputs in the file.
        reserve: File to read static fields from that `path` does not have.
    """
    names = (*chosen.static, *chosen.forcing)
    data = open_data(path, replace(options, extra_inputs=names))
    if not data.has_time:
        return _with_parameters(data, chosen)
    predicted = tuple(part.name for part in data.variables if part.name not in names)
    if not predicted:
        problem = "are all inputs: name a variable to predict with --var."
        raise DataError(data.source, "variables", problem)
    if len(predicted) < len(data.variables):
        # Missing values of a forcing must not mask sites of the predicted variables.
        data = open_data(path, replace(options, variables=predicted, extra_inputs=names))
    source = static_source = _Source(path, options, data)
    if chosen.static_from is not None:
        static_source = replace(
            source,
            path=Path(chosen.static_from),
            options=ReadOptions(untrusted=options.untrusted),
            is_own=False,
        )
    forcings: list[AbstractForcing] = []
    for name in chosen.static:
        try:
            forcings.append(static_source.static(name))
        except DataError as error:
            if reserve is None or chosen.static_from is not None:
                raise
            try:
                forcings.append(replace(source, path=reserve, is_own=False).static(name))
            except DataError:
                raise error from None
    forcings += [source.forcing(name) for name in chosen.forcing]
    forcings += [_parameter(data, name) for name in chosen.parameters]
    return replace(data, known=tuple(forcings)).with_time_features(chosen.time_features)


@dataclass(frozen=True)
class _Source:
    """A file with additional inputs, and the data to which they are added."""

    path: str | Path | Sequence[str | Path]
    options: ReadOptions
    data: FieldData
    is_own: bool = True
    """Whether `path` is the file of `data` itself."""

    @property
    def name(self) -> Path:
        """Name of the file in error messages."""
        return self.data.source if self.is_own else Path(str(self.path))

    def static(self, name: str) -> StaticFields:
        """Returns a field that does not change in time."""
        field = self._candidate(name, "static")
        if field is None and not self.is_own:
            field = self._static_of_other_file(name)
        if field is not None:
            variable, values = field
            values = values.reshape(-1, self.data.geometry().num_points)
            variables, rows = (variable,), [row[:, None] for row in values]
        else:
            variables, rows = self._constant(name)
        note = ""
        for row in rows:
            is_finite = np.isfinite(row)
            if not is_finite.any(0).all():
                raise DataError(self.name, name, "is missing at all sites: it cannot be an input.")
            if not is_finite.all():
                count = np.sum(~is_finite.all(1))
                note = f"{name} is missing at {count:,} sites, which are filled with its mean"
            np.copyto(row, np.nanmean(row, 0), where=~is_finite)
        return StaticFields(variables, tuple(rows), note)

    def forcing(self, name: str) -> AbstractForcing:
        """Returns a variable that is prescribed at every time."""
        series = self._candidate(name, "series")
        if series is not None:
            variable, values = series
            values = values.reshape(-1, len(self.data.time), 1)
            if not np.isfinite(values).all():
                raise DataError(self.name, name, "must be known at every time, got NaN.")
            return SeriesForcing((variable,), values)
        other, sites = self._series(name, "--forcing")
        if len(other.time) != len(self.data.time) or not np.allclose(other.time, self.data.time):
            raise DataError(self.name, name, "must have the same times as the other variables.")
        note = ""
        num_missing = int(other.geometry().is_masked[sites].sum())
        if num_missing:
            note = f"{name} is missing at {num_missing:,} sites, filled with its mean at each time"
        return FieldForcing(other.variables, _FrameReader(other, sites), len(other.time), note=note)

    def _candidate(self, name: str, kind: str) -> tuple[Variable, np.ndarray] | None:
        if not self.is_own:
            return None
        for candidate in self.data.candidates:
            if candidate.variable.name == name and candidate.kind == kind:
                return candidate.variable, np.array(candidate.read(), dtype=np.float64)
        return None

    def _static_of_other_file(self, name: str) -> tuple[Variable, np.ndarray] | None:
        """Returns a field without a time axis at the sites of the data."""
        field = open_static(self.name, name, self.options)
        if field is None:
            return None
        variable, values, geometry = field
        sites = match_sites(self.name, name, geometry, self.data.geometry())
        return variable, np.array(values[..., sites], dtype=np.float64)

    def _constant(self, name: str) -> tuple[tuple[Variable, ...], list[np.ndarray]]:
        """Returns a variable that has a time axis but does not change along it."""
        other, sites = self._series(name, "--static")
        rows: list[np.ndarray] = []
        times = np.unique(np.linspace(0, len(other.time) - 1, NUM_COMPARED).astype(int)).tolist()
        for trajectory in range(other.num_samples):
            frames = [other.frames(trajectory, slice(n, n + 1))[0] for n in times]
            if any(not np.array_equal(frame, frames[0], equal_nan=True) for frame in frames):
                problem = f"changes in time. Use it as a forcing: --forcing {name}"
                raise DataError(self.name, name, problem)
            rows.append(frames[0][sites].astype(np.float64))
        if other.num_samples not in (1, self.data.num_samples):
            problem = f"must be one field or {self.data.num_samples}, one per trajectory."
            raise DataError(self.name, name, problem)
        return other.variables, rows

    def _series(self, name: str, flag: str) -> tuple[FieldData, np.ndarray]:
        """Returns a variable as a time series, and the indices of the sites of the data in it."""
        if len(self.data.geometries) > 1:
            problem = "must have the same sites in all trajectories to be an input."
            raise DataError(self.name, name, problem)
        try:
            other = self._open(name)
        except DataError as error:
            problem = f"cannot be used with {flag}: {error.problem} {self._available_flags()}"
            raise DataError(self.name, name, problem.strip()) from error
        check_same_kind(self.data, other)
        return other, match_sites(self.name, name, other.geometry(), self.data.geometry())

    def _open(self, name: str) -> FieldData:
        """Opens one variable, ignoring selections along dimensions that it does not have."""
        select = dict(self.options.select)
        while True:
            options = replace(self.options, variables=(name,), extra_inputs=(), select=select)
            try:
                return open_data(self.path, options)
            except DataError as error:
                if error.field not in select:
                    raise
                select = {dim: text for dim, text in select.items() if dim != error.field}

    def _available_flags(self) -> str:
        """Returns the flags that add the inputs that the file has."""
        if not self.is_own:
            return ""
        inputs = sorted(self.data.candidates, key=lambda part: part.kind, reverse=True)
        kinds = {"static": "--static", "series": "--forcing"}
        flags = [f"{kinds[part.kind]} {part.variable.name}" for part in inputs]
        flags += [f"--parameters {name}" for name in self.data.parameters]
        return f"Available: {', '.join(flags)}." if flags else ""


@dataclass(frozen=True)
class _FrameReader:
    """Reads fields of a forcing by frame; missing values are filled with the mean of the frame."""

    data: FieldData
    sites: np.ndarray

    def __call__(self, sample: int, frames: np.ndarray) -> np.ndarray:
        sample = sample if self.data.num_samples > 1 else 0
        parts = [self._read(sample, number) for number in frames.tolist()]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.sites), 1))

    def _read(self, sample: int, number: int) -> np.ndarray:
        values = self.data.frames(sample, slice(number, number + 1))[:, self.sites]
        values = values.astype(np.result_type(values.dtype, np.float32), copy=False)
        is_finite = np.isfinite(values)
        if not is_finite.any(1).all():
            problem = f"must be known at every time, got only NaN in frame {number}."
            raise DataError(self.data.source, self.data.variables[0].name, problem)
        if is_finite.all():
            return values
        total = np.where(is_finite, values, 0).sum(1, keepdims=True, dtype=np.float64)
        mean = total / is_finite.sum(1, keepdims=True)
        return np.where(is_finite, values, mean).astype(values.dtype)


def match_sites(path: Path, name: str, source: Geometry, target: Geometry) -> np.ndarray:
    """Returns the indices of the target's sites among those of the source."""
    coords, targets = _common_coords(source), _common_coords(target)
    if np.array_equal(coords, targets):
        return np.arange(source.num_points)
    if coords.shape[1] != targets.shape[1]:
        problem = f"must have {targets.shape[1]} coordinates per site, as the data, got"
        raise DataError(path, name, f"{problem} {coords.shape[1]}.")
    from scipy.spatial import KDTree

    distances, nearest = KDTree(coords).query(targets)
    spacing = KDTree(targets).query(targets[:64], k=min(2, len(targets)))[0].max()
    num_off = int(np.sum(distances > 0.01 * spacing))
    if num_off:
        problem = (
            f"must be known at the sites of the data; {num_off:,} of {len(targets):,} are not "
            "in this file. Interpolate it to their grid first."
        )
        raise DataError(path, name, problem)
    return np.asarray(nearest)


def _common_coords(geometry: Geometry) -> np.ndarray:
    """Returns coordinates comparable between files: geographic unit vectors if known."""
    degrees = geometry.geographic_degrees()
    return geometry.coords if degrees is None else sphere_coords(*degrees.T)


def _parameter(data: FieldData, name: str) -> Parameters:
    if name not in data.parameters:
        available = ", ".join(data.parameters) or "none"
        raise DataError(data.source, name, f"must be a parameter of the file; it has {available}.")
    values = np.asarray(data.parameters[name], dtype=np.float64)
    if not np.isfinite(values).all():
        raise DataError(data.source, name, "must be known for every sample, got NaN.")
    if values.ndim == 1:
        return Parameters((Variable(name),), values[:, None])
    names = (f"{name}_{number}" for number in range(values.shape[1]))
    return Parameters(tuple(map(Variable, names)), values)


def _with_parameters(data: FieldData, chosen: ForcingConfig) -> FieldData:
    """Returns static maps with parameters as additional inputs."""
    for flag, names in (
        ("static", chosen.static), ("forcing", chosen.forcing),
        ("time-features", chosen.time_features),
    ):  # fmt: skip
        if names:
            problem = f"holds static maps, which have no time: leave out --{flag}, and name"
            raise DataError(data.source, "file", f"{problem} input fields with --inputs.")
    if not chosen.parameters:
        return data
    parameters = [_parameter(data, name) for name in chosen.parameters]
    values = np.concatenate([parameter.values for parameter in parameters], 1)
    variables = tuple(variable for parameter in parameters for variable in parameter.variables)
    return replace(
        data,
        variables=(*variables, *data.variables),
        num_inputs=len(variables) + data.num_inputs,
        fetch=partial(_frames_with_constants, data, values),
    )


def _frames_with_constants(
    data: FieldData, constants: np.ndarray, sample: int, times: slice
) -> np.ndarray:
    """Returns frames of a sample, with its constants as the first variables."""
    frames = data.frames(sample, times)
    shape = (*frames.shape[:-1], constants.shape[1])
    return np.concatenate([np.broadcast_to(constants[sample], shape), frames], -1)


def notes(data: FieldData) -> Sequence[str]:
    """Returns notes on the forcings for the user, such as where missing values were filled."""
    return [forcing.note for forcing in data.known if forcing.note]
