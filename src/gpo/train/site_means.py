"""What static maps have in common: the mean of their training samples, site by site.

A shape changes the flow around it little, and its mesh less. Relative to the mean of all
samples these changes are what there is to learn; relative to one number they would be lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor

from gpo.data.trajectories import Pairs
from gpo.model.artifact import ArtifactError

FILE_NAME = "site_means.safetensors"


@dataclass(frozen=True)
class SiteMeans:
    """Means over samples whose sites correspond, such as the nodes of one structured mesh."""

    inputs: Float[Tensor, "points inputs"]
    outputs: Float[Tensor, "points outputs"]

    @classmethod
    def of(cls, data: Pairs, numbers: Sequence[int]) -> "SiteMeans | None":
        """Returns the means of some samples; None where not all samples have as many sites."""
        counts = {data.geometry(number).num_points for number in range(data.num_samples)}
        if len(counts) > 1:
            return None
        samples = [data.sample(number) for number in numbers]
        return cls(*(_mean(np.stack(part)) for part in zip(*samples, strict=True)))

    def save(self, folder: Path) -> None:
        """Writes the means beside a model."""
        save_file({"inputs": self.inputs, "outputs": self.outputs}, folder / FILE_NAME)

    @classmethod
    def load(cls, folder: Path) -> "SiteMeans":
        """Returns what `save` wrote."""
        try:
            return cls(**load_file(folder / FILE_NAME))
        except Exception as error:
            raise ArtifactError(f"{folder / FILE_NAME}: cannot be read: {error}") from error


def _mean(values: np.ndarray) -> Tensor:
    known = np.isfinite(values)
    mean = np.where(known, values, 0).sum(0) / np.maximum(known.sum(0), 1)
    return torch.from_numpy(mean.astype(np.float32))
