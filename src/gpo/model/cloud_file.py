"""A particle cloud as a file of columns."""

from pathlib import Path

from gpo.model.cloud import ParticleCloud
from gpo.model.dataset_file import (
    WEIGHT_MEANING,
    Stored,
    place_variables,
    scale_variables,
    variable,
    write_dataset,
)

DIMS = ("particle",)
OWNERS = {
    "sample": "number of the sample, or of the frame of a series",
    "site": "number of the site that owns the particle",
    "gaussian": "number of the particle among the Gaussians of its site",
}


def save_cloud(cloud: ParticleCloud, path: str | Path, length_units: str) -> None:
    """Writes a new file, NetCDF or Zarr by its ending."""
    domain = cloud.domain
    where = place_variables("center_", DIMS, cloud.centers, domain, "center", length_units)
    owners = {
        name: variable(DIMS, getattr(cloud, f"{name}s"), meaning)
        for name, meaning in OWNERS.items()
    }
    content = {
        "weight": variable(DIMS, cloud.weights, WEIGHT_MEANING),
        **scale_variables(DIMS, cloud.scales, length_units),
    }
    title = "Gaussian particles: w exp(-1/2 sum_d ((x_d - center_d) / scale_d)^2)"
    write_dataset(path, "ParticleCloud", title, domain, content, {**where, **owners})


def load_cloud(path: str | Path) -> ParticleCloud:
    """Returns the cloud in a file."""
    stored = Stored.read(path, "ParticleCloud")
    domain = stored.domain()
    samples, sites, gaussians = (stored.tensor(name, DIMS) for name in OWNERS)
    return ParticleCloud(
        stored.places("center_", DIMS, domain),
        stored.places("scale_", DIMS, domain),
        stored.tensor("weight", DIMS),
        samples,
        sites,
        gaussians,
        domain,
    )
