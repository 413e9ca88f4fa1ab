"""A model with normalisation: predicts the frame `lead` steps after its input frames.

A static map has one input frame, other outputs and lead 0. If the points of all samples correspond,
it is learned relative to the mean at each point (`statistics.py`).

Means are subtracted and added in double precision, and normalised fields have the precision of the
model. This preserves small signals on a large mean, and values in extreme units.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.data.dataset import FieldData
from gpo.forecast.blend import Blend, Contribution
from gpo.forecast.references import AbstractReference, ReferenceInputs, base_of
from gpo.forecast.rollout import AbstractForecast
from gpo.forecast.statistics import SiteMeans
from gpo.forecast.task import STATISTICS, BlendWeights, Task
from gpo.forecast.task_files import load_task, save_task
from gpo.model.model import AbstractModel, load_model
from gpo.model.operator import GaussianParticleOperator, OperatorOutput
from gpo.model.problem import UnsupportedGeometryError
from gpo.numerics.neighbours import Neighbours
from gpo.parallel.partition import SitePartition
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard


class Forecaster(nn.Module, AbstractForecast):
    """Wraps any model of normalised values; inputs and outputs are in physical units.

    Args:
        model: The model.
        task: Its task.
        means: Pointwise means of static maps.
        references: The fitted references that the task names.
    """

    input_mean: Tensor
    input_std: Tensor
    output_mean: Tensor
    output_std: Tensor
    increment_std: Tensor
    increment_scale: Tensor
    """Scale of the model output that is added to the base."""
    input_scale: Tensor
    """What normalised inputs are divided by: the standard deviation, per variable or per point."""
    output_scale: Tensor
    lowest: Tensor
    """Smallest value of each output in a forecast."""

    def __init__(
        self,
        model: AbstractModel,
        task: Task,
        means: SiteMeans | None = None,
        references: Mapping[str, AbstractReference] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.task, self.references = model, task, dict(references or {})
        self.base, self.blend = base_of(task, self.references), None
        if task.blend.has_references:
            blended = {name: self.references[name] for name in task.blend.forecasts[1:]}
            self.blend = Blend(task, blended)
        statistics = {
            name: torch.tensor(getattr(task, name), dtype=torch.double) for name in STATISTICS
        }
        remainder = torch.tensor(task.remainder or 1.0, dtype=torch.double)
        statistics["increment_scale"] = statistics["increment_std"] * remainder
        if task.is_per_site:
            assert means is not None
            statistics |= {"input_mean": means.inputs, "output_mean": means.outputs}
        for side in ("input", "output"):
            scale = getattr(means, f"{side}_scale", None)
            statistics[f"{side}_scale"] = statistics[f"{side}_std"] if scale is None else scale
        lowest = [0.0 if name in task.non_negative else -math.inf for name in task.outputs]
        statistics["lowest"] = torch.tensor(lowest)
        for name, values in statistics.items():
            self.register_buffer(name, values.double(), persistent=False)
        self.partition = SitePartition()

    @property
    def alone(self) -> "Forecaster":
        """The same model without references in its forecasts."""
        if self.blend is None:
            return self
        alone = copy.copy(self)
        alone.blend = None
        return alone

    def blended(
        self, blend: BlendWeights, references: Mapping[str, AbstractReference]
    ) -> "Forecaster":
        """Returns the same model with weights of references in its forecasts."""
        means = self.pointwise if self.task.is_per_site else None
        used = {name: references[name] for name in blend.forecasts[1:]}
        kept = {name: part for name, part in self.references.items() if name == self.task.base}
        return Forecaster(self.model, replace(self.task, blend=blend), means, used | kept)

    def reference_inputs(self, data: FieldData, samples: Sequence[Any]) -> ReferenceInputs:
        """Returns what references of this model are fitted to.

        Args:
            data: The training data.
            samples: The training split.
        """
        return ReferenceInputs(
            task=self.task,
            data=data,
            samples=samples,
            input_mean=self.input_mean,
            output_mean=self.output_mean,
        )

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the model; a complex one counts once."""
        return self.model.num_parameters

    @property
    def dtype(self) -> torch.dtype:
        """Number type of the model's parameters and inputs."""
        return self.model.dtype

    @property
    def reconstructs(self) -> bool:
        """Whether the model is an auto-encoder: it reconstructs its input."""
        return self.model.name == "gaussian-field"

    @property
    def operator(self) -> GaussianParticleOperator:
        """The model as an operator; raises an error for a baseline."""
        operator = self.model.operator
        if operator is None:
            raise ValueError(
                f"{self.model.name} predicts at its input points only and has no ablations; use "
                "--model gpo for queries and ablations."
            )
        return operator

    @property
    def shard(self) -> SpatialShard:
        """The group of processes that share the points."""
        operator = self.model.operator
        return SINGLE_PROCESS if operator is None else operator.execution.shard

    def share_sites(self, shard: SpatialShard, partition: SitePartition = SitePartition()) -> None:
        """Sets that the model receives only a part of the points from now on.

        Args:
            shard: Communicates with the processes of the other parts.
            partition: The part of this process.
        """
        operator = self.model.operator
        if operator is None:
            raise ValueError(
                f"`space_shards` must be 1 for {self.model.name}: only gpo and gpo-paper can share "
                "the points of a sample. Use --devices to share batches."
            )
        operator.execution.shard, self.partition = shard, partition

    def site_means(self, statistic: Tensor) -> Tensor:
        """Returns means or scales at the points of this process, if they are pointwise."""
        return statistic[self.partition.among(len(statistic))] if statistic.ndim > 1 else statistic

    @property
    def pointwise(self) -> SiteMeans:
        """The pointwise statistics."""
        scales = (part if part.ndim > 1 else None for part in (self.input_scale, self.output_scale))
        return SiteMeans(self.input_mean, self.output_mean, *scales)

    def forward(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        queries: Float[Tensor, "*#batch queries dim"] | None = None,
        seasons: Float[Tensor, "batch times 2"] | None = None,
    ) -> Float[Tensor, "batch targets outputs"]:
        """Returns the predicted frame in the units of the data, at the input points or at `queries`.

        It has the precision of `frames`, at least that of the model. It is blended with references
        where the task has weights of them; `alone` is the model without.

        Args:
            frames: The last frames, oldest first, in the units of the data.
            coords: The input points.
            weights: Quadrature weights; 0 masks a point.
            queries: Other points of the prediction; not for baselines.
            seasons: Time of day and month of the frames and of the target.
        """
        if queries is None:
            values = self.normalised_input(frames)
            output = self.model(values, coords, weights=weights)
            base = self.continued(values, coords, seasons)
            predicted = self.denormalised(self.apply_increment(output, base))
            contribution = self.contribution(frames, coords, weights=weights, seasons=seasons)
            predicted = predicted if contribution is None else contribution.added_to(predicted)
        else:
            forecast = self.forecast(frames, coords, weights=weights, seasons=seasons)
            predicted = forecast.at(queries)
        return predicted.to(torch.promote_types(frames.dtype, self.dtype))

    def forecast(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        seasons: Float[Tensor, "batch times 2"] | None = None,
    ) -> "Forecast":
        """Returns a forecast that can be evaluated at its input points and anywhere else."""
        forecast = self._forecast(frames, coords, weights, seasons)
        return replace(
            forecast,
            contribution=self.contribution(frames, coords, weights=weights, seasons=seasons),
        )

    def _forecast(
        self, frames: Tensor, coords: Tensor, weights: Tensor | None, seasons: Tensor | None
    ) -> "Forecast":
        """Returns the forecast of the model alone."""
        values = self.normalised_input(frames)
        output = self.operator.run(self.operator.sites(values, coords, weights))
        return Forecast(self, values, output, self.continued(values, coords, seasons))

    def contribution(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        seasons: Float[Tensor, "batch times 2"] | None = None,
    ) -> Contribution | None:
        """Returns the contribution of references to one step; None for the model alone."""
        if self.blend is None:
            return None
        return next(self.blend.contributions(frames, coords, weights=weights, seasons=seasons))

    def at_queries(
        self,
        output: Float[Tensor, "batch queries outputs"],
        base: Float[Tensor, "batch points outputs"] | None,
        neighbours: Neighbours,
    ) -> Float[Tensor, "batch queries outputs"]:
        """Returns the predicted frame in the units of the data, from a model's output at queries.

        Args:
            output: Output of the model.
            base: The result of `continued` at the input points.
            neighbours: The input points near every query.
        """
        if base is not None:
            base = neighbours.blend(neighbours.gather(base))
        mean, scale = self.site_means(self.output_mean), self.site_means(self.output_scale)
        mean, scale = (
            neighbours.blend(neighbours.gather(part.expand(len(neighbours.index), -1, -1)))
            if part.ndim > 1
            else part
            for part in (mean, scale)
        )
        return self._bounded(self.apply_increment(output, base) * scale + mean)

    def normalised_input(
        self, frames: Float[Tensor, "batch history points inputs"]
    ) -> Float[Tensor, "batch points channels"]:
        """Returns the input of the model: all normalised frames as channels, the last one last."""
        mean = self.site_means(self.input_mean)
        if self.task.is_per_site and frames.shape[2] != len(mean):
            raise UnsupportedGeometryError(
                f"Fields must have {len(mean):,} corresponding points, as in training, got "
                f"{frames.shape[2]:,}. For any points, train static maps with --predict state, and "
                "time series with --normalise variables."
            )
        scale = self.site_means(self.input_scale)
        return stack_frames(((frames - mean) / scale).to(self.dtype))

    def normalised_forcings(
        self, values: Float[Tensor, "*batch forcings"]
    ) -> Float[Tensor, "*batch forcings"]:
        """Returns normalised forcings."""
        count = self.task.num_forcings
        mean, scale = (self.site_means(part) for part in (self.input_mean, self.input_scale))
        return ((values - mean[..., :count]) / scale[..., :count]).to(self.dtype)

    def normalised(
        self, values: Float[Tensor, "*batch outputs"]
    ) -> Float[Tensor, "*batch outputs"]:
        """Returns outputs with zero mean and unit variance over the training data."""
        scale = self.site_means(self.output_scale)
        return ((values - self.site_means(self.output_mean)) / scale).to(self.dtype)

    def denormalised(
        self, values: Float[Tensor, "*batch outputs"]
    ) -> Float[Tensor, "*batch outputs"]:
        """Returns outputs in the units of the data, in double precision."""
        scale = self.site_means(self.output_scale)
        return self._bounded(values * scale + self.site_means(self.output_mean))

    def _bounded(self, values: Tensor) -> Tensor:
        return torch.maximum(values, self.lowest) if self.task.non_negative else values

    def apply_increment(self, output: Tensor, base: Tensor | None) -> Tensor:
        """Returns the normalised prediction from the model's output and the result of `continued`."""
        return output if base is None else base + self.increment_scale.to(output) * output

    def continued(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "*#batch points dim"],
        seasons: Float[Tensor, "batch times 2"] | None = None,
    ) -> Float[Tensor, "batch points outputs"] | None:
        """Returns the normalised base, to which increments are added; None where states are predicted.

        Args:
            values: Normalised input.
            coords: The points.
            seasons: Time of day and month of the frames and of the target.
        """
        if self.task.predict == "state":
            return None
        frames = values.unflatten(-1, (self.task.history, -1)).transpose(1, 2)
        scaling = (self.site_means(part) for part in (self.output_mean, self.output_scale))
        return self.base.continued(self.task.state(frames), coords, seasons, *scaling)

    def save(self, folder: Path) -> None:
        """Writes the model, its task, its pointwise means and its references into a folder."""
        self.model.save_pretrained(folder)
        means = self.pointwise if self.task.is_per_site else None
        save_task(folder, self.task, means, self.references)

    @classmethod
    def load(cls, folder: Path) -> "Forecaster":
        """Returns what `save` wrote."""
        task, means, references = load_task(folder)
        return cls(load_model(folder), task, means, references)


def stack_frames(
    frames: Float[Tensor, "batch history points inputs"],
) -> Float[Tensor, "batch points channels"]:
    """Returns all frames as channels, the last one last."""
    return frames.permute(0, 2, 1, 3).flatten(2)


@dataclass(frozen=True)
class Forecast:
    """A predicted frame in the units of the data, at its input points or anywhere."""

    forecaster: Forecaster
    values: Float[Tensor, "batch points channels"]
    """The normalised input, masked points included."""
    output: OperatorOutput
    base: Float[Tensor, "batch points outputs"] | None
    """The result of `Forecaster.continued`."""
    contribution: Contribution | None = None
    """The contribution of references, at all points; None for the model alone."""

    def at_sites(self) -> Float[Tensor, "batch points outputs"]:
        """Returns the frame at the input points."""
        model = self.model_at_sites()
        return model if self.contribution is None else self.contribution.added_to(model)

    def model_at_sites(self) -> Float[Tensor, "batch points outputs"]:
        """Returns the frame of the model alone."""
        state = self.forecaster.apply_increment(self.output.at_sites(), self.base)
        return self.forecaster.denormalised(state)

    def at(
        self, queries: Float[Tensor, "*#batch queries dim"]
    ) -> Float[Tensor, "batch queries outputs"]:
        """Returns the frame at any points."""
        neighbours = self.output.sites.neighbours(queries)
        model = self.forecaster.at_queries(self.output.at(queries), self.base, neighbours)
        if self.contribution is None:
            return model
        return self.contribution.at(neighbours, self.forecaster.partition).added_to(model)

    def interpolated(
        self, queries: Float[Tensor, "*#batch queries dim"]
    ) -> Float[Tensor, "batch queries outputs"]:
        """Returns the last input frame at any points, interpolated as the model interpolates it."""
        neighbours = self.output.sites.neighbours(queries)
        last = self.values[..., -len(self.forecaster.task.outputs) :]
        return self.forecaster.denormalised(neighbours.blend(neighbours.gather(last)))
