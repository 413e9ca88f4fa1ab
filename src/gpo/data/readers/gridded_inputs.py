"""Variables of a gridded file that are no time series of fields, but may be inputs beside them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import InputCandidate, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.cf import build_geometry, find_time, is_auxiliary, site_dims


@dataclass(frozen=True)
class _Read:
    """Reads one variable whole; the file is open only meanwhile."""

    open: Callable[[], xr.Dataset]
    name: str
    dims: tuple[str, ...]
    chosen: Mapping[str, int]

    def __call__(self) -> np.ndarray:
        dataset = self.open()
        try:
            array = dataset[self.name]
            at = {str(dim): self.chosen.get(str(dim), 0)
                  for dim in array.dims if dim not in self.dims}  # fmt: skip
            part = array.isel(at).transpose(*self.dims)
            return part.values.reshape(math.prod(part.shape)).astype(np.float64)
        finally:
            dataset.close()


def find_candidates(
    path: Path,
    dataset: xr.Dataset,
    time: str,
    sites: Sequence[str],
    chosen: Mapping[str, int],
    open_file: Callable[[], xr.Dataset],
) -> tuple[InputCandidate, ...]:
    """Returns fields without a time axis, and variables with one number per time.

    Args:
        path: The file, for messages.
        dataset: The same, open.
        time: Name of the time dimension.
        sites: Dimensions along which sites lie, in the order of points.
        chosen: Position along every other dimension.
        open_file: Opens the file again.
    """
    found: list[InputCandidate] = []
    for name, array in dataset.data_vars.items():
        if array.dtype.kind not in "iuf" or is_auxiliary(path, dataset, str(name)):
            continue
        dims = {str(dim) for dim in array.dims if dim not in chosen and dataset.sizes[dim] > 1}
        dims |= {str(dim) for dim in array.dims if dim == time or dim in sites}
        wanted = tuple(sites) if dims == set(sites) else (time,)
        if dims == set(wanted):
            variable = Variable(str(name), str(array.attrs.get("units", "")))
            read = _Read(open_file, str(name), wanted, dict(chosen))
            kind = "series" if wanted == (time,) else "static"
            found.append(InputCandidate(variable, kind, read))
    return tuple(found)


def read_static_field(
    path: Path, dataset: xr.Dataset, name: str
) -> tuple[Variable, np.ndarray, Geometry] | None:
    """Returns a variable without a time axis, and its sites.

    Args:
        path: The file, for messages.
        dataset: The same, open.
        name: The variable.
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
