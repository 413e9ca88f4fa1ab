"""The session of a page: a trained run, its test examples, and caches of recent results."""

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.data.splits import TimeSlice, evenly, used_frames
from gpo.evaluation.flow import FlowVariables
from gpo.forecast.examples import Example, TimeSliceExamples
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.references import AbstractReference, fit_references
from gpo.model.ablation import Ablation
from gpo.model.operator import GaussianParticleOperator
from gpo.model.trace import Trace
from gpo_explore.arrays import Packet
from gpo_explore.plane import Plane

MAX_EXAMPLES = 2000
"""Largest number of test examples on the page; larger splits are subsampled evenly."""

MAX_REFERENCE_VALUES = 2**28
"""Largest number of training values to which references are fitted while the page waits."""

Result = TypeVar("Result")


class AbandonedError(Exception):
    """The client has disconnected or the server is stopping, so an answer is not needed any more."""


class RecentCache(Generic[Result]):
    """A cache of the most recently used results.

    Args:
        max_size: Largest number of results.
        is_small: False for results that are too large to cache.
    """

    def __init__(
        self, max_size: int, is_small: Callable[[Result], bool] = lambda result: True
    ) -> None:
        self._max_size, self._is_small = max_size, is_small
        self._results = OrderedDict[Hashable, Result]()

    def get(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Returns the cached result of a key, or computes it."""
        if key in self._results:
            self._results.move_to_end(key)
            return self._results[key]
        result = compute()
        if self._is_small(result):
            self._results[key] = result
            if len(self._results) > self._max_size:
                self._results.popitem(last=False)
        return result


@dataclass
class Session:
    """The run that a page shows. Models are not thread-safe: hold `lock` while computing."""

    name: str
    forecaster: Forecaster
    data: FieldData
    samples: Sequence[TimeSlice]
    """The test split."""
    training: Sequence[TimeSlice] = ()
    """The training split, to which references are fitted; without it there is persistence only."""
    velocity: tuple[str, ...] = ()
    """Names of the velocity variables, one per axis; recognised by name if empty."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    rollout_lock: threading.Lock = field(default_factory=threading.Lock)
    """For `rollout_forecaster`, a copy of the model, so that predictions do not wait for rollouts."""
    stop_requested: threading.Event = field(default_factory=threading.Event)
    """Set when the server stops; pending computations are then abandoned."""
    folder: Path | None = None
    """The run folder, which may contain the results of `gpo interpret`."""
    other: "Session | None" = None
    """A second run of the same task, to compare."""
    other_numbers: Mapping[int, int] = field(default_factory=dict)
    """Index of the same example in the other run, by the index in this run."""
    progress: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    """Progress of long computations by panel: number of steps done, total, description."""
    scores: np.ndarray | None = None
    """Errors of the test examples, once they are computed."""
    ranking: Any = None
    """State of the ranking of model parts over the test split."""

    def __post_init__(self) -> None:
        """Subsamples the examples and creates the caches."""
        self.forecaster.eval()
        # The page shows the model alone, whose parts it can take away; the blend is a curve beside it.
        self.blend, self.forecaster = self.forecaster.blend, self.forecaster.alone
        self.samples = evenly(self.samples, MAX_EXAMPLES)
        self.rollout_forecaster = copy.deepcopy(self.forecaster)
        self._examples = TimeSliceExamples(self.data, self.samples, reconstructs=self.reconstructs)
        self._recent_examples = RecentCache[Example](8)
        self._recent_traces = RecentCache[tuple[Trace, float]](2)
        self._recent_predictions = RecentCache[tuple[Tensor, float]](4)
        self.recent_motion, self.recent_rollouts = RecentCache[Any](1), RecentCache[Any](3)
        self._recent_planes = RecentCache[Plane](4)
        self.recent_mixtures = RecentCache[Packet](16)
        self._references: dict[str, AbstractReference] | None = None

    @property
    def flow_variables(self) -> FlowVariables:
        """The input variables, among which the velocity is identified."""
        return FlowVariables.of(self.data, self.velocity)

    @property
    def reconstructs(self) -> bool:
        """Whether the run reconstructs the frames of a time series instead of forecasting."""
        return self.forecaster.task.lead == 0

    @property
    def model_name(self) -> str:
        """Name of the model, as the page shows it."""
        return self.forecaster.model.name

    @property
    def operator(self) -> GaussianParticleOperator:
        """The model, if it is a Gaussian Particle Operator; else raises a `ValueError`."""
        model = self.forecaster.model.operator
        if model is None or self.forecaster.reconstructs:
            raise ValueError(
                f"{self.model_name} has no modes to inspect. Open a run of --model gpo."
            )
        return model

    def example(self, number: int) -> Example:
        """Returns one example of the test split."""
        self.check_example(number)
        return self._recent_examples.get(number, lambda: self._examples[number])

    def uncached_example(self, number: int) -> Example:
        """Returns one example without caching it, for loops over the test split."""
        return self._examples[number]

    def active_sites(self, number: int, max_sites: int) -> np.ndarray:
        """Returns the indices of unmasked sites; of more than `max_sites`, a fixed random sample."""
        active = np.flatnonzero(self.example(number).weights[0].numpy() > 0)
        return np.sort(np.random.default_rng(0).permutation(active)[:max_sites])

    def check_example(self, number: int) -> None:
        """Raises a `ValueError` if there is no such example."""
        if number >= len(self.samples):
            raise ValueError(f"`example` must be from 0 to {len(self.samples) - 1}, got {number}.")

    def plane(self, number: int) -> Plane:
        """Returns the drawn coordinates of an example's sites."""
        self.check_example(number)
        index = self.samples[number].sample if len(self.data.geometries) > 1 else 0
        return self._recent_planes.get(index, lambda: Plane(self.data.geometry(index)))

    @property
    def fits_references(self) -> bool:
        """Whether there are training frames, and few enough to fit references to them."""
        num_frames = sum(map(len, used_frames(self.training).values()))
        size = num_frames * self.data.geometry().num_points * len(self.data.variables)
        return 0 < size <= MAX_REFERENCE_VALUES

    def references(self) -> dict[str, AbstractReference]:
        """Returns the reference forecasts that apply; persistence only if none can be fitted."""
        if self._references is None:
            inputs = self.forecaster.reference_inputs(self.data, self.training)
            names = None if self.fits_references else ("persistence",)
            self._references = fit_references(inputs, names)
        return self._references

    def trace(self, number: int, ablation: Ablation = Ablation()) -> Trace:
        """Returns all intermediate activations of a forward pass."""
        return self._timed_trace(number, ablation)[0]

    def prediction(
        self, number: int, ablation: Ablation = Ablation()
    ) -> Float[Tensor, "points outputs"]:
        """Returns the predicted frame, in the units of the data."""
        return self.timed_prediction(number, ablation)[0]

    def timed_prediction(
        self, number: int, ablation: Ablation = Ablation()
    ) -> tuple[Float[Tensor, "points outputs"], float]:
        """Returns the predicted frame, and the seconds that its forward pass took."""
        example, forecaster = self.example(number), self.forecaster
        if forecaster.model.operator is not None:
            values = forecaster.normalised_input(example.frames)
            trace, seconds = self._timed_trace(number, ablation)
            base = forecaster.continued(values, example.coords, example.seasons)
            changed = forecaster.apply_increment(trace.output, base)
            return forecaster.denormalised(changed)[0], seconds

        def predict() -> tuple[Tensor, float]:
            start = time.perf_counter()
            with torch.no_grad(), ablation.applied(forecaster.model.operator):
                predicted = forecaster(
                    example.frames, example.coords, weights=example.site_weights,
                    seasons=example.seasons,
                )[0]  # fmt: skip
            return predicted, time.perf_counter() - start

        return self._recent_predictions.get((number, ablation), predict)

    def _timed_trace(self, number: int, ablation: Ablation) -> tuple[Trace, float]:
        def trace() -> tuple[Trace, float]:
            start = time.perf_counter()
            return self._trace(number, ablation), time.perf_counter() - start

        return self._recent_traces.get((number, ablation), trace)

    def _trace(self, number: int, ablation: Ablation) -> Trace:
        example = self.example(number)
        values = self.forecaster.normalised_input(example.frames)
        operator = self.forecaster.operator
        with torch.no_grad(), ablation.applied(operator):
            return operator.trace(values, example.coords, weights=example.site_weights)
