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
        sums = [_Mean(), _Mean()]
        for number in numbers:
            for one, values in zip(sums, data.sample(number), strict=True):
                one.add(values)
        return cls(*(one.mean() for one in sums))

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


class _Mean:
    """The mean of what is known at every site, sample by sample."""

    def __init__(self) -> None:
        self._total = self._count = np.zeros(1)

    def add(self, values: np.ndarray) -> None:
        is_known = np.isfinite(values)
        self._total = self._total + np.where(is_known, values, 0.0)
        self._count = self._count + is_known

    def mean(self) -> Tensor:
        mean = self._total / np.maximum(self._count, 1)
        return torch.from_numpy(mean.astype(np.float32))
