"""Values of the model as files of named arrays with CF metadata: NetCDF and Zarr.

What a variable means stands beside it (`long_name`, `units`). Numbers that no variable holds,
such as the domain's ends, are attributes of the file.
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

from gpo.atomic_files import new_file, whole_file
from gpo.numerics.domain import Domain, longitude_latitude
from gpo.settings_files import CheckpointError

SUFFIXES = (".nc", ".zarr")
AXIS_NAMES = ("x", "y", "z")
WEIGHT_MEANING = "fraction of its site's unit of mass, or of what arrives at its site"


def variable(
    dims: tuple[str, ...], tensor: Tensor, long_name: str, units: str = "1", **attributes: str
) -> xr.Variable:
    """Returns a variable of a file; whole numbers become 32 bits wide, as CF wants them."""
    values = tensor.detach().cpu().numpy()
    if values.dtype.kind == "i":
        values = values.astype(np.int32)
    named = {"long_name": long_name, "units": units, **attributes}
    return xr.Variable(dims, values, named, {"_FillValue": None})


def place_variables(
    prefix: str, dims: tuple[str, ...], places: Tensor, domain: Domain, what: str, units: str
) -> dict[str, xr.Variable]:
    """Returns the coordinates of points, one variable per axis; also in degrees on the sphere."""
    if domain.is_sphere and units != "1":
        raise ValueError(
            f"`length_units` must be '1' on the sphere, whose points are unit vectors, got {units!r}."
        )
    along = zip(AXIS_NAMES[: domain.dim], places.unbind(-1), strict=True)
    found = {
        f"{prefix}{name}": variable(dims, numbers, f"{name} of the {what}", units)
        for name, numbers in along
    }
    if domain.is_sphere:
        for name, numbers, north_or_east in zip(
            ("longitude", "latitude"), longitude_latitude(places), ("east", "north"), strict=True
        ):
            degrees = f"degrees_{north_or_east}"
            meaning = f"{name} of the {what}"
            found[f"{prefix}{name}"] = variable(dims, numbers, meaning, degrees, standard_name=name)
    return found


def scale_variables(dims: tuple[str, ...], scales: Tensor, units: str) -> dict[str, xr.Variable]:
    """Returns the scales of particles, one variable per axis."""
    return {
        f"scale_{name}": variable(dims, numbers, f"standard deviation along {name}", units)
        for name, numbers in zip(AXIS_NAMES, scales.unbind(-1), strict=False)
    }


def write_dataset(
    path: str | Path,
    kind: str,
    title: str,
    domain: Domain,
    content: dict[str, xr.Variable],
    places: dict[str, xr.Variable],
    attributes: Mapping[str, str | list[int] | list[float]] | None = None,
) -> None:
    """Writes a new file, which is whole or not there.

    Args:
        path: The file; its ending says of what sort.
        kind: Name of the class that the file holds.
        title: The same for a reader.
        domain: Where all of it lives.
        content: The variables.
        places: Variables that say where, when and whose the others are.
        attributes: Numbers and names that no variable holds.
    """
    path = new_file(path, SUFFIXES)
    described = {
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
    dataset = xr.Dataset(content, places, described)
    with whole_file(path) as partial:
        if path.suffix == ".nc":
            dataset.to_netcdf(partial, engine="netcdf4")
        else:
            dataset.to_zarr(partial, zarr_format=2, consolidated=True)


@dataclass(frozen=True)
class Stored:
    """What a file holds, every part of which is there or named as missing."""

    path: Path
    dataset: xr.Dataset

    @classmethod
    def read(cls, path: str | Path, kind: str) -> "Stored":
        """Reads all of a file that holds an object of a kind."""
        path = Path(path)
        if path.suffix not in SUFFIXES:
            raise ValueError(f"`path` must end in {' or '.join(SUFFIXES)}, got {path.name!r}.")
        if not path.exists():
            raise CheckpointError(f"{path}: there is no such file.")
        try:
            engine = "netcdf4" if path.suffix == ".nc" else "zarr"
            dataset = xr.load_dataset(path, engine=engine, decode_cf=False)
        except Exception as error:
            # Every library has its own words, and its own errors, for a broken file.
            raise CheckpointError(f"{path}: cannot be read: {error}") from error
        found = dataset.attrs.get("gpo_kind")
        if found != kind:
            raise CheckpointError(f"{path}: must hold a {kind}, got {found or 'none of gpo'}.")
        return cls(path, dataset)

    def __contains__(self, name: str) -> bool:
        return name in self.dataset.variables

    def tensor(self, name: str, dims: tuple[str, ...]) -> Tensor:
        """Returns a variable, which must have these axes; lengths of axes agree in any file."""
        if name not in self:
            raise CheckpointError(f"{self.path}: variable `{name}` is missing.")
        found = self.dataset[name]
        if found.dims != dims or found.dtype.kind not in "if":
            raise CheckpointError(
                f"{self.path}: variable `{name}` must hold numbers along ({', '.join(dims)}), "
                f"got {found.dtype} along ({', '.join(map(str, found.dims))})."
            )
        values = np.ascontiguousarray(found.values)
        return torch.from_numpy(values.astype(np.int64) if found.dtype.kind == "i" else values)

    def places(self, prefix: str, dims: tuple[str, ...], domain: Domain) -> Tensor:
        """Returns the coordinates of points, the axes of the domain last."""
        names = AXIS_NAMES[: domain.dim]
        return torch.stack([self.tensor(prefix + name, dims) for name in names], -1)

    def numbers(self, name: str) -> list[float]:
        """Returns an attribute that is one number or several."""
        if name not in self.dataset.attrs:
            raise CheckpointError(f"{self.path}: attribute `{name}` is missing.")
        found = self.dataset.attrs[name]
        try:
            return np.atleast_1d(found).astype(float).tolist()
        except ValueError as error:
            raise CheckpointError(
                f"{self.path}: attribute `{name}` must be numbers, got {found!r}."
            ) from error

    def domain(self) -> Domain:
        """Returns where all of it lives."""
        lower, upper = (tuple(self.numbers(f"domain_{end}")) for end in ("lower", "upper"))
        periodic = tuple(bool(number) for number in self.numbers("domain_periodic"))
        is_sphere = bool(self.numbers("domain_is_sphere")[0])
        try:
            return Domain(lower, upper, periodic, is_sphere)
        except ValueError as error:
            raise CheckpointError(f"{self.path}: {error}") from error


DIMS = ("particle",)
OWNERS = {
    "sample": "number of the sample, or of the frame of a series",
    "site": "number of the site that owns the particle",
    "gaussian": "number of the particle among the Gaussians of its site",
}


def save_columns(
    path: str | Path,
    length_units: str,
    *,
    centers: Tensor,
    scales: Tensor,
    weights: Tensor,
    domain: Domain,
    **owners: Tensor,
) -> None:
    """Writes the columns of a `ParticleCloud` into a new file, NetCDF or Zarr by its ending."""
    places = place_variables("center_", DIMS, centers, domain, "center", length_units)
    for name, meaning in OWNERS.items():
        places[name] = variable(DIMS, owners[f"{name}s"], meaning)
    content = {
        "weight": variable(DIMS, weights, WEIGHT_MEANING),
        **scale_variables(DIMS, scales, length_units),
    }
    title = "Gaussian particles: w exp(-1/2 sum_d ((x_d - center_d) / scale_d)^2)"
    write_dataset(path, "ParticleCloud", title, domain, content, places)


def load_columns(path: str | Path) -> dict[str, Any]:
    """Returns the columns of the `ParticleCloud` in a file, by name."""
    stored = Stored.read(path, "ParticleCloud")
    domain = stored.domain()
    return {
        "centers": stored.places("center_", DIMS, domain),
        "scales": stored.places("scale_", DIMS, domain),
        "weights": stored.tensor("weight", DIMS),
        **{f"{name}s": stored.tensor(name, DIMS) for name in OWNERS},
        "domain": domain,
    }
