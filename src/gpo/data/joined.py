"""Several files as one: a long series in time, or one trajectory after another.

Files whose times follow each other are joined along time, whatever the order of their names.
Files that all have the same times are trajectories, or other variables of the same ones. Samples of
static maps are counted through all files. Nothing is read before it is asked for.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from gpo.data.dataset import (
    DataError,
    InputCandidate,
    JoinedFiles,
    RowReader,
    StaticMaps,
    Trajectories,
    Variable,
)
from gpo.data.geometry import Geometry


def join(
    parts: Sequence[Trajectories], source: Path, variables: Sequence[str] = ()
) -> Trajectories:
    """Returns the frames of all files; refuses what does not belong together, by name.

    Args:
        parts: The files, in the order of their names.
        source: What all of them are called in messages.
        variables: Names of the variables in the order that is wanted; that of the files if empty.
    """
    groups: dict[frozenset[str], list[Trajectories]] = {}
    for part in parts:
        groups.setdefault(frozenset(one.name for one in part.variables), []).append(part)
    names = [name for group in groups for name in group]
    if len(groups) == 1 or len(set(names)) < len(names):
        return _join_in_time(parts, source)
    whole = [_join_in_time(group, source) for group in groups.values()]
    return _merge(whole, source, variables)


def join_maps(parts: Sequence[StaticMaps], source: Path) -> StaticMaps:
    """Returns the samples of all files, one file after the other; refuses what does not fit.

    Args:
        parts: The files, in the order of their names.
        source: What all of them are called in messages.
    """
    first = parts[0]
    for part in parts[1:]:
        for mine, theirs in ((first.inputs, part.inputs), (first.outputs, part.outputs)):
            _check_variables(mine, theirs, first.source, part.source)
        _check_parameters(first, part)
    counts = [part.num_samples for part in parts]
    starts = tuple(int(start) for start in np.cumsum([0, *counts[:-1]]))
    return replace(
        first,
        source=source,
        geometries=_all_sites(parts, counts),
        num_samples=sum(counts),
        fetch=_SampleReader(tuple(parts), starts),
        parameters=_joined_parameters(parts),
    )


def _merge(parts: Sequence[Trajectories], source: Path, variables: Sequence[str]) -> Trajectories:
    """Returns the variables of all parts side by side, on sites and times that all of them have."""
    first = parts[0]
    for part in parts[1:]:
        _check_same_sites(first, part)
        is_alike = part.num_trajectories == first.num_trajectories
        has_times = len(part.time) == len(first.time) and np.array_equal(
            part.time + _offset(first, part), first.time
        )
        if not is_alike or not has_times:
            name, other = part.variables[0].name, first.variables[0].name
            problem = f"of {name} must be those of {other}, to be read beside it."
            raise DataError(source, "time", problem)
    found = [one for part in parts for one in part.variables]
    wanted = list(variables) or [one.name for one in found]
    order = tuple([one.name for one in found].index(name) for name in wanted)
    geometries = tuple(
        first.geometry(n).masked(np.any([part.geometry(n).is_masked for part in parts], 0))
        for n in range(len(first.geometries))
    )
    return replace(
        first,
        source=source,
        variables=tuple(found[number] for number in order),
        geometries=geometries,
        fetch=RowReader(_MergedReader(tuple(parts), order)),
        candidates=tuple(
            {one.variable.name: one for part in parts for one in part.candidates}.values()
        ),
    )


def _join_in_time(parts: Sequence[Trajectories], source: Path) -> Trajectories:
    if len(parts) == 1:
        return parts[0]
    for part in parts[1:]:
        _check_alike(parts[0], part)
    offsets = [_offset(parts[0], part) for part in parts]
    times = [part.time + offset for part, offset in zip(parts, offsets, strict=True)]
    if all(np.array_equal(time, times[0]) for time in times[1:]):
        return _trajectories(parts, source)
    order = sorted(range(len(parts)), key=lambda number: times[number][0])
    for before, after in itertools.pairwise(order):
        if times[before][-1] >= times[after][0]:
            raise _overlap(parts[before], parts[after])
    return _series([parts[n] for n in order], [times[n] for n in order], source)


def _series(
    parts: Sequence[Trajectories], times: Sequence[np.ndarray], source: Path
) -> Trajectories:
    first = parts[0]
    for part in parts[1:]:
        _check_same_sites(first, part)
        if part.num_trajectories != first.num_trajectories:
            problem = f"must be {first.num_trajectories}, as in {first.source.name}."
            raise DataError(part.source, "trajectories", problem)
    counts = [len(part.time) for part in parts]
    starts = tuple(int(start) for start in np.cumsum([0, *counts[:-1]]))
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


def _trajectories(parts: Sequence[Trajectories], source: Path) -> Trajectories:
    counts = [part.num_trajectories for part in parts]
    starts = tuple(int(start) for start in np.cumsum([0, *counts[:-1]]))
    return replace(
        parts[0],
        source=source,
        geometries=_all_sites(parts, counts),
        num_trajectories=sum(counts),
        fetch=RowReader(_TrajectoryReader(tuple(parts), starts)),
        candidates=_joined_candidates(parts),
        parameters=_joined_parameters(parts),
        files=JoinedFiles("trajectories", starts),
    )


def _all_sites(
    parts: Sequence[Trajectories | StaticMaps], counts: Sequence[int]
) -> tuple[Geometry, ...]:
    """Returns the sites of all files, one geometry where they are the same; grids must be."""
    sites = tuple(
        part.geometry(n) for part, count in zip(parts, counts, strict=True) for n in range(count)
    )
    if all(_are_same_sites(sites[0], other) for other in sites[1:]):
        return (_common_mask(sites),)
    if parts[0].geometry().grid_shape:
        for part in parts[1:]:
            _check_same_sites(parts[0], part)
    return sites


def _joined_parameters(parts: Sequence[Trajectories | StaticMaps]) -> dict[str, np.ndarray]:
    names = parts[0].parameters
    return {name: np.concatenate([part.parameters[name] for part in parts]) for name in names}


def _joined_candidates(parts: Sequence[Trajectories]) -> tuple[InputCandidate, ...]:
    """Returns fields without a time axis of the first file, and numbers per time of all files."""
    found: list[InputCandidate] = []
    for one in parts[0].candidates:
        same = [
            other
            for part in parts
            for other in part.candidates
            if (other.variable.name, other.kind) == (one.variable.name, one.kind)
        ]
        if one.kind == "static":
            found.append(one)
        elif len(same) == len(parts):
            found.append(replace(one, read=partial(_read_all, same)))
    return tuple(found)


def _read_all(candidates: Sequence[InputCandidate]) -> np.ndarray:
    return np.concatenate([one.read() for one in candidates])


@dataclass(frozen=True)
class _SeriesReader:
    """Reads frames of the files that hold them."""

    parts: tuple[Trajectories, ...]
    starts: tuple[int, ...]

    def __call__(self, trajectory: int, times: slice, sites: slice) -> np.ndarray:
        total = self.starts[-1] + len(self.parts[-1].time)
        wanted = range(*times.indices(total))
        found: list[np.ndarray] = []
        for part, start in zip(self.parts, self.starts, strict=True):
            inside = [number - start for number in wanted if 0 <= number - start < len(part.time)]
            if inside:
                chosen = slice(inside[0], inside[-1] + 1, wanted.step)
                found.append(part.frames(trajectory, chosen, sites))
        if not found:
            return self.parts[0].frames(trajectory, slice(0, 0), sites)
        return np.concatenate(found)


@dataclass(frozen=True)
class _TrajectoryReader:
    """Reads frames of the file that holds a trajectory."""

    parts: tuple[Trajectories, ...]
    starts: tuple[int, ...]

    def __call__(self, trajectory: int, times: slice, sites: slice) -> np.ndarray:
        number = int(np.searchsorted(self.starts, trajectory, side="right")) - 1
        return self.parts[number].frames(trajectory - self.starts[number], times, sites)


@dataclass(frozen=True)
class _SampleReader:
    """Reads the static map of a sample from the file that holds it."""

    parts: tuple[StaticMaps, ...]
    starts: tuple[int, ...]

    def __call__(self, sample: int) -> tuple[np.ndarray, np.ndarray]:
        number = int(np.searchsorted(self.starts, sample, side="right")) - 1
        return self.parts[number].sample(sample - self.starts[number])


@dataclass(frozen=True)
class _MergedReader:
    """Reads frames of files that hold different variables."""

    parts: tuple[Trajectories, ...]
    order: tuple[int, ...]

    def __call__(self, trajectory: int, times: slice, sites: slice) -> np.ndarray:
        frames = [part.frames(trajectory, times, sites) for part in self.parts]
        return np.concatenate(frames, -1)[..., list(self.order)]


def _check_alike(first: Trajectories, other: Trajectories) -> None:
    _check_variables(first.variables, other.variables, first.source, other.source)
    is_dated = first.origin is not None
    if is_dated != (other.origin is not None) or first.time_units != other.time_units:
        problem = f"must be in {first.time_units or 'no units'}, as in {first.source.name}."
        raise DataError(other.source, "time", problem)
    _check_parameters(first, other)


def _check_variables(
    first: Sequence[Variable], other: Sequence[Variable], source: Path, other_source: Path
) -> None:
    """Refuses files whose variables differ in names or units."""
    mine, theirs = ([(v.name, v.units) for v in part] for part in (first, other))
    if mine != theirs:
        listed = ", ".join(f"{name} ({units or 'no units'})" for name, units in mine)
        problem = f"must be {listed}, as in {source.name}. Choose common ones with --var."
        raise DataError(other_source, "variables", problem)


def _check_parameters(first: Trajectories | StaticMaps, other: Trajectories | StaticMaps) -> None:
    if other.parameters.keys() != first.parameters.keys():
        names = ", ".join(first.parameters) or "none"
        problem = f"must be {names}, as in {first.source.name}."
        raise DataError(other.source, "parameters", problem)


def _offset(first: Trajectories, other: Trajectories) -> float:
    """Returns by how much later a file counts its times from."""
    if first.origin is None or other.origin is None:
        return 0.0
    if other.origin.calendar != first.origin.calendar:
        problem = (
            f"must be in the calendar {first.origin.calendar}, as in {first.source.name}, got "
            f"{other.origin.calendar}."
        )
        raise DataError(other.source, "time", problem)
    return first.origin.hours(other.origin.date)


def _overlap(before: Trajectories, after: Trajectories) -> DataError:
    def at(part: Trajectories, number: int) -> str:
        if part.origin is not None:
            return part.origin.labels(part.time[[number]])[0]
        return f"{part.time[number]:g} {part.time_units}".rstrip()

    problem = (
        f"begins at {at(after, 0)}, but {before.source.name} ends at {at(before, -1)}: times "
        "overlap, and are not the same in all files. Files are one series where each begins after "
        "the one before, and trajectories where all have the same times. Give one of them, or cut "
        "them to the times that all have."
    )
    return DataError(after.source, "time", problem)


def _are_same_sites(first: Geometry, second: Geometry) -> bool:
    if first.grid_shape != second.grid_shape or first.coords.shape != second.coords.shape:
        return False
    mine, theirs = first.axis_names, second.axis_names
    if mine != theirs and sorted(mine) == sorted(theirs):
        # Axes in another order, of lengths that happen to fit.
        return False
    size = max(float(np.ptp(first.coords)), 1e-300)
    return bool(np.abs(first.coords - second.coords).max() <= 1e-6 * size)


def _check_same_sites(first: Trajectories | StaticMaps, other: Trajectories | StaticMaps) -> None:
    if not _are_same_sites(first.geometry(), other.geometry()):
        shapes = [_spell_sites(part.geometry()) for part in (other, first)]
        problem = f"are others ({shapes[0]}) than in {first.source.name} ({shapes[1]})."
        raise DataError(other.source, "sites", problem)


def _spell_sites(geometry: Geometry) -> str:
    if not geometry.grid_shape:
        return f"{geometry.num_points:,}"
    axes = zip(geometry.axis_names, geometry.grid_shape, strict=True)
    return " x ".join(f"{name} {size}" for name, size in axes)


def _common_mask(geometries: Sequence[Geometry]) -> Geometry:
    """Returns sites that are masked only where every file masks them."""
    weights = geometries[0].weights
    for geometry in geometries[1:]:
        both = (weights > 0) & (geometry.weights > 0)
        if not both.any():
            continue
        # Weights sum to one in every file, of however many sites.
        scale = weights[both].sum() / geometry.weights[both].sum()
        weights = np.where(weights > 0, weights, scale * geometry.weights)
    return geometries[0].with_weights(weights)
