"""A trained operator with its units: frames in, the frame `lead` steps later out.

A static map is the same with one input frame, other outputs and no lead. Where the sites of
all samples correspond, it is learned relative to their means (`statistics.py`).

Fields in the units of the data are in double precision, or in whatever they are given in: means are
subtracted and added there in double precision. Normalised fields have the precision of the model.
So a small signal on a large mean stays what it is, and so do units that single precision cannot
square.
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
from gpo.numerics.neighbours import Neighbours
from gpo.parallel.partition import SitePartition
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.settings_files import read_json

TASK_NAME = "task.json"
MEANS_CHECKSUM = "site_means_sha256"
"""Field of `task.json`, where means are taken site by site: the checksum of their file."""

MOST_MEAN = 1000
"""Spreads of a variable up to which its mean leaves single precision four digits of its signal."""
LEAST = 1e-30
"""Spread down to which, and inverse up to which, a variable is within reach of single precision."""


@dataclass(frozen=True)
class Task:
    """What is predicted from what, and the statistics of the training data."""

    inputs: tuple[str, ...]
    """Variables that are given."""
    outputs: tuple[str, ...]
    """Variables that are predicted; those that are given, for a time series."""
    units: tuple[str, ...]
    """Units of the outputs."""
    history: int
    lead: int
    """Steps ahead; 0 for a static map."""
    predict: Literal["state", "increment"]
    input_mean: tuple[float, ...]
    input_std: tuple[float, ...]
    output_mean: tuple[float, ...]
    output_std: tuple[float, ...]
    increment_std: tuple[float, ...]
    """Size of the change over `lead` steps, in units of `output_std`."""
    trend: tuple[float, ...] = ()
    """The part of the last change that goes on, where two frames or more are given: an increment is
    added to it. None where nothing goes on."""
    remainder: tuple[float, ...] = ()
    """Size of what the trend leaves of the change, as a part of it."""
    is_per_site: bool = False
    """Whether means are taken site by site; those above are then means over all sites."""
    forcings: tuple[str, ...] = ()
    """Inputs that every frame begins with: known in advance and not predicted."""
    trained_on: TrainedOn = field(default_factory=TrainedOn)
    """What the training data were, so that other data are told from them."""

    @property
    def num_forcings(self) -> int:
        """Inputs of a frame that are known in advance and not predicted."""
        return len(self.forcings)

    @property
    def needs_double(self) -> bool:
        """Whether single precision is too coarse for the variables: a small signal on a large mean."""
        pairs = zip(
            (*self.input_mean, *self.output_mean), (*self.input_std, *self.output_std), strict=True
        )
        return any(
            abs(mean) > MOST_MEAN * std or not LEAST < std < 1 / LEAST for mean, std in pairs
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """Variables that are given, without forcings."""
        return self.inputs[self.num_forcings :]


STATISTICS = ("input_mean", "input_std", "output_mean", "output_std", "increment_std")
TREND = ("trend", "remainder")


class Forecaster(nn.Module):
    """Wraps a model that maps normalised values to normalised values, whatever model it is."""

    input_mean: Tensor
    input_std: Tensor
    output_mean: Tensor
    output_std: Tensor
    increment_std: Tensor
    increment_scale: Tensor
    """Size of what is added to the last frame and its trend."""
    trend: Tensor

    def __init__(self, model: AbstractModel, task: Task, means: SiteMeans | None = None) -> None:
        super().__init__()
        self.model, self.task = model, task
        statistics = {
            name: torch.tensor(getattr(task, name), dtype=torch.double) for name in STATISTICS
        }
        nothing = torch.zeros(len(task.outputs), dtype=torch.double)
        statistics["trend"] = nothing + torch.tensor(task.trend or 0.0, dtype=torch.double)
        left = torch.tensor(task.remainder or 1.0, dtype=torch.double)
        statistics["increment_scale"] = statistics["increment_std"] * left
        if task.is_per_site:
            assert means is not None
            statistics |= {"input_mean": means.inputs, "output_mean": means.outputs}
        for name, values in statistics.items():
            self.register_buffer(name, values.double(), persistent=False)
        self.partition = SitePartition()

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the model; a complex one counts once."""
        return self.model.num_parameters

    @property
    def dtype(self) -> torch.dtype:
        """The type of the model's parameters, and of its input."""
        return self.model.dtype

    @property
    def reconstructs(self) -> bool:
        """Whether the model is an auto-encoder: it reconstructs its input."""
        return self.model.name == "gaussian-field"

    @property
    def operator(self) -> GaussianParticleOperator:
        """The model as an operator; an error for a baseline, which answers at its sites only."""
        operator = self.model.operator
        if operator is None:
            raise ValueError(
                f"{self.model.name} answers at its sites only and has no parts to switch off; "
                "queries and ablations need a model gpo."
            )
        return operator

    @property
    def shard(self) -> SpatialShard:
        """Which part of the sites the model works on."""
        operator = self.model.operator
        return SINGLE_PROCESS if operator is None else operator.execution.shard

    def share_sites(self, shard: SpatialShard, partition: SitePartition = SitePartition()) -> None:
        """Tells the model that it is given a part of the sites from now on.

        Args:
            shard: Joins the processes that have the others.
            partition: Which part this is.
        """
        operator = self.model.operator
        if operator is None:
            raise ValueError(
                f"`space_shards` must be 1 for {self.model.name}: of all models, gpo alone can work "
                "on a part of the sites. --devices shares batches."
            )
        operator.execution.shard, self.partition = shard, partition

    def site_means(self, mean: Tensor) -> Tensor:
        """Returns means at the sites that are held here, where there is one for each."""
        return mean[self.partition.among(len(mean))] if self.task.is_per_site else mean

    def forward(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        queries: Float[Tensor, "*#batch queries dim"] | None = None,
    ) -> Float[Tensor, "batch targets outputs"]:
        """Returns the predicted frame in the units of the data, at the sites or at `queries`.

        It has the precision of `frames`, at least that of the model.

        Args:
            frames: The last frames, oldest first, in the units of the data.
            coords: The sites.
            weights: Quadrature weights; 0 masks a site.
            queries: Any other points; baselines answer at their sites only.
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
        """Returns a forecast that can be evaluated at its sites and anywhere."""
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
            output: What the model said.
            values: What it saw at the sites.
            neighbours: The sites next to every query.
        """
        if self.task.predict == "increment":
            values = neighbours.blend(neighbours.gather(values))
        mean = self.site_means(self.output_mean)
        if self.task.is_per_site:
            sets = mean.expand(len(neighbours.index), -1, -1)
            mean = neighbours.blend(neighbours.gather(sets))
        return self.apply_increment(output, values) * self.output_std + mean

    def normalised_input(
        self, frames: Float[Tensor, "batch history points inputs"]
    ) -> Float[Tensor, "batch points channels"]:
        """Returns what the model sees: all frames side by side, the last one last."""
        mean = self.site_means(self.input_mean)
        if self.task.is_per_site and frames.shape[2] != len(mean):
            raise ValueError(
                f"The model was trained on maps of {len(mean):,} corresponding sites, "
                f"got {frames.shape[2]:,}. Train with predict=state for maps of any sites."
            )
        return stack_frames(((frames - mean) / self.input_std).to(self.dtype))

    def advance(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        prediction: Float[Tensor, "batch points outputs"],
        forcings: Float[Tensor, "batch points forcings"] | None = None,
    ) -> Float[Tensor, "batch history points inputs"]:
        """Returns what the next forecast starts from: the oldest frame goes, a predicted one comes.

        Args:
            frames: What the last forecast started from, normalised or not.
            prediction: What it said.
            forcings: Those of the time that comes next, which the new frame begins with.
        """
        num_given = 0 if forcings is None else forcings.shape[-1]
        if num_given != self.task.num_forcings:
            raise ValueError(
                f"`forcings` must be those of the time that comes next: "
                f"{', '.join(self.task.forcings) or 'none'}; got {num_given} of them."
            )
        newest = prediction if forcings is None else torch.cat([forcings, prediction], -1)
        return torch.cat([frames[:, 1:], newest.unsqueeze(1)], 1)

    def normalised_forcings(
        self, values: Float[Tensor, "*batch forcings"]
    ) -> Float[Tensor, "*batch forcings"]:
        """Returns forcings as the model sees them."""
        count = self.task.num_forcings
        normal = (values - self.input_mean[..., :count]) / self.input_std[:count]
        return normal.to(self.dtype)

    def normalised(
        self, values: Float[Tensor, "*batch outputs"]
    ) -> Float[Tensor, "*batch outputs"]:
        """Returns outputs with zero mean and unit variance over the training data."""
        normal = (values - self.site_means(self.output_mean)) / self.output_std
        return normal.to(self.dtype)

    def denormalised(
        self, values: Float[Tensor, "*batch outputs"]
    ) -> Float[Tensor, "*batch outputs"]:
        """Returns outputs in the units of the data, in double precision."""
        return values * self.output_std + self.site_means(self.output_mean)

    def apply_increment(self, output: Tensor, values: Tensor) -> Tensor:
        """Returns the normalised next state from the model's output and its input."""
        if self.task.predict == "state":
            return output
        return self.continued(values) + self.increment_scale.to(output) * output

    def continued(
        self, values: Float[Tensor, "batch points channels"]
    ) -> Float[Tensor, "batch points outputs"]:
        """Returns the normalised last frame with the part of the last change that goes on."""
        count, stride = len(self.task.outputs), len(self.task.inputs)
        last = values[..., -count:]
        if not self.task.trend:
            return last
        before = values[..., -stride - count : -stride]
        return last + self.trend.to(values) * (last - before)

    def save(self, folder: Path) -> None:
        """Writes the model's artifact and the task beside it."""
        self.model.save_pretrained(folder)
        stored = asdict(self.task)
        if self.task.is_per_site:
            means = SiteMeans(self.input_mean, self.output_mean)
            means.save(folder)
            stored[MEANS_CHECKSUM] = means.sha256()
        write_text(folder / TASK_NAME, json.dumps(stored, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Forecaster":
        """Returns what `save` wrote."""
        path = folder / TASK_NAME
        stored = read_json(path)
        if "trained_on" not in stored:
            raise CheckpointError(
                f"{path}: is of a version before 0.4.0, which did not write what a run was trained "
                "on. Train the run again."
            )
        # Before 0.5.0 nothing went on.
        stored = {**{name: [] for name in TREND}, **stored}
        checksum = stored.pop(MEANS_CHECKSUM, "")
        task = build(Task, stored, str(path))
        for name in (*STATISTICS, *TREND):
            if not all(map(math.isfinite, getattr(task, name))):
                raise CheckpointError(f"{path}: field `{name}` must be finite numbers.")
            if name.endswith("_std") and not all(part > 0 for part in getattr(task, name)):
                raise CheckpointError(f"{path}: field `{name}` must be above 0.")
        means = SiteMeans.load(folder, checksum) if task.is_per_site else None
        return cls(load_model(folder), task, means)


def stack_frames(
    frames: Float[Tensor, "batch history points inputs"],
) -> Float[Tensor, "batch points channels"]:
    """Returns all frames of a site in one row, the last one last."""
    return frames.permute(0, 2, 1, 3).flatten(2)


@dataclass(frozen=True)
class Forecast:
    """A predicted frame in the units of the data, at its sites or anywhere."""

    forecaster: Forecaster
    values: Float[Tensor, "batch points channels"]
    """The normalised input, masked sites included."""
    output: OperatorOutput

    def at_sites(self) -> Float[Tensor, "batch points outputs"]:
        """Returns the frame at the sites."""
        completed = self.forecaster.apply_increment(self.output.at_sites(), self.values)
        return self.forecaster.denormalised(completed)

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
