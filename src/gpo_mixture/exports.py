"""Gaussians for other programs: VTK's XML points (`.vtp`) and point clouds (`.ply`)."""

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from gpo.inspect.vtk import export_points, in_space
from gpo_mixture.mixture import GaussianMixture


def export_mixtures(mixtures: Sequence[GaussianMixture], path: str | Path, is_text: bool) -> None:
    """Writes the Gaussians of one frame or several to a new file, in the format of its ending.

    Amplitudes are called after their variables; `footprint` has the ellipse of one standard
    deviation.
    """
    first = mixtures[0]
    names = first.variables or tuple(str(number) for number in range(len(first.offset)))
    amplitudes = torch.cat([one.amplitudes for one in mixtures])
    frames = [torch.full_like(one.labels, number) for number, one in enumerate(mixtures)]
    columns = {
        f"amplitude_{_word(name)}": numbers
        for name, numbers in zip(names, amplitudes.unbind(-1), strict=True)
    }
    columns |= {
        "scale": in_space(torch.cat([one.scales for one in mixtures])),
        "label": torch.cat([one.labels for one in mixtures]).to(torch.int32),
        "frame": torch.cat(frames).to(torch.int32),
    }
    centers = torch.cat([one.centers for one in mixtures])
    footprints = torch.cat([one.footprints().tensors for one in mixtures])
    export_points(path, centers, columns, footprints, is_text)


def _word(name: str) -> str:
    """Returns a name without signs that end a word in a header."""
    return re.sub(r"\W+", "_", name)
