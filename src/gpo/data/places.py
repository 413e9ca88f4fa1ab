"""Points at which answers are asked for: from a file, or a regular grid over the domain."""

from pathlib import Path

import numpy as np
import torch

from gpo.data.errors import DataError
from gpo.data.geometry import Geometry
from gpo.numerics.domain import longitude_latitude


def read_places(path: Path, like: Geometry) -> Geometry:
    """Returns the points in a text file or a NumPy array, one row each.

    Args:
        path: Columns x, y, z as far as there are axes; longitude and latitude on the sphere.
            Separated by commas or blanks in a text file, where a first line of names may stand.
        like: The sites of the data; gives the domain.
    """
    try:
        if path.suffix == ".npy":
            rows = np.load(path, allow_pickle=False)
        else:
            text = path.read_text(encoding="utf-8").replace(",", " ").splitlines()
            start = 0 if text and _are_numbers(text[0]) else 1
            rows = np.array(
                [[float(word) for word in line.split()] for line in text[start:] if line.split()]
            )
    except (OSError, ValueError) as error:
        raise DataError(path, "queries", f"cannot be read: {error}") from error
    domain = like.domain
    columns = 2 if domain.is_sphere else domain.dim
    if rows.ndim != 2 or rows.shape[1] != columns or not len(rows):
        what = "longitude and latitude" if domain.is_sphere else ", ".join("xyz"[:columns])
        problem = f"must be rows of {columns} numbers ({what}), got shape {rows.shape}."
        raise DataError(path, "queries", problem)
    if not np.isfinite(rows).all():
        raise DataError(path, "queries", "must be finite.")
    if domain.is_sphere:
        return Geometry.on_sphere(rows[:, 0], rows[:, 1], domain)
    return Geometry.scattered(rows, domain=domain, units=like.axis_units)


def regular_places(shape: tuple[int, ...], like: Geometry) -> Geometry:
    """Returns a regular grid over the domain, or over the region of the sphere that sites cover."""
    domain = like.domain
    num_axes = 2 if domain.is_sphere else domain.dim
    if len(shape) != num_axes or min(shape) < 2:
        raise ValueError(f"--grid takes {num_axes} counts of at least 2, got {shape}.")
    if not domain.is_sphere:
        ends = list(zip(domain.lower, domain.upper, strict=True))
        axes = [
            np.linspace(low, high, count, endpoint=not wraps)
            for (low, high), count, wraps in zip(ends, shape, domain.periodic, strict=True)
        ]
        names, units = (like.axis_names, like.axis_units) if like.axes else ((), ())
        return Geometry.rectilinear(
            axes, periodic=domain.periodic, bounds=ends, names=names, units=units
        )
    if domain.lower == (-1.0,) * 3:
        latitude = 90 - (np.arange(shape[0]) + 0.5) * 180 / shape[0]
        return Geometry.latitude_longitude(latitude, np.arange(shape[1]) * 360 / shape[1])
    longitude, latitude = longitude_latitude(torch.from_numpy(like.coords))
    # Around the middle of the region, which may lie on the meridian where longitudes jump.
    middle = like.coords.mean(0)
    center = float(np.rad2deg(np.arctan2(middle[1], middle[0])))
    along = (longitude.numpy() - center + 180) % 360 - 180 + center
    return Geometry.latitude_longitude(
        np.linspace(float(latitude.max()), float(latitude.min()), shape[0]),
        np.linspace(along.min(), along.max(), shape[1]),
    )


def _are_numbers(line: str) -> bool:
    try:
        [float(word) for word in line.split()]
    except ValueError:
        return False
    return True
