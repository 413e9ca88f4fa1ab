"""Mixtures of consecutive frames, whose Gaussians can be tracked in time."""

from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from gpo.inspect.cloud import COLUMNS, ParticleCloud
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.tracks import Tracks


@dataclass(frozen=True)
class MixtureSeries:
    """Mixtures of consecutive frames; a Gaussian has the same label in all of them.

    `gpo_mixture.fit_series` returns one.
    """

    mixtures: tuple[GaussianMixture, ...]
    times: tuple[float, ...] = ()
    """Times of the frames; may be empty."""

    def __post_init__(self) -> None:
        """Checks that there are frames, and as many times if any."""
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

    @property
    def frame_indices(self) -> Int64[Tensor, " particles"]:
        """Frame of every Gaussian of all frames."""
        lengths = torch.tensor([len(mixture) for mixture in self.mixtures])
        return torch.arange(len(self)).repeat_interleave(lengths)

    def column(self, name: str) -> Tensor:
        """Returns an attribute of the Gaussians of all frames."""
        return torch.cat([getattr(mixture, name) for mixture in self.mixtures])

    def cloud(self) -> ParticleCloud:
        """Returns the particle cloud of all frames: samples are frames, sites are labels."""
        clouds = [mixture.cloud(frame) for frame, mixture in enumerate(self.mixtures)]
        columns = {name: torch.cat([getattr(part, name) for part in clouds]) for name in COLUMNS}
        return ParticleCloud(**columns, domain=self.mixtures[0].domain)

    def tracks(self) -> Tracks:
        """Returns the displacement and change of every Gaussian from frame to frame."""
        return Tracks.of(self.cloud())


def as_series(mixture: GaussianMixture | MixtureSeries) -> MixtureSeries:
    """Returns a series; a single mixture becomes its only frame."""
    return MixtureSeries((mixture,)) if isinstance(mixture, GaussianMixture) else mixture
