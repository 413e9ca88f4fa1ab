"""Gaussians that are followed in time: the fit of a frame begins with that of the frame before."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.inspect.cloud import COLUMNS, ParticleCloud
from gpo.numerics.domain import Domain
from gpo.optional import require
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.tracks import Tracks


@dataclass(frozen=True)
class MixtureSeries:
    """The Gaussians of consecutive frames; a particle has the same label in all of them."""

    mixtures: tuple[GaussianMixture, ...]
    times: tuple[float, ...] = ()
    """Times of the frames, where they are known."""

    def __post_init__(self) -> None:
        """Refuses series without frames, and times that do not belong to them."""
        if not self.mixtures:
            raise ValueError("`mixtures` must hold at least one frame, got none.")
        if self.times and len(self.times) != len(self.mixtures):
            raise ValueError(
                f"`times` must have one entry per frame ({len(self.mixtures)}), "
                f"got {len(self.times)}."
            )

    def __len__(self) -> int:
        return len(self.mixtures)

    def __getitem__(self, frame: int) -> GaussianMixture:
        return self.mixtures[frame]

    @classmethod
    def fit(
        cls,
        frames: Iterable[Float[Tensor, "points channels"]],
        coords: Float[Tensor, "points dim"],
        weights: Float[Tensor, " points"] | None = None,
        num_particles: int = 100,
        *,
        domain: Domain | None = None,
        covariance: Literal["full", "diagonal"] = "full",
        num_steps: int = 20,
        variables: Sequence[str] = (),
        times: Sequence[float] = (),
        progress: Callable[[int], None] | None = None,
    ) -> "MixtureSeries":
        """Returns the Gaussians of every frame of a series.

        A few particles of a frame may be needed elsewhere in the next; they get a new label there.

        Args:
            frames: Fields at the same sites, in the order of time.
            coords: The sites; unit vectors on the sphere.
            weights: Quadrature weights; 0 masks a site. All equal when not given.
            num_particles: How many Gaussians each.
            domain: Where the sites lie; the smallest open box around them when not given.
            covariance: full, or diagonal: ellipses along the axes.
            num_steps: Steps of every round; more are slower and closer.
            variables: Names of the variables.
            times: Times of the frames.
            progress: Called with the number of frames that are done.
        """
        found: list[GaussianMixture] = []
        for number, values in enumerate(frames):
            made = GaussianMixture.fit(
                values, coords, weights, num_particles,
                domain=domain, covariance=covariance, num_steps=num_steps,
                start=found[-1] if found else None,
            )  # fmt: skip
            newest = max((int(one.labels.max()) for one in found), default=-1)
            found.append(replace(_renamed(made, found, newest), variables=tuple(variables)))
            if progress is not None:
                progress(number + 1)
        return cls(tuple(found), tuple(times))

    def cloud(self) -> ParticleCloud:
        """Returns the particles of all frames in one list: samples are frames, sites are labels."""
        clouds = [one.cloud(frame) for frame, one in enumerate(self.mixtures)]
        columns = {name: torch.cat([getattr(one, name) for one in clouds]) for name in COLUMNS}
        return ParticleCloud(**columns, domain=self.mixtures[0].domain)

    def tracks(self) -> Tracks:
        """Returns what becomes of every particle from frame to frame."""
        return Tracks.of(self.cloud())

    def save(self, path: str | Path, *, length_units: str = "1", time_units: str = "") -> None:
        """Writes a new file, NetCDF (`.nc`) or Zarr (`.zarr`), with CF metadata."""
        files = require("gpo_mixture.files", "data", "Saving Gaussians")
        files.save_mixtures(
            path, self.mixtures, self.times, length_units=length_units, time_units=time_units
        )

    @classmethod
    def load(cls, path: str | Path) -> "MixtureSeries":
        """Returns what `save` wrote, here or of a single mixture."""
        files = require("gpo_mixture.files", "data", "Loading Gaussians")
        mixtures, times = files.load_mixtures(path)
        return cls(tuple(mixtures), tuple(times))

    def export(self, path: str | Path, *, is_text: bool = False) -> None:
        """Writes a new file for other programs: VTK points (`.vtp`) or a point cloud (`.ply`)."""
        from gpo_mixture.exports import export_mixtures

        export_mixtures(self.mixtures, path, is_text)


def _renamed(
    mixture: GaussianMixture, before: Sequence[GaussianMixture], newest: int
) -> GaussianMixture:
    """Returns the same Gaussians, the new ones with labels that no earlier frame had."""
    if not before:
        return mixture
    is_new = ~torch.isin(mixture.labels, before[-1].labels)
    fresh = torch.arange(newest + 1, newest + 1 + int(is_new.sum()))
    labels = mixture.labels.clone()
    labels[is_new] = fresh
    return replace(mixture, labels=labels)
