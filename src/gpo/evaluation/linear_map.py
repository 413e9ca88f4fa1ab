r"""The reference that learns a linear map, by dynamic mode decomposition (Schmid 2010).

The features $x$ of an example are its input frames at all sites, in standard deviations of each
variable and weighted by quadrature, and a constant. The target $y$ is the change from the last
frame to the target frame, or the output of a static map. With one training example per row of $X$
and $Y$, and the eigenvalues $\lambda_i$ and eigenvectors $v_i$ of $XX^\top$, largest first, the map
of rank $r$ is

$x\mapsto\sum_{i\le r}\lambda_i^{-1}\langle v_i,Xx\rangle\,Y^\top v_i$,

the least-squares map of the leading $r$ principal components. The rank is chosen on validation
data; rank 0 is persistence, or the mean of static maps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.data.splits import evenly
from gpo.evaluation.references import Reference, ReferenceInputs
from gpo.forecast.examples import Example, TimeSliceExamples
from gpo.forecast.forecaster import Forecaster

MIN_EXAMPLES = 8
"""Minimum number of training examples; from fewer no map is fitted."""
MAX_EXAMPLES = 1024
"""Maximum number of training examples; they are evenly spaced."""
MAX_VALIDATION = 64
"""Maximum number of validation examples; they are evenly spaced."""
MAX_RANK = 256
EXAMPLES_PER_RANK = 2
"""Minimum number of training examples for each principal component."""
MAX_NUMBERS = 2**23
"""Maximum number of features of all training examples together."""
EIGENVALUE_FLOOR = 1e-13
"""Smallest eigenvalue, as a fraction of the largest, that stands out from rounding."""


@dataclass(frozen=True)
class LinearMap:
    """A linear map as a sum of products, one for each rank."""

    inputs: Float[Tensor, "features ranks"]
    outputs: Float[Tensor, "ranks targets"]

    @classmethod
    def fit(
        cls,
        features: Float[Tensor, "examples features"],
        targets: Float[Tensor, "examples targets"],
    ) -> "LinearMap":
        """Returns the least-squares map of the principal components that stand out from rounding."""
        eigenvalues, vectors = torch.linalg.eigh(features @ features.mT)
        is_kept = eigenvalues > EIGENVALUE_FLOOR * eigenvalues[-1]
        eigenvalues, vectors = eigenvalues[is_kept].flip(0), vectors[:, is_kept].flip(1)
        # With as many components as examples, the map interpolates the training data.
        most = min(MAX_RANK, len(features) // EXAMPLES_PER_RANK)
        eigenvalues, vectors = eigenvalues[:most], vectors[:, :most]
        return cls(features.mT @ (vectors / eigenvalues), vectors.mT @ targets)

    def truncated(self, rank: int) -> "LinearMap":
        """Returns the map of a smaller rank."""
        return LinearMap(self.inputs[:, :rank], self.outputs[:rank])

    def __call__(
        self, features: Float[Tensor, "examples features"]
    ) -> Float[Tensor, "examples targets"]:
        """Returns the predicted targets."""
        return features @ self.inputs @ self.outputs

    def errors(
        self,
        features: Float[Tensor, "examples features"],
        targets: Float[Tensor, "examples targets"],
        weights: Float[Tensor, " targets"],
    ) -> Float[Tensor, "examples ranks"]:
        """Returns the weighted error of each example with the map of each rank, from rank 0 on."""
        rows: list[Tensor] = []
        for amplitudes, target in zip(features @ self.inputs, targets, strict=True):
            predicted = (amplitudes[:, None] * self.outputs).cumsum(0)
            differences = torch.cat([target[None], predicted - target])
            rows.append((differences.square() @ weights).sqrt())
        return torch.stack(rows)


def chosen_rank(errors: Float[Tensor, "examples ranks"]) -> int:
    """Returns the smallest rank that is worse than the best by at most one standard error.

    The smallest of many mean errors is small by chance. All ranks are compared on the same examples,
    so that easy and hard examples do not count as uncertainty.
    """
    excess = errors - errors[:, errors.mean(0).argmin(), None]
    uncertainty = excess.std(0, correction=0) / len(errors) ** 0.5
    return int((excess.mean(0) <= uncertainty).int().argmax())


@dataclass(frozen=True)
class Normalised:
    """Features and targets of examples, in standard deviations."""

    forecaster: Forecaster
    is_forecast: bool
    """Whether later frames of a time series are predicted."""

    def start(self, batch: Example) -> Float[Tensor, "batch points outputs"]:
        """Returns the last frame; zeros for static maps."""
        if not self.is_forecast:
            return torch.zeros_like(batch.target)
        return self._outputs(batch.fields[:, -1])

    def features(self, batch: Example) -> Float[Tensor, "batch features"]:
        """Returns all input frames, weighted, and a constant."""
        mean = self.forecaster.site_means(self.forecaster.input_mean)
        values = (batch.frames - mean) / self.forecaster.input_std
        values = values * batch.site_weights.sqrt()[:, None, :, None]
        return torch.cat([values.flatten(1), values.new_ones(len(values), 1)], -1)

    def targets(self, batch: Example) -> Float[Tensor, "batch targets"]:
        """Returns changes from the start; zeros where values are missing."""
        change = self._outputs(batch.target) - self.start(batch)
        return torch.where(batch.weights.unsqueeze(-1) > 0, change, 0.0).flatten(1)

    def rows(
        self, data: FieldData, samples: Sequence[Any], most: int
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Returns features, targets and weights of at most `most` samples; None without values."""
        examples = TimeSliceExamples(data, evenly(samples, most) if samples else [])
        read = (examples[number] for number in range(len(examples)))
        known = [
            (self.features(example), self.targets(example), example.site_weights)
            for example in read
            if bool(example.weights.any())
        ]
        if not known:
            return None
        features, targets, weights = (torch.cat(part) for part in zip(*known, strict=True))
        return features, targets, weights

    def _outputs(self, fields: Tensor) -> Tensor:
        mean = self.forecaster.site_means(self.forecaster.output_mean)
        return (fields - mean) / self.forecaster.output_std


def build_linear_map(inputs: ReferenceInputs) -> Reference | None:
    """Returns the linear map; None where sites do not correspond or examples are too few."""
    forecaster, task = inputs.forecaster, inputs.forecaster.task
    sets = (inputs.training_data, inputs.data)
    counts = {geometry.num_points for data in sets for geometry in data.geometries}
    if len(counts) > 1 or forecaster.reconstructs:
        return None
    most = min(MAX_EXAMPLES, MAX_NUMBERS // (counts.pop() * task.history * len(task.inputs)))
    if min(most, len(inputs.training_samples)) < MIN_EXAMPLES:
        return None
    examples = Normalised(forecaster, inputs.is_forecast)
    training = examples.rows(inputs.training_data, inputs.training_samples, most)
    few = min(most, MAX_VALIDATION)
    validation = examples.rows(inputs.training_data, inputs.validation_samples, few)
    if training is None or validation is None:
        return None
    features, targets, weights = validation
    fitted = LinearMap.fit(*training[:2])
    weight = weights[0].repeat_interleave(len(task.outputs))
    linear_map = fitted.truncated(chosen_rank(fitted.errors(features, targets, weight)))

    def predict(batch: Example, _: Sequence[Any]) -> Tensor:
        change = linear_map(examples.features(batch)).unflatten(-1, (-1, len(task.outputs)))
        return forecaster.denormalised(examples.start(batch) + change)

    return Reference(predict)
