"""Exports Gaussians as VTK points (`.vtp`) or as a PLY point cloud (`.ply`)."""

import re
from pathlib import Path

import torch

from gpo.inspect.vtk import export_points, pad_to_3d
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.series import MixtureSeries, as_series


def export(
    mixture: GaussianMixture | MixtureSeries, path: str | Path, *, is_text: bool = False
) -> None:
    """Writes a new `.vtp` or `.ply` file.

    Amplitudes are named after their variables; in `.vtp` files the array `footprint` holds the
    ellipse of one standard deviation.

    Args:
        mixture: A mixture, or all frames of a series.
        path: The file; it is written completely or not at all.
        is_text: Whether to write text instead of binary numbers.
    """
    series = as_series(mixture)
    first = series[0]
    names = first.variables or tuple(str(number) for number in range(len(first.offset)))
    # A PLY header splits names at spaces.
    names = [re.sub(r"\W+", "_", name) for name in names]
    columns = {
        f"amplitude_{name}": values
        for name, values in zip(names, series.column("amplitudes").unbind(-1), strict=True)
    }
    columns |= {
        "scale": pad_to_3d(series.column("scales")),
        "label": series.column("labels").to(torch.int32),
        "frame": series.frame_indices.to(torch.int32),
    }
    footprints = torch.cat([frame.footprints().tensors for frame in series.mixtures])
    export_points(path, series.column("centers"), columns, footprints, is_text)
