"""The interface of readers, and the checks that they have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from gpo.data.dataset import DataError, StaticMaps, Trajectories, Variable
from gpo.data.geometry import Geometry


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Which variables, levels and members to read from a file that has several."""

    variables: tuple[str, ...] = ()
    """Names of the variables to read; all that belong together when empty."""
    select: Mapping[str, str] = field(default_factory=dict)
    """One value of every extra dimension by name, such as level=500 or number=0; for named
    arrays whose shapes leave it open, axes=time,y,x."""
    beside: tuple[str, ...] = ()
    """Names that are inputs beside the variables, and need not be time series of fields."""
    inputs: tuple[str, ...] = ()
    """Names that are given in a static map, fields or one number per sample; the variables are
    what it predicts then."""
    coords: tuple[str, ...] = ()
    """Names of the coordinates of sites, where a file does not tell: one array of points by
    coordinates, or one of a number per site for every coordinate."""
    periodic: tuple[str, ...] = ()
    """Names of axes that close on themselves, where a file does not tell."""
    num_files: int = 1
    """Files that are read as one: of many large ones, fewer frames each are searched for sites
    that are always missing."""


class AbstractReader(ABC):
    """Reader of one published layout; `readers/registry.py` says how a new one is added."""

    name: ClassVar[str]
    """Name of the layout, as in `READERS` and `Trajectories.layout`."""
    layout: ClassVar[str]
    """The layout in a few words, for messages."""
    takes_inputs: ClassVar[bool] = False
    """Whether the inputs of static maps can be named."""

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Returns whether a file has this layout, without reading values; may raise if it is broken."""

    @abstractmethod
    def read(self, path: Path, options: ReadOptions) -> Trajectories | StaticMaps:
        """Returns the data; raises `DataError`, naming file and field, where it cannot."""

    def read_static(
        self, path: Path, name: str, options: ReadOptions
    ) -> tuple[Variable, np.ndarray, Geometry] | None:
        """Returns a field of a file without times, and its sites; None where there is none."""
        return None


def check_axis(path: Path, name: str, axis: np.ndarray) -> np.ndarray:
    """Returns coordinates along one axis, which must be finite, sorted and distinct."""
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
    """Returns coordinates along one axis, which must also increase."""
    axis = check_axis(path, name, axis)
    if axis[0] > axis[-1]:
        raise DataError(path, name, "must increase, got coordinates that decrease.")
    return axis


def check_not_missing(path: Path, name: str, portions: Iterable[np.ndarray]) -> None:
    """Refuses a variable that is missing everywhere; looks no further than its first number."""
    if not any(np.isfinite(values).any() for values in portions):
        raise DataError(path, name, "holds no number at all: every value is NaN or infinite.")


def choose_variables(path: Path, wanted: Sequence[str], available: Sequence[str]) -> list[str]:
    """Returns the wanted names, all when none is named; refuses a name the file lacks."""
    for name in wanted:
        if name not in available:
            raise DataError(path, name, f"is not in the file, which has {', '.join(available)}.")
    return list(wanted) or list(available)
