"""A trained operator with its units: frames in, the frame `lead` steps later out."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.artifact import ArtifactError, build
from gpo.model.operator import GaussianParticleOperator

TASK_NAME = "task.json"


@dataclass(frozen=True)
class Task:
    """What is predicted from what, and the statistics of the training data."""

    variables: tuple[str, ...]
    units: tuple[str, ...]
    history: int
    lead: int
    predict: Literal["state", "increment"]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    increment_std: tuple[float, ...]
    """Size of the change over `lead` steps, in units of `std`."""


class Forecaster(nn.Module):
    """Wraps a model that maps normalised values to normalised values, whatever model it is."""

    mean: Tensor
    std: Tensor
    increment_std: Tensor

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task
        for name in ("mean", "std", "increment_std"):
            self.register_buffer(name, torch.tensor(getattr(task, name)), persistent=False)

    def forward(
        self,
        frames: Float[Tensor, "batch history points variables"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Float[Tensor, "batch points variables"]:
        """Returns the predicted frame in the units of the data.

        Args:
            frames: The last frames, oldest first, in the units of the data.
            coords: The sites.
            weights: Quadrature weights; 0 masks a site.
        """
        values = self.normalised_input(frames)
        return self.denormalised(self.complete(self.model(values, coords, weights=weights), values))

    def normalised_input(
        self, frames: Float[Tensor, "batch history points variables"]
    ) -> Float[Tensor, "batch points channels"]:
        """Returns what the model sees: all frames side by side, the last one last."""
        return self.normalised(frames).permute(0, 2, 1, 3).flatten(2)

    def normalised(self, values: Float[Tensor, "*batch variables"]) -> Float[Tensor, "*batch v"]:
        """Returns values with zero mean and unit variance over the training data."""
        return (values - self.mean) / self.std

    def denormalised(self, values: Float[Tensor, "*batch v"]) -> Float[Tensor, "*batch v"]:
        """Returns values in the units of the data."""
        return values * self.std + self.mean

    def complete(self, output: Tensor, values: Tensor) -> Tensor:
        """Returns the normalised next state from the model's output and its input."""
        if self.task.predict == "state":
            return output
        last = values[..., -len(self.task.variables) :]
        return last + self.increment_std * output

    def save(self, folder: Path) -> None:
        """Writes the model's artifact and the task beside it."""
        assert isinstance(self.model, GaussianParticleOperator)
        self.model.save_pretrained(folder)
        text = json.dumps(asdict(self.task), indent=2) + "\n"
        (folder / TASK_NAME).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Forecaster":
        """Returns what `save` wrote."""
        path = folder / TASK_NAME
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{path}: cannot be read: {error}") from error
        task = build(Task, dict(stored), str(path))
        return cls(GaussianParticleOperator.from_pretrained(folder), task)
