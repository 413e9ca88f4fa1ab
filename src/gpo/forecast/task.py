"""The task of a trained model: its variables, and the statistics of the training data."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.compatibility import TrainedOn

MAX_MEAN_RATIO = 1000
"""Ratio of mean to standard deviation up to which single precision keeps four digits."""
MIN_STD = 1e-30
"""Smallest standard deviation, and inverse of the largest, for single precision."""


@dataclass(frozen=True)
class BlendWeights:
    """Weights of forecasts: non-negative, with sum one over the forecasts."""

    forecasts: tuple[str, ...] = ()
    """`"model"` and the names of references; empty for the model alone."""
    weights: tuple = ()
    """By step of a rollout, output and forecast; later steps have the weights of the last one."""
    num_examples: tuple[int, ...] = ()
    """Number of validation examples by step."""

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
