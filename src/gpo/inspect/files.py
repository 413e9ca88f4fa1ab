"""NetCDF and Zarr files of model objects, with CF metadata.

Every variable has a `long_name` and `units`. Values that are not arrays, such as the bounds of the
domain, are attributes of the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from gpo.atomic_files import atomic_file, new_file
from gpo.numerics.domain import Domain, longitude_latitude
from gpo.settings_files import CheckpointError

SUFFIXES = (".nc", ".zarr")
AXIS_NAMES = ("x", "y", "z")
WEIGHT_MEANING = "fraction of the site's unit mass, or of its transported contribution"


def variable(
    dims: tuple[str, ...], tensor: Tensor, long_name: str, units: str = "1", **attributes: str
) -> xr.Variable:
    """Returns a variable with CF attributes; integers become 32 bits wide, as CF requires."""
    values = tensor.detach().cpu().numpy()
    if values.dtype.kind == "i":
        values = values.astype(np.int32)
    attributes = {"long_name": long_name, "units": units, **attributes}
    return xr.Variable(dims, values, attributes, {"_FillValue": None})


def coordinate_variables(
    prefix: str, dims: tuple[str, ...], coords: Tensor, domain: Domain, what: str, units: str
) -> dict[str, xr.Variable]:
    """Returns a variable per coordinate axis; on the sphere also longitude and latitude.

    Args:
        prefix: Start of the variable names, such as `center_`.
        dims: Dimensions of every variable.
        coords: The points, with the axes of the domain last.
        domain: Domain of the points.
        what: What the points are, for the `long_name`.
        units: Units of the coordinates.
    """
    if domain.is_sphere and units != "1":
        raise ValueError(
            f"`length_units` must be '1' on the sphere, whose points are unit vectors, got {units!r}."
        )
    variables = {
        f"{prefix}{axis}": variable(dims, values, f"{axis} of the {what}", units)
        for axis, values in zip(AXIS_NAMES[: domain.dim], coords.unbind(-1), strict=True)
    }
    if domain.is_sphere:
        for name, degrees, direction in zip(
            ("longitude", "latitude"), longitude_latitude(coords), ("east", "north"), strict=True
        ):
            variables[f"{prefix}{name}"] = variable(
                dims, degrees, f"{name} of the {what}", f"degrees_{direction}", standard_name=name
            )
    return variables


def scale_variables(dims: tuple[str, ...], scales: Tensor, units: str) -> dict[str, xr.Variable]:
    """Returns the scales of particles, a variable per axis."""
    return {
        f"scale_{axis}": variable(dims, values, f"standard deviation along {axis}", units)
        for axis, values in zip(AXIS_NAMES, scales.unbind(-1), strict=False)
    }


def write_dataset(
    path: str | Path,
    kind: str,
    title: str,
    domain: Domain,
    content: dict[str, xr.Variable],
    coordinates: dict[str, xr.Variable],
    attributes: Mapping[str, str | list[int] | list[float]] | None = None,
) -> None:
    """Writes a new file, completely or not at all.

    Args:
        path: The file; its suffix selects the format.
        kind: Name of the class that the file stores.
        title: CF title.
        domain: Domain of the object, stored as attributes.
        content: Data variables.
        coordinates: Coordinate variables: positions, times and indices.
        attributes: Further attributes of the file.
    """
    path = new_file(path, SUFFIXES)
    all_attributes = {
        "Conventions": "CF-1.8",
        "title": title,
        "source": f"gpo {version('gpo')}",
        "gpo_kind": kind,
        "domain_lower": list(domain.lower),
        "domain_upper": list(domain.upper),
        "domain_periodic": [int(is_periodic) for is_periodic in domain.periodic],
        "domain_is_sphere": int(domain.is_sphere),
        **(attributes or {}),
    }
    dataset = xr.Dataset(content, coordinates, all_attributes)
    with atomic_file(path) as partial:
        if path.suffix == ".nc":
            dataset.to_netcdf(partial, engine="netcdf4")
        else:
            dataset.to_zarr(partial, zarr_format=2, consolidated=True)


@dataclass(frozen=True)
class Stored:
    """The content of a file; reading a missing or malformed part raises a `CheckpointError`."""

    path: Path
    dataset: xr.Dataset

    @classmethod
    def read(cls, path: str | Path, kind: str) -> "Stored":
        """Reads a file that stores an object of this class name into memory."""
        path = Path(path)
        if path.suffix not in SUFFIXES:
            raise ValueError(f"`path` must end in {' or '.join(SUFFIXES)}, got {path.name!r}.")
        if not path.exists():
            raise CheckpointError(f"{path}: there is no such file.")
        try:
            engine = "netcdf4" if path.suffix == ".nc" else "zarr"
            dataset = xr.load_dataset(path, engine=engine, decode_cf=False)
        except Exception as error:
            # Each library raises its own exceptions for a damaged file.
            raise CheckpointError(f"{path}: cannot be read: {error}") from error
        stored_kind = dataset.attrs.get("gpo_kind")
        if stored_kind != kind:
            raise CheckpointError(
                f"{path}: must hold a {kind}, got {stored_kind or 'none of gpo'}."
            )
        return cls(path, dataset)

    def __contains__(self, name: str) -> bool:
        return name in self.dataset.variables

    def tensor(self, name: str, dims: tuple[str, ...]) -> Tensor:
        """Returns a numeric variable, which must have these dimensions."""
        if name not in self:
            raise CheckpointError(f"{self.path}: variable `{name}` is missing.")
        array = self.dataset[name]
        if array.dims != dims or array.dtype.kind not in "if":
            raise CheckpointError(
                f"{self.path}: variable `{name}` must hold numbers along ({', '.join(dims)}), "
                f"got {array.dtype} along ({', '.join(map(str, array.dims))})."
            )
        values = np.ascontiguousarray(array.values)
        return torch.from_numpy(values.astype(np.int64) if array.dtype.kind == "i" else values)

    def coords(self, prefix: str, dims: tuple[str, ...], domain: Domain) -> Tensor:
        """Returns coordinates, with the axes of the domain last."""
        names = AXIS_NAMES[: domain.dim]
        return torch.stack([self.tensor(prefix + name, dims) for name in names], -1)

    def numbers(self, name: str) -> list[float]:
        """Returns a numeric attribute as a list."""
        if name not in self.dataset.attrs:
            raise CheckpointError(f"{self.path}: attribute `{name}` is missing.")
        value = self.dataset.attrs[name]
        try:
            return np.atleast_1d(value).astype(float).tolist()
        except ValueError as error:
            raise CheckpointError(
                f"{self.path}: attribute `{name}` must be numbers, got {value!r}."
            ) from error

    def domain(self) -> Domain:
        """Returns the domain of the stored object."""
        lower, upper = (tuple(self.numbers(f"domain_{end}")) for end in ("lower", "upper"))
        periodic = tuple(bool(number) for number in self.numbers("domain_periodic"))
        is_sphere = bool(self.numbers("domain_is_sphere")[0])
        try:
            return Domain(lower, upper, periodic, is_sphere)
        except ValueError as error:
            raise CheckpointError(f"{self.path}: {error}") from error


DIMS = ("particle",)
INDICES = {
    "sample": "index of the sample, or of the frame of a series",
    "site": "index of the site that the particle belongs to",
    "gaussian": "index among the Gaussians of the site",
}


def save_columns(
    path: str | Path,
    length_units: str,
    *,
    centers: Tensor,
    scales: Tensor,
    weights: Tensor,
    domain: Domain,
    **indices: Tensor,
) -> None:
    """Writes the columns of a `ParticleCloud` to a new NetCDF or Zarr file."""
    coordinates = coordinate_variables("center_", DIMS, centers, domain, "center", length_units)
    for name, meaning in INDICES.items():
        coordinates[name] = variable(DIMS, indices[f"{name}s"], meaning)
    content = {
        "weight": variable(DIMS, weights, WEIGHT_MEANING),
        **scale_variables(DIMS, scales, length_units),
    }
    title = "Gaussian particles: w exp(-1/2 sum_d ((x_d - center_d) / scale_d)^2)"
    write_dataset(path, "ParticleCloud", title, domain, content, coordinates)


def load_columns(path: str | Path) -> dict[str, Any]:
    """Returns the columns of the `ParticleCloud` in a file, by name."""
    stored = Stored.read(path, "ParticleCloud")
    domain = stored.domain()
    return {
        "centers": stored.coords("center_", DIMS, domain),
        "scales": stored.coords("scale_", DIMS, domain),
        "weights": stored.tensor("weight", DIMS),
        **{f"{name}s": stored.tensor(name, DIMS) for name in INDICES},
        "domain": domain,
    }
