"""Gaussians as files of named arrays with CF metadata: NetCDF and Zarr.

One row per particle and frame; `frame` says which, `label` is the name that a particle keeps.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from gpo.inspect.files import AXIS_NAMES, Stored, place_variables, variable, write_dataset
from gpo.settings_files import CheckpointError
from gpo_mixture.mixture import GaussianMixture

KIND = "GaussianMixture"
DIMS = ("particle",)
TITLE = "A field as Gaussians: offset + sum_k amplitude_k exp(-1/2 |L_k^-1 (x - center_k)|^2)"
SEPARATOR = "\n"
"""Between names of variables, which may hold anything else."""


def save_mixtures(
    path: str | Path,
    mixtures: Sequence[GaussianMixture],
    times: Sequence[float] = (),
    *,
    length_units: str = "1",
    time_units: str = "",
) -> None:
    """Writes the Gaussians of one frame or several into a new file, NetCDF or Zarr by its ending."""
    first = mixtures[0]
    domain, names = first.domain, AXIS_NAMES[: first.domain.dim]
    centers, factors, amplitudes, labels = (
        torch.cat([getattr(one, name) for one in mixtures])
        for name in ("centers", "factors", "amplitudes", "labels")
    )
    frames = torch.cat([torch.full_like(one.labels, n) for n, one in enumerate(mixtures)])
    places = place_variables("center_", DIMS, centers, domain, "center", length_units)
    places["frame"] = variable(DIMS, frames, "number of the frame")
    places["label"] = variable(DIMS, labels, "name of the particle, the same in all frames")
    if times:
        stamps = torch.tensor(list(times), dtype=torch.float64)
        places["time"] = variable(("frame_number",), stamps, "time of the frame", time_units or "1")
    content = {
        f"factor_{names[i]}{names[j]}": variable(
            DIMS, factors[:, i, j], f"Cholesky factor L of the covariance, {names[i]}{names[j]}",
            length_units,
        )
        for i in range(len(names)) for j in range(i + 1)
    }  # fmt: skip
    content["amplitude"] = variable(("particle", "variable"), amplitudes, "height of the Gaussian")
    offsets = torch.stack([one.offset for one in mixtures])
    content["offset"] = variable(
        ("frame_number", "variable"), offsets, "value far from all Gaussians"
    )
    attributes = {"variables": SEPARATOR.join(first.variables)}
    write_dataset(path, KIND, TITLE, domain, content, places, attributes)


def load_mixtures(path: str | Path) -> tuple[list[GaussianMixture], list[float]]:
    """Returns the Gaussians of every frame of a file, and the times of the frames."""
    stored = Stored.read(path, KIND)
    domain = stored.domain()
    centers = stored.places("center_", DIMS, domain)
    factors = centers.new_zeros(len(centers), domain.dim, domain.dim)
    names = AXIS_NAMES[: domain.dim]
    for i in range(domain.dim):
        for j in range(i + 1):
            factors[:, i, j] = stored.tensor(f"factor_{names[i]}{names[j]}", DIMS)
    amplitudes = stored.tensor("amplitude", ("particle", "variable"))
    offsets = stored.tensor("offset", ("frame_number", "variable"))
    frames, labels = stored.tensor("frame", DIMS), stored.tensor("label", DIMS)
    text = str(stored.dataset.attrs.get("variables", ""))
    variables = tuple(text.split(SEPARATOR)) if text else ()
    times = stored.tensor("time", ("frame_number",)).tolist() if "time" in stored else []
    try:
        found = [
            GaussianMixture(
                centers[frames == n], factors[frames == n], amplitudes[frames == n],
                offset, labels[frames == n], domain, variables,
            )
            for n, offset in enumerate(offsets)
        ]  # fmt: skip
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return found, times


def load_mixture(path: str | Path) -> GaussianMixture:
    """Returns the Gaussians of a file of one frame."""
    found, _ = load_mixtures(path)
    if len(found) != 1:
        raise ValueError(
            f"{path} holds {len(found)} frames: open it with gpo_mixture.MixtureSeries.load({str(path)!r})."
        )
    return found[0]
