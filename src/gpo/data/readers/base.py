"""What may be read from a file, and the checks that readers share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Selection of variables, levels and coordinates to read from a file."""

    variables: tuple[str, ...] = ()
    """Names of the variables to read; all compatible ones if empty."""
    select: Mapping[str, str] = field(default_factory=dict)
    """Selected value of each extra dimension by name, such as level=500 or number=0; for named
    arrays with ambiguous shapes, the order of axes: axes=time,y,x."""
    extra_inputs: tuple[str, ...] = ()
    """Names of additional inputs, which need not be time series of fields."""
    inputs: tuple[str, ...] = ()
    """Names of the inputs of a static map, fields or one value per sample; the variables are
    then its outputs."""
    coords: tuple[str, ...] = ()
    """Names of the coordinates of sites, if they cannot be recognised: one array of shape
    (points, dim), or one array of shape (points,) per coordinate."""
    periodic: tuple[str, ...] = ()
    """Names of periodic axes, if the file does not state boundary conditions."""
    takes_frames: bool = False
    """Whether a file without times may be a single frame, from which a forecast starts."""
    untrusted: bool = False
    """Whether files are read in a child process with limits on memory and time."""
    num_files: int = 1
    """Number of files that are joined; with many large files, fewer frames of each are searched
    for sites that are always missing."""


def check_axis(path: Path, name: str, axis: np.ndarray) -> np.ndarray:
    """Returns coordinates along an axis, which must be finite, sorted and distinct."""
    axis = np.asarray(axis, dtype=np.float64)
    if axis.ndim != 1 or len(axis) == 0:
        raise DataError(path, name, f"must be a list of coordinates, got shape {axis.shape}.")
    if not np.isfinite(axis).all():
        raise DataError(path, name, "must be finite, got NaN or infinity.")
    steps = np.diff(axis)
    if np.any(steps == 0):
        raise DataError(path, name, "must be distinct, got a coordinate twice.")
    if not (np.all(steps > 0) or np.all(steps < 0)):
        raise DataError(path, name, "must be sorted, got coordinates out of order.")
    return axis


def check_increasing(path: Path, name: str, axis: np.ndarray) -> np.ndarray:
    """Returns coordinates along an axis, which must increase."""
    axis = check_axis(path, name, axis)
    if axis[0] > axis[-1]:
        raise DataError(path, name, "must increase, got coordinates that decrease.")
    return axis


def check_not_missing(path: Path, name: str, portions: Iterable[np.ndarray]) -> None:
    """Raises a `DataError` if a variable is missing everywhere; stops at the first finite value."""
    if not any(np.isfinite(values).any() for values in portions):
        raise DataError(path, name, "holds no number at all: every value is NaN or infinite.")


def check_latitudes(path: Path, name: str, latitude: np.ndarray) -> None:
    """Raises a `DataError` for latitudes beyond the poles, in degrees."""
    if np.abs(latitude).max() > 90.001:
        problem = f"must lie within -90 and 90 degrees, got {np.abs(latitude).max():g}."
        raise DataError(path, name, problem)


def choose_variables(path: Path, requested: Sequence[str], available: Sequence[str]) -> list[str]:
    """Returns the requested names, or all available; raises a `DataError` for unknown names."""
    for name in requested:
        if name not in available:
            raise DataError(path, name, f"is not in the file, which has {', '.join(available)}.")
    return list(requested) or list(available)
