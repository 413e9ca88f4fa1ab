"""Masks by a variable: sites where a condition on it does not hold count as missing.

The variable is in the file of the data or in another one, such as a land-sea mask, and may change
in time, such as a concentration of sea ice. Sites that are never active have no weight; those that
are active at some times have no values at the others.
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError, FieldData, RowReader
from gpo.data.inputs import match_sites
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import find_files, open_data, open_static

COMPARISONS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq
}  # fmt: skip
PATTERN = re.compile(r"(?P<name>[^<>=]+?)\s*(?:(?P<sign>[<>]=?|=)\s*(?P<bound>[^<>=]+))?")


@dataclass(frozen=True)
class Condition:
    """A condition on a variable, such as lsm<0.5; without a comparison, that it is not zero."""

    name: str
    sign: str = ""
    bound: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Returns the condition in a text."""
        match = PATTERN.fullmatch(text.strip())
        try:
            if match is None:
                raise ValueError
            return cls(match["name"], match["sign"] or "", float(match["bound"] or 0))
        except ValueError:
            raise ValueError(
                f"--mask must be a variable, or one compared with a number, such as lsm or 'lsm<0.5', got {text!r}."
            ) from None

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Returns where the condition holds; never where values are missing."""
        is_known = np.isfinite(values)
        if not self.sign:
            return is_known & (values != 0)
        return is_known & COMPARISONS[self.sign](np.where(is_known, values, 0.0), self.bound)


@dataclass(frozen=True)
class ConstantMask:
    """The same active sites at all times."""

    is_active: np.ndarray

    def at(self, sample: int, times: slice) -> np.ndarray:
        """Returns the active sites as (1, points)."""
        return self.is_active[None]

    def ever(self) -> np.ndarray:
        """Returns the sites that are active at some time."""
        return self.is_active


@dataclass(frozen=True)
class SeriesMask:
    """Active sites that change from frame to frame."""

    series: FieldData
    sites: np.ndarray
    """Indices of the sites of the data among those of the series."""
    condition: Condition

    def at(self, sample: int, times: slice) -> np.ndarray:
        """Returns the active sites of frames as (times, points)."""
        number = sample if self.series.num_samples > 1 else 0
        return self.condition.holds(self.series.frames(number, times)[:, self.sites, 0])

    def ever(self) -> np.ndarray:
        """Returns the sites that are active at some time."""
        is_active = np.zeros(len(self.sites), dtype=bool)
        for sample in range(self.series.num_samples):
            for time in range(len(self.series.time)):
                is_active |= self.at(sample, slice(time, time + 1))[0]
        return is_active


def with_mask(
    data: FieldData,
    path: str | Path | Sequence[str | Path],
    options: ReadOptions,
    mask: str | None,
    mask_from: str | None = None,
) -> FieldData:
    """Returns the data where a condition holds; values elsewhere are missing.

    Args:
        data: The data.
        path: Their file.
        options: How it was read.
        mask: The condition, such as lsm<0.5; None for all sites.
        mask_from: File of the variable; that of the data if not given.
    """
    if mask is None:
        return data
    condition = Condition.parse(mask)
    if len(data.geometries) > 1:
        raise DataError(data.source, condition.name, "cannot mask sites that differ by sample.")
    found = _read(data, mask_from or path, replace(options, inputs=()), condition, mask_from)
    geometry = data.geometry()
    is_missing = ~found.ever() | geometry.is_masked
    if is_missing.all():
        raise DataError(data.source, condition.name, f"leaves no site: {mask} holds nowhere.")
    geometries = (geometry.masked(is_missing),)
    # A mask is not predicted unless it is named.
    numbers = range(len(data.variables))
    others = [n for n in numbers if n < data.num_inputs or data.variables[n].name != condition.name]
    kept = list(numbers) if options.variables or len(others) == data.num_inputs else others
    return replace(
        data, variables=tuple(data.variables[number] for number in kept), geometries=geometries,
        fetch=RowReader(_Frames(data, found, kept)),
    )  # fmt: skip


@dataclass(frozen=True)
class _Frames:
    """Reads frames, missing where the mask is not active."""

    data: FieldData
    mask: ConstantMask | SeriesMask
    kept: list[int]
    """Indices of the variables."""

    def __call__(self, sample: int, times: slice, sites: slice) -> np.ndarray:
        values = self.data.frames(sample, times, sites)[..., self.kept]
        is_active = self.mask.at(sample, times)[:, sites, None]
        return np.where(is_active, values, np.array(np.nan, np.result_type(values, np.float32)))


def _read(
    data: FieldData,
    path: str | Path | Sequence[str | Path],
    options: ReadOptions,
    condition: Condition,
    mask_from: str | None,
) -> ConstantMask | SeriesMask:
    """Returns the mask in a file: a field without times, or a time series."""
    name, options = condition.name, ReadOptions() if mask_from else options
    source, files = find_files(path)
    field = open_static(files[0], name, options)
    if field is not None:
        _, values, geometry = field
        sites = match_sites(source, name, geometry, data.geometry())
        return ConstantMask(condition.holds(np.asarray(values).reshape(-1)[sites]))
    try:
        series = open_data(path, replace(options, variables=(name,), extra_inputs=()))
    except DataError as error:
        raise DataError(source, name, f"cannot be a mask: it {error.problem}") from error
    if len(series.variables) > 1:
        raise DataError(source, name, "cannot be a mask: it is not a single field.")
    sites = match_sites(source, name, series.geometry(), data.geometry())
    found = SeriesMask(series, sites, condition)
    if len(series.time) == 1 and series.num_samples == 1:
        return ConstantMask(found.ever())
    if series.num_samples not in (1, data.num_samples):
        problem = f"must be one series or {data.num_samples}, one per sample."
        raise DataError(source, name, problem)
    if _hours(series) != _hours(data):
        problem = "must have the times of the data, or none: cut or interpolate it to them."
        raise DataError(source, name, problem)
    return found


def _hours(data: FieldData) -> list[float]:
    """Returns times that can be compared between files."""
    start = 0.0 if data.origin is None else data.origin.hours("1970-01-01")
    return [round(float(time) - start, 6) for time in data.time]
