"""A trained run on the page: its model, its test examples, and a cache of forward passes."""

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

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.splits import evenly, owner, touched_frames
from gpo.evaluation.references import Climatology
from gpo.forecast.examples import Example, make_examples
from gpo.forecast.forecaster import Forecaster
from gpo.model.ablation import Ablation
from gpo.model.operator import GaussianParticleOperator
from gpo.model.trace import Trace
from gpo_explore.arrays import Packet
from gpo_explore.plane import Plane

MAX_EXAMPLES = 2000
"""Examples that can be chosen; of more, evenly spaced ones."""

MAX_AVERAGED = 2**28
"""Training values of which a climatology is made; more would keep the page waiting."""

Kept = TypeVar("Kept")


class AbandonedError(Exception):
    """Nobody waits for an answer any more: whoever asked is gone, or the server ends."""


class Recent(Generic[Kept]):
    """A cache of the last few results.

    Args:
        most: How many are kept.
        is_small: False for results that are too large to keep.
    """

    def __init__(self, most: int, is_small: Callable[[Kept], bool] = lambda kept: True) -> None:
        self._most, self._is_small = most, is_small
        self._kept = OrderedDict[Hashable, Kept]()

    def get(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """Returns the cached result of a key, or makes it."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        made = make()
        if self._is_small(made):
            self._kept[key] = made
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made


@dataclass
class Session:
    """One run on one page. Whoever computes holds the lock: models are for one thread at a time."""

    name: str
    forecaster: Forecaster
    data: Trajectories | StaticMaps
    members: Sequence[Any]
    """The test split: windows of time series, or numbers of static maps."""
    training: Sequence[Any] = ()
    """The training split, whose mean is the climatology; there is none without it."""
    velocity: tuple[str, ...] = ()
    """Names of the variables that are the components of the velocity; found where none are given."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    rollout_lock: threading.Lock = field(default_factory=threading.Lock)
    """For the model that rolls out: it takes long, and nothing else shall wait for it."""
    ending: threading.Event = field(default_factory=threading.Event)
    """Set when the server ends; what is under way is given up."""
    folder: Path | None = None
    """The run folder, which may hold what `gpo interpret` wrote."""
    other: "Session | None" = None
    """A second run of the same task, which is compared."""
    other_numbers: Mapping[int, int] = field(default_factory=dict)
    """Numbers of its examples, by those of this run."""
    progress: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    """What is under way: how much of it is done, of how much, and its name."""
    scores: np.ndarray | None = None
    """Errors of test examples, once they are known."""
    ranking: Any = None
    """What matters over the test split, as far as it was computed."""

    def __post_init__(self) -> None:
        """Chooses the examples and makes room for what is computed."""
        self.forecaster.eval()
        self.members = evenly(self.members, MAX_EXAMPLES)
        reconstructs = isinstance(self.data, Trajectories) and self.forecaster.task.lead == 0
        self.rollout_forecaster = copy.deepcopy(self.forecaster)
        self._examples = make_examples(self.data, self.members, reconstructs=reconstructs)
        self._recent_examples = Recent[Example](8)
        self._recent_traces = Recent[tuple[Trace, float]](2)
        self._recent_answers = Recent[tuple[Tensor, float]](4)
        self.recent_motion, self.recent_rollouts = Recent[Any](1), Recent[Any](3)
        self._recent_planes = Recent[Plane](4)
        self.recent_mixtures = Recent[Packet](16)
        self._climatology: Climatology | None = None

    @property
    def model_name(self) -> str:
        """The model as people call it."""
        return self.forecaster.model.name

    @property
    def operator(self) -> GaussianParticleOperator:
        """The model gpo; raises an error with the reason where it is another one."""
        model = self.forecaster.model.operator
        if model is None or self.forecaster.reconstructs:
            raise ValueError(
                f"{self.model_name} has no layers of windows and modes; a run of gpo has."
            )
        return model

    def example(self, number: int) -> Example:
        """Returns one example of the test split."""
        self.check_example(number)
        return self._recent_examples.get(number, lambda: self._examples[number])

    def example_anew(self, number: int) -> Example:
        """Returns one example, and keeps it not: who reads all of them leaves the recent ones."""
        return self._examples[number]

    def check_example(self, number: int) -> None:
        """Raises a `ValueError` where there is no such example."""
        if number >= len(self.members):
            raise ValueError(f"`example` must be from 0 to {len(self.members) - 1}, got {number}.")

    def plane(self, number: int) -> Plane:
        """Returns where the sites of an example are drawn."""
        self.example(number)
        which = owner(self.members[number]) if len(self.data.geometries) > 1 else 0
        return self._recent_planes.get(which, lambda: Plane(self.data.geometry(which)))

    def climatology(self) -> Climatology | None:
        """Returns the mean of the training frames; None where there are none, or far too many."""
        data = self.data
        if not isinstance(data, Trajectories) or not self.is_averaged:
            return None
        if self._climatology is None:
            self._climatology = Climatology.of(data, self.training)
        return self._climatology

    @property
    def is_averaged(self) -> bool:
        """Whether the training frames are few enough to average while a page waits."""
        data = self.data
        if not isinstance(data, Trajectories) or len(data.geometries) > 1:
            return False
        frames = sum(map(len, touched_frames(self.training).values()))
        return 0 < frames * data.geometry().num_points * len(data.variables) <= MAX_AVERAGED

    def trace(self, number: int, ablation: Ablation = Ablation()) -> Trace:
        """Returns all intermediate activations of a forward pass."""
        return self._timed_trace(number, ablation)[0]

    def prediction(
        self, number: int, ablation: Ablation = Ablation()
    ) -> Float[Tensor, "points outputs"]:
        """Returns the predicted frame in the units of the data."""
        return self.timed_prediction(number, ablation)[0]

    def timed_prediction(
        self, number: int, ablation: Ablation = Ablation()
    ) -> tuple[Float[Tensor, "points outputs"], float]:
        """Returns the predicted frame, and the seconds its forward pass took when it was made."""
        example, forecaster = self.example(number), self.forecaster
        if forecaster.model.operator is not None:
            values = forecaster.normalised_input(example.frames)
            trace, seconds = self._timed_trace(number, ablation)
            changed = forecaster.apply_increment(trace.output, values)
            return forecaster.denormalised(changed)[0], seconds

        def predict() -> tuple[Tensor, float]:
            start = time.perf_counter()
            with torch.no_grad(), ablation.applied(forecaster.model.operator):
                predicted = forecaster(
                    example.frames, example.coords, weights=example.site_weights
                )[0]
            return predicted, time.perf_counter() - start

        return self._recent_answers.get((number, ablation), predict)

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
