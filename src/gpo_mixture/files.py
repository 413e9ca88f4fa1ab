"""Saves and loads Gaussians as NetCDF or Zarr files with CF metadata.

A file has one row per Gaussian and frame, with the index of its frame and its label.
"""

from pathlib import Path

import torch

from gpo.inspect.files import AXIS_NAMES, Stored, coordinate_variables, variable, write_dataset
from gpo.settings_files import CheckpointError
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.series import MixtureSeries, as_series

KIND = "GaussianMixture"
DIMS = ("particle",)
AMPLITUDE_DIMS = ("particle", "variable")
OFFSET_DIMS = ("frame_number", "variable")
TITLE = "A field as Gaussians: offset + sum_k amplitude_k exp(-1/2 |L_k^-1 (x - center_k)|^2)"
SEPARATOR = "\n"
"""Separates the names of variables, which may contain any other character."""


def save(
    mixture: GaussianMixture | MixtureSeries,
    path: str | Path,
    *,
    length_units: str = "1",
    time_units: str = "",
) -> None:
    """Writes a new NetCDF (`.nc`) or Zarr (`.zarr`) file.

    Args:
        mixture: A mixture, or all frames of a series.
        path: The file; it is written completely or not at all.
        length_units: Units of the domain's coordinates, such as "m".
        time_units: Units of the times of a series.
    """
    series = as_series(mixture)
    domain, variables = series[0].domain, series[0].variables
    factors, names = series.column("factors"), AXIS_NAMES[: domain.dim]
    coordinates = coordinate_variables(
        "center_", DIMS, series.column("centers"), domain, "center", length_units
    )
    coordinates["frame"] = variable(DIMS, series.frame_indices, "index of the frame")
    coordinates["label"] = variable(
        DIMS, series.column("labels"), "label of the Gaussian, the same in all frames"
    )
    if series.times:
        times = torch.tensor(series.times, dtype=torch.float64)
        coordinates["time"] = variable(
            OFFSET_DIMS[:1], times, "time of the frame", time_units or "1"
        )
    content = {
        f"factor_{names[i]}{names[j]}": variable(
            DIMS, factors[:, i, j], f"Cholesky factor L of the covariance, {names[i]}{names[j]}",
            length_units,
        )
        for i in range(len(names)) for j in range(i + 1)
    }  # fmt: skip
    content["amplitude"] = variable(
        AMPLITUDE_DIMS, series.column("amplitudes"), "amplitude of the Gaussian"
    )
    offsets = torch.stack([frame.offset for frame in series.mixtures])
    content["offset"] = variable(OFFSET_DIMS, offsets, "value far from all Gaussians")
    attributes = {"variables": SEPARATOR.join(variables)}
    write_dataset(path, KIND, TITLE, domain, content, coordinates, attributes)


def load(path: str | Path) -> MixtureSeries:
    """Returns the series that `save` wrote; a single mixture is its only frame, `load(path)[0]`."""
    stored = Stored.read(path, KIND)
    domain = stored.domain()
    centers = stored.coords("center_", DIMS, domain)
    factors = centers.new_zeros(len(centers), domain.dim, domain.dim)
    names = AXIS_NAMES[: domain.dim]
    for i in range(domain.dim):
        for j in range(i + 1):
            factors[:, i, j] = stored.tensor(f"factor_{names[i]}{names[j]}", DIMS)
    amplitudes = stored.tensor("amplitude", AMPLITUDE_DIMS)
    offsets = stored.tensor("offset", OFFSET_DIMS)
    frames, labels = stored.tensor("frame", DIMS), stored.tensor("label", DIMS)
    text = str(stored.dataset.attrs.get("variables", ""))
    variables = tuple(text.split(SEPARATOR)) if text else ()
    times = stored.tensor("time", OFFSET_DIMS[:1]).tolist() if "time" in stored else []
    try:
        mixtures = tuple(
            GaussianMixture(
                centers[frames == n], factors[frames == n], amplitudes[frames == n],
                offset, labels[frames == n], domain, variables,
            )
            for n, offset in enumerate(offsets)
        )  # fmt: skip
        return MixtureSeries(mixtures, tuple(times))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
