"""The task of a trained model: its variables, and the statistics of the training data."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import FieldData

MAX_MEAN_RATIO = 1000
"""Ratio of mean to standard deviation up to which single precision keeps four digits."""
STATISTICS = ("input_mean", "input_std", "output_mean", "output_std", "increment_std")
"""Fields of a task that hold a number for each variable."""
OWN_BASES = ("persistence", "trend")
"""Bases whose numbers are all in the task."""
MIN_STD = 1e-30
"""Smallest standard deviation, and inverse of the largest, for single precision."""


@dataclass(frozen=True)
class TrainedOn:
    """Metadata of the training data; empty if the file did not declare them."""

    step: float | None = None
    """Time step in `time_units`; None for static maps."""
    time_units: str = ""
    calendar: str = ""
    """Calendar of the dates; empty without dates."""
    units: tuple[str, ...] = ()
    """Units of the inputs."""
    output_units: tuple[str, ...] = ()
    """Units of the outputs."""
    levels: tuple[str, ...] = ()
    """Such as level=500."""
    axes: tuple[str, ...] = ()
    """Names of the axes; empty if points differ between samples."""
    axis_units: tuple[str, ...] = ()
    lower: tuple[float, ...] = ()
    """Smallest coordinate along each axis, in the coordinates of the file."""
    upper: tuple[float, ...] = ()
    """Largest coordinate along each axis."""
    spacing: tuple[float, ...] = ()
    """Mean distance of neighbours along each axis."""
    has_indices: bool = False
    """Whether coordinates are numbers of sites, because the file had none."""

    @classmethod
    def of(cls, data: FieldData) -> "TrainedOn":
        """Returns the metadata of a data set."""
        return cls(
            step=data.time_step if len(data.time) > 1 else None,
            time_units=data.time_units,
            calendar="" if data.origin is None else data.origin.calendar,
            units=tuple(variable.units for variable in data.inputs),
            output_units=tuple(variable.units for variable in data.outputs),
            levels=tuple(f"{name}={value}" for name, value in data.levels.items()),
            **_region(data),
        )


@dataclass(frozen=True)
class BlendWeights:
    """Weights of forecasts: non-negative, with sum one over the forecasts."""

    forecasts: tuple[str, ...] = ()
    """`"model"` and the names of references; empty for the model alone."""
    weights: tuple = ()
    """By step of a rollout, output and forecast; later steps have the weights of the last one."""
    num_examples: tuple[int, ...] = ()
    """Number of validation examples by step."""

    @property
    def has_references(self) -> bool:
        """Whether any reference has a weight."""
        return len(self.forecasts) > 1

    def __post_init__(self) -> None:
        """Makes tuples of the lists of a file, and checks the weights."""
        rows = tuple(tuple(map(tuple, step)) for step in self.weights)
        object.__setattr__(self, "weights", rows)
        parts = [row for step in rows for row in step]
        is_right = all(
            len(row) == len(self.forecasts) and min(row) >= 0 and abs(sum(row) - 1) < 1e-6
            for row in parts
        )
        if (
            not is_right
            or bool(parts) != bool(self.forecasts)
            or len(rows) != len(self.num_examples)
        ):
            raise ValueError(
                "`blend` must have weights that are not negative and add up to one, for each of "
                f"{len(self.forecasts)} forecasts, got {parts[:1]}."
            )


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
    base: str = "persistence"
    """Name of the reference forecast to which increments are added."""
    trend: tuple[float, ...] = ()
    """Factor of the last change, where the base is the trend."""
    remainder: tuple[float, ...] = ()
    """Residual of the base, as a fraction of the change over `lead` steps; empty for persistence."""
    is_per_site: bool = False
    """Whether means are pointwise; those above are then means over all points."""
    forcings: tuple[str, ...] = ()
    """Inputs known in advance and not predicted; the first channels of every frame."""
    trained_on: TrainedOn = field(default_factory=TrainedOn)
    """Metadata of the training data, to check other data."""
    non_negative: tuple[str, ...] = ()
    """Outputs whose forecasts are bounded below by zero."""
    blend: BlendWeights = BlendWeights()
    """Weights of the model and of references in the forecasts that are written."""

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

    def state(self, frames: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch fields"]:
        """Returns the variables of frames that are predicted, without forcings."""
        return frames[..., self.num_forcings :]

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
        if count != self.num_forcings:
            raise ValueError(
                f"`forcings` must be those of the next target time: "
                f"{', '.join(self.forcings) or 'none'}; got {count} of them."
            )
        newest = prediction if forcings is None else torch.cat([forcings, prediction], -1)
        return torch.cat([frames[:, 1:], newest.unsqueeze(1)], 1)


def _region(data: FieldData) -> dict[str, Any]:
    """Returns names, units, bounds and spacing of the axes; empty if points differ by sample."""
    if len(data.geometries) > 1:
        return {}
    geometry = data.geometry()
    if geometry.axes:
        columns = [np.asarray(axis) for axis in geometry.axes]
        counts = [len(axis) for axis in columns]
        names, units = geometry.axis_names, geometry.axis_units
    else:
        columns = list(geometry.coords.T)
        dim = geometry.domain.dim
        along = max(2, round(geometry.num_points ** (1 / (dim - geometry.domain.is_sphere))))
        counts, names, units = [along] * dim, ("x", "y", "z")[:dim], ("",) * dim
    lower = tuple(float(np.min(column)) for column in columns)
    upper = tuple(float(np.max(column)) for column in columns)
    spacing = tuple(
        (high - low) / max(count - 1, 1)
        for low, high, count in zip(lower, upper, counts, strict=True)
    )
    return {
        "axes": tuple(names), "axis_units": tuple(units),
        "lower": lower, "upper": upper, "spacing": spacing, "has_indices": geometry.has_indices,
    }  # fmt: skip
