r"""The reference that learns a linear map, by dynamic mode decomposition (Schmid 2010).

The features $x$ of an example are its input frames at all sites, in standard deviations of each
variable and weighted by quadrature, and a constant. The target $y$ is the change from the last
frame to the target frame, or the output of a static map. With one training example per row of $X$
and $Y$, and the eigenvalues $\lambda_i$ and eigenvectors $v_i$ of $XX^\top$, largest first, the map
of rank $r$ is

$x\mapsto\sum_{i\le r}\lambda_i^{-1}\langle v_i,Xx\rangle\,Y^\top v_i$,

the least-squares map of the leading $r$ principal components. The rank is chosen on training examples
that are left out of a first fit; rank 0 is persistence, or the mean of static maps.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.examples import Example
from gpo.forecast.references import HELD_OUT, AbstractReference, ReferenceInputs

MIN_EXAMPLES = 8
"""Minimum number of training examples; from fewer no map is fitted."""
MAX_EXAMPLES = 1024
"""Maximum number of training examples; they are evenly spaced."""
MAX_RANK = 256
EXAMPLES_PER_RANK = 2
"""Minimum number of training examples for each principal component."""
MAX_NUMBERS = 2**23
"""Maximum number of features of all training examples together."""
EIGENVALUE_FLOOR = 1e-13
"""Smallest eigenvalue, as a fraction of the largest, that stands out from rounding."""


@dataclass(frozen=True)
class LinearMap(AbstractReference):
    """A linear map of the input frames as a sum of products, one for each rank."""

    uses_forcings: ClassVar[bool] = True
    inputs: Float[Tensor, "features ranks"]
    outputs: Float[Tensor, "ranks targets"]
    input_mean: Float[Tensor, "*sites inputs"]
    output_mean: Float[Tensor, "*sites outputs"]

    @classmethod
    def fit(cls, inputs: ReferenceInputs) -> "LinearMap | None":
        """Fits the map; returns None where sites do not correspond or examples are too few."""
        task, geometries = inputs.task, inputs.data.geometries
        counts = {geometry.num_points for geometry in geometries}
        if inputs.input_mean.ndim > 1:
            # Pointwise means may be those of another resolution.
            counts.add(len(inputs.input_mean))
        if len(counts) > 1 or inputs.reconstructs:
            return None
        most = min(MAX_EXAMPLES, MAX_NUMBERS // (counts.pop() * task.history * len(task.inputs)))
        if min(most, len(inputs.samples)) < MIN_EXAMPLES:
            return None
        none = torch.zeros(0, 0, dtype=torch.double)
        empty = cls(task, none, none, inputs.input_mean, inputs.output_mean)
        examples = list(inputs.examples(most))
        if len(examples) < MIN_EXAMPLES:
            return None
        features, targets = (
            torch.cat([part(example) for example in examples])
            for part in (empty._features_of, empty._targets)
        )
        held_out = -(-len(examples) // HELD_OUT)
        first = empty._fitted(features[:-held_out], targets[:-held_out])
        weight = examples[0].site_weights[0].repeat_interleave(len(task.outputs))
        errors = first.errors(features[-held_out:], targets[-held_out:], weight)
        return empty._fitted(features, targets).truncated(chosen_rank(errors))

    def applies_to(self, num_points: int) -> bool:
        """Returns whether there are as many points as in training."""
        return self._size * num_points + 1 == len(self.inputs)

    def __call__(self, frames, coords, *, weights=None, seasons=None) -> Tensor:  # noqa: ANN001
        """Returns the predicted targets."""
        start = self._start(frames)
        sizes = torch.ones_like(start[..., 0]) if weights is None else weights
        change = self.predicted(self._features(frames, sizes)).unflatten(-1, start.shape[1:])
        std = torch.tensor(self.task.output_std, dtype=torch.double)
        return (start + change) * std + self.output_mean

    def _fitted(
        self,
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
        inputs = features.mT @ (vectors / eigenvalues)
        return replace(self, inputs=inputs, outputs=vectors.mT @ targets)

    def truncated(self, rank: int) -> "LinearMap":
        """Returns the map of a smaller rank."""
        return replace(self, inputs=self.inputs[:, :rank], outputs=self.outputs[:rank])

    def predicted(
        self, features: Float[Tensor, "examples features"]
    ) -> Float[Tensor, "examples targets"]:
        """Returns the predicted changes, in standard deviations."""
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

    @property
    def _size(self) -> int:
        return self.task.history * len(self.task.inputs)

    def _start(self, frames: Tensor) -> Tensor:
        """Returns the normalised last frame; zeros for static maps."""
        if self.task.lead == 0:
            return frames.new_zeros(len(frames), frames.shape[2], len(self.task.outputs))
        return self._normalised(self.task.state(frames[:, -1]))

    def _features(self, frames: Tensor, weights: Tensor) -> Tensor:
        """Returns all input frames, weighted, and a constant."""
        std = torch.tensor(self.task.input_std, dtype=torch.double)
        values = (frames - self.input_mean) / std * weights.sqrt().unsqueeze(-2).unsqueeze(-1)
        return torch.cat([values.flatten(1), values.new_ones(len(values), 1)], -1)

    def _features_of(self, example: Example) -> Tensor:
        return self._features(example.frames, example.site_weights)

    def _targets(self, example: Example) -> Tensor:
        """Returns changes from the start; zeros where values are missing."""
        change = self._normalised(example.target) - self._start(example.frames)
        return torch.where(example.weights.unsqueeze(-1) > 0, change, 0.0).flatten(1)

    def _normalised(self, fields: Tensor) -> Tensor:
        std = torch.tensor(self.task.output_std, dtype=torch.double)
        return (fields - self.output_mean) / std


def chosen_rank(errors: Float[Tensor, "examples ranks"]) -> int:
    """Returns the smallest rank that is worse than the best by at most one standard error.

    The smallest of many mean errors is small by chance. All ranks are compared on the same examples,
    so that easy and hard examples do not count as uncertainty.
    """
    excess = errors - errors[:, errors.mean(0).argmin(), None]
    uncertainty = excess.std(0, correction=0) / len(errors) ** 0.5
    return int((excess.mean(0) <= uncertainty).int().argmax())
