r"""Blended forecasts: a combination of the model and of references.

The forecast of a variable after $s$ steps is $\sum_i w_{si}\,\hat u_{si}$, where the model and each
reference continue from their own frames. The weights are fitted on validation data (`blend_fit.py`);
they are non-negative and sum to one. A model that has diverged does no harm where its weight is zero.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.references import AbstractReference
from gpo.forecast.rollout import rollout_steps
from gpo.forecast.task import BlendWeights, Task
from gpo.numerics.neighbours import Neighbours
from gpo.parallel.partition import SitePartition

MODEL = "model"
"""Name of the model among the forecasts."""
MIN_EXAMPLES = 4
"""Minimum number of validation examples with which the model has any weight."""
MIN_WEIGHT = 0.01
"""Smallest weight of a forecast; smaller ones are zero."""


@dataclass(frozen=True)
class Contribution:
    """What references contribute to one step of a blended forecast."""

    model_weight: Float[Tensor, " outputs"]
    references: Float[Tensor, "batch points outputs"]
    """Their weighted sum."""
    lowest: Float[Tensor, " outputs"]
    """Smallest value of each output."""

    def added_to(
        self, model: Float[Tensor, "batch points outputs"]
    ) -> Float[Tensor, "batch points outputs"]:
        """Returns the blended forecast from that of the model."""
        part = torch.where(self.model_weight > 0, self.model_weight * model, 0.0)
        return torch.maximum(part + self.references, self.lowest).to(model.dtype)

    def at(self, neighbours: Neighbours, partition: SitePartition) -> "Contribution":
        """Returns the contribution at other points, interpolated from the points next to each.

        Args:
            neighbours: The points next to each query.
            partition: The points of this process.
        """
        local = self.references[:, partition.among(self.references.shape[1])]
        return replace(self, references=neighbours.blend(neighbours.gather(local)))


@dataclass(frozen=True)
class Blend:
    """References and the weights of model and references."""

    task: Task
    references: Mapping[str, AbstractReference]
    """Those with a positive weight."""

    @property
    def weights(self) -> BlendWeights:
        """The weights of the task."""
        return self.task.blend

    def contributions(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        coords: Float[Tensor, "*#batch points dim"],
        num_steps: int = 1,
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        forcings: Float[Tensor, "#batch later points forcings"] | None = None,
        seasons: Float[Tensor, "#batch times 2"] | None = None,
    ) -> Iterator[Contribution]:
        """Yields the contribution of references to each step of a rollout.

        A reference that cannot predict at these points leaves its weight to the model. The arguments
        are those of `rollout`.
        """
        rows = torch.tensor(self.weights.weights, dtype=torch.double)
        columns = self.weights.forecasts
        used = {
            name: rollout_steps(
                reference, frames, coords, num_steps,
                weights=weights, forcings=forcings, seasons=seasons,
            )
            for name, reference in self.references.items()
            if reference.applies_to(frames.shape[2])
        }  # fmt: skip
        lowest = [
            0.0 if name in self.task.non_negative else -math.inf for name in self.task.outputs
        ]
        for step in range(num_steps):
            by_output = rows[min(step, len(rows) - 1)]
            total = torch.zeros(len(frames), frames.shape[2], len(lowest), dtype=torch.double)
            rest = torch.ones(len(lowest), dtype=torch.double)
            for name, steps in used.items():
                weight = by_output[:, columns.index(name)]
                total = total + weight * next(steps).double()
                rest = rest - weight
            # Weights add up to one except for rounding.
            rest = torch.where(rest > 1e-9, rest, 0.0)
            yield Contribution(rest, total, torch.tensor(lowest, dtype=torch.double))


def sentence(task: Task) -> str:
    """Returns what the forecasts of a run are made of; empty for the model alone."""
    blend = task.blend
    if not blend.forecasts:
        return ""
    first = f"one step ahead {_described(task, 0)}"
    if blend.num_examples[0] < MIN_EXAMPLES:
        count = blend.num_examples[0]
        examples = "1 validation example is" if count == 1 else f"{count} validation examples are"
        return (
            f"Forecasts are those of references, without the model ({first}): {examples} too few to "
            f"weigh it (at least {MIN_EXAMPLES} are needed; --no-blend for the model alone)."
        )
    last = len(blend.weights)
    later = f"; {last} steps ahead {_described(task, last - 1)}" if last > 1 else ""
    examples = f"{blend.num_examples[0]} validation examples"
    if not blend.has_references:
        return f"Forecasts are those of the model: on {examples} no reference improves them."
    if all(row[0] == 1 for row in blend.weights[0]):
        return (
            "Forecasts one step ahead are those of the model; later ones combine it with references, "
            f"weighted on {examples} (--no-blend for the model alone){later}."
        )
    if not any(row[0] for step in blend.weights for row in step):
        return (
            f"Forecasts are those of references: on {examples} the model does not improve them "
            f"(--no-blend for the model alone): {first}{later}."
        )
    return (
        f"Forecasts combine model and references, weighted on {examples} "
        f"(--no-blend for the model alone): {first}{later}."
    )


def _described(task: Task, step: int) -> str:
    """Returns the weights of a step in words, by variable where they differ."""
    texts: dict[str, list[str]] = {}
    for name, row in zip(task.outputs, task.blend.weights[step], strict=True):
        pairs = sorted(zip(row, task.blend.forecasts, strict=True), reverse=True)
        shown = [f"{weight:.0%} {who}" for weight, who in pairs if weight > 0]
        texts.setdefault(" and ".join(shown), []).append(name)
    return ", ".join(
        text if len(texts) == 1 else f"{', '.join(names)} {text}" for text, names in texts.items()
    )
