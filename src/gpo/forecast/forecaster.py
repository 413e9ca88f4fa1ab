"""A model with normalisation: predicts the frame `lead` steps after its input frames.

A static map has one input frame, other outputs and lead 0. If the points of all samples correspond,
it is learned relative to the mean at each point (`statistics.py`).

Means are subtracted and added in double precision, and normalised fields have the precision of the
model. This preserves small signals on a large mean, and values in extreme units.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.atomic_files import write_text
from gpo.forecast.compatibility import TrainedOn
from gpo.forecast.statistics import SiteMeans
from gpo.model.checkpoint import CheckpointError, build
from gpo.model.model import AbstractModel, load_model
from gpo.model.operator import GaussianParticleOperator, OperatorOutput
from gpo.model.problem import UnsupportedGeometryError
from gpo.numerics.neighbours import Neighbours
from gpo.parallel.partition import SitePartition
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.settings_files import CONTENT_CHECKSUM, check_checksum, checksum_of, read_json

TASK_NAME = "task.json"
MEANS_CHECKSUM = "site_means_sha256"
"""Field of `task.json`: the checksum of the file of pointwise means."""

MAX_MEAN_RATIO = 1000
"""Ratio of mean to standard deviation up to which single precision keeps four digits."""
MIN_STD = 1e-30
"""Smallest standard deviation, and inverse of the largest, for single precision."""


@dataclass(frozen=True)
class Task:
    """Inputs and outputs of a model, and the statistics of the training data."""

    inputs: tuple[str, ...]
    """Input variables, forcings first."""
    outputs: tuple[str, ...]
    """Predicted variables; for a time series, those of the input."""
    units: tuple[str, ...]
    """Units of the outputs."""
    history: int
    lead: int
    """Time steps from the last input frame to the target; 0 for a static map."""
    predict: Literal["state", "increment"]
    input_mean: tuple[float, ...]
    input_std: tuple[float, ...]
    output_mean: tuple[float, ...]
    output_std: tuple[float, ...]
    increment_std: tuple[float, ...]
    """Root mean square change over `lead` steps, in units of `output_std`."""
    trend: tuple[float, ...] = ()
    """Damping factor of the last change, whose extrapolation is part of the increment; empty without
    a trend."""
    remainder: tuple[float, ...] = ()
    """Residual of the change after the trend, as a fraction of the change."""
    is_per_site: bool = False
    """Whether means are pointwise; those above are then means over all points."""
    forcings: tuple[str, ...] = ()
    """Inputs known in advance and not predicted; the first channels of every frame."""
    trained_on: TrainedOn = field(default_factory=TrainedOn)
    """Metadata of the training data, to check other data."""
    non_negative: tuple[str, ...] = ()
    """Outputs whose forecasts are bounded below by zero."""

    @property
    def num_forcings(self) -> int:
        """Number of forcings."""
        return len(self.forcings)

    @property
    def needs_double(self) -> bool:
        """Whether single precision loses the signal, such as a small one on a large mean."""
        pairs = zip(
            (*self.input_mean, *self.output_mean), (*self.input_std, *self.output_std), strict=True
        )
        return any(
            abs(mean) > MAX_MEAN_RATIO * std or not MIN_STD < std < 1 / MIN_STD
            for mean, std in pairs
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """Input variables without forcings."""
        return self.inputs[self.num_forcings :]


STATISTICS = ("input_mean", "input_std", "output_mean", "output_std", "increment_std")
TREND = ("trend", "remainder")


class Forecaster(nn.Module):
    """Wraps any model of normalised values; inputs and outputs are in physical units."""

    input_mean: Tensor
    input_std: Tensor
    output_mean: Tensor
    output_std: Tensor
    increment_std: Tensor
    increment_scale: Tensor
    """Scale of the model output that is added to the last frame and its trend."""
    trend: Tensor
    input_scale: Tensor
    """What normalised inputs are divided by: the standard deviation, per variable or per point."""
    output_scale: Tensor
    lowest: Tensor
    """Smallest value of each output in a forecast."""

    def __init__(self, model: AbstractModel, task: Task, means: SiteMeans | None = None) -> None:
        super().__init__()
        self.model, self.task = model, task
        statistics = {
            name: torch.tensor(getattr(task, name), dtype=torch.double) for name in STATISTICS
        }
        zeros = torch.zeros(len(task.outputs), dtype=torch.double)
        statistics["trend"] = zeros + torch.tensor(task.trend or 0.0, dtype=torch.double)
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
    ) -> Float[Tensor, "batch targets outputs"]:
        """Returns the predicted frame in the units of the data, at the input points or at `queries`.

        It has the precision of `frames`, at least that of the model.

        Args:
            frames: The last frames, oldest first, in the units of the data.
            coords: The input points.
            weights: Quadrature weights; 0 masks a point.
            queries: Other points of the prediction; not for baselines.
        """
        if queries is None:
            values = self.normalised_input(frames)
            output = self.model(values, coords, weights=weights)
            predicted = self.denormalised(self.apply_increment(output, values))
        else:
            predicted = self.forecast(frames, coords, weights=weights).at(queries)
        return predicted.to(torch.promote_types(frames.dtype, self.dtype))

    def forecast(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> "Forecast":
        """Returns a forecast that can be evaluated at its input points and anywhere else."""
        values = self.normalised_input(frames)
        sites = self.operator.sites(values, coords, weights)
        return Forecast(self, values, self.operator.run(sites))

    def at_queries(
        self,
        output: Float[Tensor, "batch queries outputs"],
        values: Float[Tensor, "batch points channels"],
        neighbours: Neighbours,
    ) -> Float[Tensor, "batch queries outputs"]:
        """Returns the predicted frame in the units of the data, from a model's output at queries.

        Args:
            output: Output of the model.
            values: Its normalised input.
            neighbours: The input points near every query.
        """
        if self.task.predict == "increment":
            values = neighbours.blend(neighbours.gather(values))
        mean, scale = self.site_means(self.output_mean), self.site_means(self.output_scale)
        mean, scale = (
            neighbours.blend(neighbours.gather(part.expand(len(neighbours.index), -1, -1)))
            if part.ndim > 1
            else part
            for part in (mean, scale)
        )
        return self._bounded(self.apply_increment(output, values) * scale + mean)

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

    def advance(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        prediction: Float[Tensor, "batch points outputs"],
        forcings: Float[Tensor, "batch points forcings"] | None = None,
    ) -> Float[Tensor, "batch history points inputs"]:
        """Returns the input of the next step: drops the oldest frame and appends the prediction.

        Args:
            frames: Input of the last step, normalised or not.
            prediction: Its prediction.
            forcings: Forcings of the next target time, the first channels of the new frame.
        """
        count = 0 if forcings is None else forcings.shape[-1]
        if count != self.task.num_forcings:
            raise ValueError(
                f"`forcings` must be those of the next target time: "
                f"{', '.join(self.task.forcings) or 'none'}; got {count} of them."
            )
        newest = prediction if forcings is None else torch.cat([forcings, prediction], -1)
        return torch.cat([frames[:, 1:], newest.unsqueeze(1)], 1)

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

    def apply_increment(self, output: Tensor, values: Tensor) -> Tensor:
        """Returns the normalised prediction from the model's output and its input."""
        if self.task.predict == "state":
            return output
        return self.continued(values) + self.increment_scale.to(output) * output

    def continued(
        self, values: Float[Tensor, "batch points channels"]
    ) -> Float[Tensor, "batch points outputs"]:
        """Returns the normalised last frame plus the damped trend."""
        count, stride = len(self.task.outputs), len(self.task.inputs)
        last = values[..., -count:]
        if not self.task.trend:
            return last
        before = values[..., -stride - count : -stride]
        return last + self.trend.to(values) * (last - before)

    def save(self, folder: Path) -> None:
        """Writes the model, its task and its pointwise means into a folder."""
        self.model.save_pretrained(folder)
        stored = asdict(self.task)
        if self.task.is_per_site:
            means = self.pointwise
            means.save(folder)
            stored[MEANS_CHECKSUM] = means.sha256()
        stored = json.loads(json.dumps(stored))
        stored[CONTENT_CHECKSUM] = checksum_of(stored)
        write_text(folder / TASK_NAME, json.dumps(stored, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Forecaster":
        """Returns what `save` wrote."""
        path = folder / TASK_NAME
        content = stored = read_json(path)
        if "trained_on" not in stored:
            raise CheckpointError(
                f"{path}: was written by a version before 0.4.0, without metadata of the training "
                "data. Train the run again."
            )
        # Versions before 0.5.0 had no trend, those before 0.9.0 no bounds.
        stored = {**{name: [] for name in (*TREND, "non_negative")}, **stored}
        checksum = stored.pop(MEANS_CHECKSUM, "")
        stored.pop(CONTENT_CHECKSUM, None)
        task = build(Task, stored, str(path))
        for name in (*STATISTICS, *TREND):
            if not all(map(math.isfinite, getattr(task, name))):
                raise CheckpointError(f"{path}: field `{name}` must be finite numbers.")
            if name.endswith("_std") and not all(part > 0 for part in getattr(task, name)):
                raise CheckpointError(f"{path}: field `{name}` must be above 0.")
        check_checksum(path, content)
        means = SiteMeans.load(folder, checksum) if task.is_per_site else None
        return cls(load_model(folder), task, means)


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

    def at_sites(self) -> Float[Tensor, "batch points outputs"]:
        """Returns the frame at the input points."""
        state = self.forecaster.apply_increment(self.output.at_sites(), self.values)
        return self.forecaster.denormalised(state)

    def at(
        self, queries: Float[Tensor, "*#batch queries dim"]
    ) -> Float[Tensor, "batch queries outputs"]:
        """Returns the frame at any points."""
        neighbours = self.output.sites.neighbours(queries)
        return self.forecaster.at_queries(self.output.at(queries), self.values, neighbours)

    def interpolated(
        self, queries: Float[Tensor, "*#batch queries dim"]
    ) -> Float[Tensor, "batch queries outputs"]:
        """Returns the last input frame at any points, interpolated as the model interpolates it."""
        neighbours = self.output.sites.neighbours(queries)
        last = self.values[..., -len(self.forecaster.task.outputs) :]
        return self.forecaster.denormalised(neighbours.blend(neighbours.gather(last)))
