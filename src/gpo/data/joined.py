"""Joins several files into one data set: along time, samples or variables.

Files with consecutive times are concatenated in time, whatever the order of their names. Files
with the same times have samples of their own, or other variables of the same samples. Values are
read lazily.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from gpo.data.dataset import (
    DataError,
    FieldData,
    InputCandidate,
    JoinedFiles,
    RowReader,
    Variable,
    check_same_kind,
)
from gpo.data.geometry import Geometry


def join(parts: Sequence[FieldData], source: Path, variables: Sequence[str] = ()) -> FieldData:
    """Returns the frames of all files; raises a `DataError` that names a file that does not fit.

    Args:
        parts: The files, sorted by name.
        source: Name of the joined data in error messages.
        variables: Names of the variables in the requested order; that of the files if empty.
    """
    groups: dict[frozenset[str], list[FieldData]] = {}
    for part in parts:
        groups.setdefault(frozenset(_names(part)), []).append(part)
    names = [name for group in groups for name in group]
    for part in parts[1:]:
        check_same_kind(parts[0], part)
    notes = tuple(f"{part.source.name}: {note}" for part in parts for note in part.notes)
    if not parts[0].has_time or len(groups) == 1 or len(set(names)) < len(names):
        return replace(_join_in_time(parts, source), notes=notes)
    whole = [_join_in_time(group, source) for group in groups.values()]
    return replace(_merge(whole, source, variables), notes=notes)


def _merge(parts: Sequence[FieldData], source: Path, variables: Sequence[str]) -> FieldData:
    """Returns the variables of all parts, which must have the same sites and times."""
    first = parts[0]
    for part in parts[1:]:
        _check_same_sites(first, part)
        has_times = np.array_equal(part.time + _offset(first, part), first.time)
        if part.num_samples != first.num_samples or not has_times:
            name, other = part.variables[0].name, first.variables[0].name
            problem = f"of {name} must be the same as of {other}, to be read together."
            raise DataError(source, "time", problem)
    merged = [variable for part in parts for variable in part.variables]
    names = [variable.name for variable in merged]
    order = tuple(names.index(name) for name in variables or names)
    geometries = tuple(
        first.geometry(n).masked(np.any([part.geometry(n).is_masked for part in parts], 0))
        for n in range(len(first.geometries))
    )
    return replace(
        first,
        source=source,
        variables=tuple(merged[number] for number in order),
        geometries=geometries,
        fetch=RowReader(_MergedReader(tuple(parts), order)),
        candidates=tuple(
            {field.variable.name: field for part in parts for field in part.candidates}.values()
        ),
    )


def _join_in_time(parts: Sequence[FieldData], source: Path) -> FieldData:
    if len(parts) == 1:
        return parts[0]
    for part in parts[1:]:
        _check_compatible(parts[0], part)
    offsets = [_offset(parts[0], part) for part in parts]
    times = [part.time + offset for part, offset in zip(parts, offsets, strict=True)]
    if all(np.array_equal(time, times[0]) for time in times[1:]):
        return _samples(parts, source)
    order = sorted(range(len(parts)), key=lambda number: times[number][0])
    for before, after in itertools.pairwise(order):
        if times[before][-1] >= times[after][0]:
            raise _overlap(parts[before], parts[after])
    return _series([parts[n] for n in order], [times[n] for n in order], source)


def _series(parts: Sequence[FieldData], times: Sequence[np.ndarray], source: Path) -> FieldData:
    first = parts[0]
    for part in parts[1:]:
        _check_same_sites(first, part)
        if part.num_samples != first.num_samples:
            problem = f"must be {first.num_samples}, as in {first.source.name}."
            raise DataError(part.source, "trajectories", problem)
    starts = _starts([len(part.time) for part in parts])
    geometries = tuple(
        _common_mask([part.geometry(number) for part in parts])
        for number in range(len(first.geometries))
    )
    time = np.concatenate(times)
    if first.origin is not None:
        time = time - time[0]
    return replace(
        first,
        source=source,
        geometries=geometries,
        time=time,
        fetch=RowReader(_SeriesReader(tuple(parts), starts)),
        candidates=_joined_candidates(parts),
        files=JoinedFiles("series", starts),
    )


def _samples(parts: Sequence[FieldData], source: Path) -> FieldData:
    counts = [part.num_samples for part in parts]
    starts = _starts(counts)
    return replace(
        parts[0],
        source=source,
        geometries=_all_sites(parts, counts),
        num_samples=sum(counts),
        fetch=RowReader(_SampleReader(tuple(parts), starts)),
        candidates=_joined_candidates(parts),
        parameters=_joined_parameters(parts),
        files=JoinedFiles("trajectories", starts),
    )


def _starts(counts: Sequence[int]) -> tuple[int, ...]:
    """Returns the index of the first entry of each file."""
    return tuple(int(start) for start in np.cumsum([0, *counts[:-1]]))


def _names(data: FieldData) -> list[str]:
    return [variable.name for variable in data.variables]


def _all_sites(parts: Sequence[FieldData], counts: Sequence[int]) -> tuple[Geometry, ...]:
    """Returns the sites of all files, as one geometry if they agree; grids must agree."""
    sites = tuple(
        part.geometry(n) for part, count in zip(parts, counts, strict=True) for n in range(count)
    )
    if all(_are_same_sites(sites[0], other) for other in sites[1:]):
        return (_common_mask(sites),)
    if parts[0].geometry().grid_shape:
        for part in parts[1:]:
            _check_same_sites(parts[0], part)
    return sites


def _joined_parameters(parts: Sequence[FieldData]) -> dict[str, np.ndarray]:
    names = parts[0].parameters
    return {name: np.concatenate([part.parameters[name] for part in parts]) for name in names}


def _joined_candidates(parts: Sequence[FieldData]) -> tuple[InputCandidate, ...]:
    """Returns static fields of the first file, and scalar series of all files."""
    joined: list[InputCandidate] = []
    for field in parts[0].candidates:
        same = [
            other
            for part in parts
            for other in part.candidates
            if (other.variable.name, other.kind) == (field.variable.name, field.kind)
        ]
        if field.kind == "static":
            joined.append(field)
        elif len(same) == len(parts):
            joined.append(replace(field, read=partial(_read_all, same)))
    return tuple(joined)


def _read_all(series: Sequence[InputCandidate]) -> np.ndarray:
    return np.concatenate([part.read() for part in series])


@dataclass(frozen=True)
class _SeriesReader:
    """Reads frames from the files that contain them."""

    parts: tuple[FieldData, ...]
    starts: tuple[int, ...]

    def __call__(self, sample: int, times: slice, sites: slice) -> np.ndarray:
        total = self.starts[-1] + len(self.parts[-1].time)
        requested = range(*times.indices(total))
        chunks: list[np.ndarray] = []
        for part, start in zip(self.parts, self.starts, strict=True):
            inside = [frame - start for frame in requested if 0 <= frame - start < len(part.time)]
            if inside:
                selected = slice(inside[0], inside[-1] + 1, requested.step)
                chunks.append(part.frames(sample, selected, sites))
        if not chunks:
            return self.parts[0].frames(sample, slice(0, 0), sites)
        return np.concatenate(chunks)


@dataclass(frozen=True)
class _SampleReader:
    """Reads frames from the file that contains a sample."""

    parts: tuple[FieldData, ...]
    starts: tuple[int, ...]

    def __call__(self, sample: int, times: slice, sites: slice) -> np.ndarray:
        number = int(np.searchsorted(self.starts, sample, side="right")) - 1
        return self.parts[number].frames(sample - self.starts[number], times, sites)


@dataclass(frozen=True)
class _MergedReader:
    """Reads frames from files with different variables."""

    parts: tuple[FieldData, ...]
    order: tuple[int, ...]

    def __call__(self, sample: int, times: slice, sites: slice) -> np.ndarray:
        frames = [part.frames(sample, times, sites) for part in self.parts]
        return np.concatenate(frames, -1)[..., list(self.order)]


def _check_compatible(first: FieldData, other: FieldData) -> None:
    _check_variables(first.inputs, other.inputs, first.source, other.source)
    _check_variables(first.outputs, other.outputs, first.source, other.source)
    is_dated = first.origin is not None
    if is_dated != (other.origin is not None) or first.time_units != other.time_units:
        problem = f"must be in {first.time_units or 'no units'}, as in {first.source.name}."
        raise DataError(other.source, "time", problem)
    _check_parameters(first, other)


def _check_variables(
    first: Sequence[Variable], other: Sequence[Variable], source: Path, other_source: Path
) -> None:
    """Raises a `DataError` if variables differ in names or units."""
    if list(first) != list(other):
        listed = ", ".join(f"{part.name} ({part.units or 'no units'})" for part in first)
        problem = f"must be {listed}, as in {source.name}. Choose common ones with --var."
        raise DataError(other_source, "variables", problem)


def _check_parameters(first: FieldData, other: FieldData) -> None:
    if other.parameters.keys() != first.parameters.keys():
        names = ", ".join(first.parameters) or "none"
        problem = f"must be {names}, as in {first.source.name}."
        raise DataError(other.source, "parameters", problem)


def _offset(first: FieldData, other: FieldData) -> float:
    """Returns the hours from the time origin of the first file to that of another."""
    if first.origin is None or other.origin is None:
        return 0.0
    if other.origin.calendar != first.origin.calendar:
        problem = (
            f"must be in the calendar {first.origin.calendar}, as in {first.source.name}, got "
            f"{other.origin.calendar}."
        )
        raise DataError(other.source, "time", problem)
    return first.origin.hours(other.origin.date)


def _overlap(before: FieldData, after: FieldData) -> DataError:
    start, end = after.time_labels([0])[0], before.time_labels([-1])[0]
    problem = (
        f"begins at {start}, but {before.source.name} ends at {end}: times overlap. Files must "
        "follow each other in time, or all have the same times (then each is a trajectory). Name "
        "one of these files only, or cut them to the same times."
    )
    return DataError(after.source, "time", problem)


def _are_same_sites(first: Geometry, second: Geometry) -> bool:
    if first.grid_shape != second.grid_shape or first.coords.shape != second.coords.shape:
        return False
    names, others = first.axis_names, second.axis_names
    if names != others and sorted(names) == sorted(others):
        # The axes are permuted, although their lengths agree.
        return False
    size = max(float(np.ptp(first.coords)), 1e-300)
    return bool(np.abs(first.coords - second.coords).max() <= 1e-6 * size)


def _check_same_sites(first: FieldData, other: FieldData) -> None:
    if not _are_same_sites(first.geometry(), other.geometry()):
        shape, expected = (_describe_sites(part.geometry()) for part in (other, first))
        problem = f"must be the same as in {first.source.name} ({expected}), got {shape}."
        raise DataError(other.source, "sites", problem)


def _describe_sites(geometry: Geometry) -> str:
    if not geometry.grid_shape:
        return f"{geometry.num_points:,}"
    axes = zip(geometry.axis_names, geometry.grid_shape, strict=True)
    return " x ".join(f"{name} {size}" for name, size in axes)


def _common_mask(geometries: Sequence[Geometry]) -> Geometry:
    """Returns sites that are masked only if every file masks them."""
    weights = geometries[0].weights
    for geometry in geometries[1:]:
        both = (weights > 0) & (geometry.weights > 0)
        if not both.any():
            continue
        # Each file normalises the weights over its own active sites.
        scale = weights[both].sum() / geometry.weights[both].sum()
        weights = np.where(weights > 0, weights, scale * geometry.weights)
    return geometries[0].with_weights(weights)
