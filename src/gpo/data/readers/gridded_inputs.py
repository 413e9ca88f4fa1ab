"""Variables of a gridded file that can be additional inputs: static fields and scalar series."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError, InputCandidate, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.cf import build_geometry, find_time, is_auxiliary, site_dims


@dataclass(frozen=True)
class _VariableReader:
    """Reads a whole variable; the file is opened for each call."""

    open: Callable[[], xr.Dataset]
    name: str
    dims: tuple[str, ...]
    selection: Mapping[str, int]

    def __call__(self) -> np.ndarray:
        dataset = self.open()
        try:
            array = dataset[self.name]
            others = [str(dim) for dim in array.dims if dim not in self.dims]
            part = array.isel({dim: self.selection.get(dim, 0) for dim in others})
            part = part.transpose(*self.dims)
            return part.values.reshape(math.prod(part.shape)).astype(np.float64)
        finally:
            dataset.close()


def check_dims(
    path: Path, dataset: xr.Dataset, names: Sequence[str], fields: Sequence[str]
) -> None:
    """Raises a `DataError` for a variable with the lengths of a field, but other dimensions.

    Args:
        path: The file, for error messages.
        dataset: The open file.
        names: Names of all numeric variables.
        fields: Names of those that are time series of fields.
    """
    dims = {dataset[name].shape: ", ".join(map(str, dataset[name].dims)) for name in fields}
    for name in names:
        expected, own = dims.get(dataset[name].shape), ", ".join(map(str, dataset[name].dims))
        if name not in fields and expected is not None:
            problem = f"has dimensions ({own}), but others of the same lengths have ({expected})."
            advice = f"If the file is not damaged, choose: `--var {fields[0]}`."
            raise DataError(path, name, f"{problem} {advice}")


def find_candidates(
    path: Path,
    dataset: xr.Dataset,
    time: str,
    sites: Sequence[str],
    selection: Mapping[str, int],
    open_file: Callable[[], xr.Dataset],
) -> tuple[InputCandidate, ...]:
    """Returns fields without a time axis, and scalar time series.

    Args:
        path: The file, for error messages.
        dataset: The open file.
        time: Name of the time dimension.
        sites: Dimensions of the sites, in the order of points.
        selection: Index along each other dimension.
        open_file: Opens the file again.
    """
    candidates: list[InputCandidate] = []
    for name, array in dataset.data_vars.items():
        if array.dtype.kind not in "iuf" or is_auxiliary(path, dataset, str(name)):
            continue
        dims = {str(dim) for dim in array.dims if dim not in selection and dataset.sizes[dim] > 1}
        dims |= {str(dim) for dim in array.dims if dim == time or dim in sites}
        kept = tuple(sites) if dims == set(sites) else (time,)
        if dims == set(kept):
            variable = Variable(str(name), str(array.attrs.get("units", "")))
            read = _VariableReader(open_file, str(name), kept, dict(selection))
            kind = "series" if kept == (time,) else "static"
            candidates.append(InputCandidate(variable, kind, read))
    return tuple(candidates)


def read_static_field(
    path: Path, dataset: xr.Dataset, name: str
) -> tuple[Variable, np.ndarray, Geometry] | None:
    """Returns a variable without a time axis, and its sites; None if there is no such variable.

    Args:
        path: The file, for error messages.
        dataset: The open file.
        name: Name of the variable.
    """
    if name not in dataset.variables:
        return None
    array = dataset[name].squeeze(drop=True)
    dims = [str(dim) for dim in array.dims]
    if not dims or find_time(dataset, dims) is not None:
        return None
    sites = site_dims(path, dataset, dims, "")
    geometry = build_geometry(path, dataset, sites, "")
    values = array.transpose(*sites).values.ravel().astype(np.float64)
    return Variable(name, str(array.attrs.get("units", ""))), values, geometry
