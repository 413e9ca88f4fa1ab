"""A trained forecaster on fixed points, for export.

The geometry (waves, neighbours, weights) is computed once and stored in buffers, which move between
devices with the model and become part of the exported program.
"""

import copy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.execution.geometry import PointGeometry
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.references import AbstractContinuation, ReferenceInputs
from gpo.forecast.task import OWN_BASES
from gpo.model.taps import NO_TAPS, tapped
from gpo.numerics.trees import tensors_of, with_tensors


@dataclass(frozen=True)
class FixedContinuation(AbstractContinuation):
    """The climatology, or damped persistence, at fixed points, where it is the same at all times."""

    normals: Float[Tensor, "1 2 points outputs"]
    """The climatology of the last frame and of the target."""
    factor: Float[Tensor, " outputs"]

    @classmethod
    def fit(cls, inputs: ReferenceInputs) -> None:
        """Returns nothing: it is made of a base that was fitted."""

    @classmethod
    def of(
        cls, base: AbstractContinuation, coords: Float[Tensor, "points dim"]
    ) -> "FixedContinuation":
        """Evaluates a base once; raises an error for one that depends on the date.

        Args:
            base: A reference with a climatology.
            coords: The points of the input.
        """
        if base.tensors()["means"].shape[0] > 1:
            raise ValueError(
                f"The model adds its increment to the {base.task.base} of a date, which an exported "
                "program does not have. Train with --no-blend to export."
            )
        normals, factor = base.normal(coords[None], None), base.damping
        assert normals is not None
        assert factor is not None
        return cls(base.task, normals=normals, factor=factor)

    @property
    def damping(self) -> Tensor:
        """The fraction of the last anomaly that persists."""
        return self.factor

    def normal(self, coords, seasons) -> Tensor:  # noqa: ANN001
        """Returns the climatology of the last frame and of the target."""
        return self.normals


class FixedForecaster(nn.Module):
    """Predicts like its forecaster, at fixed points and without checks.

    Args:
        forecaster: A trained model gpo or gpo-paper.
        coords: The points of the input.
        weights: Quadrature weights; 0 masks a point.
        queries: Points of the prediction (None: those of the input).
    """

    def __init__(
        self,
        forecaster: Forecaster,
        coords: Float[Tensor, "points dim"],
        *,
        weights: Float[Tensor, " points"] | None = None,
        queries: Float[Tensor, "queries dim"] | None = None,
    ) -> None:
        super().__init__()
        operator = forecaster.model.operator
        if operator is None:
            raise ValueError(
                f"The model must be gpo or gpo-paper, got {forecaster.model.name}. "
                "Train one on the same data: gpo run ... --model gpo"
            )
        self.forecaster = forecaster.alone
        if forecaster.task.base not in OWN_BASES:
            self.forecaster = copy.copy(self.forecaster)
            self.forecaster.base = FixedContinuation.of(forecaster.base, coords)
        with torch.no_grad():
            shape = (1, len(coords), operator.problem.in_channels)
            values = coords.new_zeros(shape, dtype=operator.dtype)
            sites = operator.sites(values, coords, weights, is_whole=True)
            points = [] if queries is None else list(sites.locate(queries))
            # The matrices that smooth the lattice depend on how wide the particles are.
            with tapped(NO_TAPS):
                operator.run(sites)
        is_masked = bool((sites.weights == 0).any())
        fixed = replace(sites.geometry, active=None, is_masked=is_masked)
        self._geometries = fixed, *(part.geometry for part in points)
        for number, tensor in enumerate(tensors_of(self._geometries)):
            self.register_buffer(f"fixed_{number}", tensor, persistent=False)

    @property
    def geometries(self) -> tuple[PointGeometry, ...]:
        """The geometry of the input points, and of the chunks of query points, if any."""
        # Input and query points share a lattice, whose tensors occur twice.
        buffers = self.named_buffers(recurse=False, remove_duplicate=False)
        return with_tensors(self._geometries, lambda _: next(buffers)[1])

    @property
    def frames_shape(self) -> tuple[int, int, int]:
        """Number of frames, points and variables of a sample."""
        task = self.forecaster.task
        return task.history, self._geometries[0].coords.shape[1], len(task.inputs)

    def forward(
        self, frames: Float[Tensor, "batch history points inputs"]
    ) -> Float[Tensor, "batch targets outputs"]:
        """Returns the predicted frame in the units of the data.

        Args:
            frames: The last frames, oldest first, in the units of the data. Values at masked
                points are ignored; a non-finite value elsewhere invalidates its sample.
        """
        (sites, *queries), forecaster = self.geometries, self.forecaster
        values, operator = forecaster.normalised_input(frames), forecaster.operator
        output = operator.run(operator.execution.fixed(values, sites))
        base = forecaster.continued(values, sites.coords)
        if queries:
            parts = []
            for geometry in queries:
                assert geometry.neighbours is not None
                prediction = output.at(geometry)
                parts.append(forecaster.at_queries(prediction, base, geometry.neighbours))
            predicted = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        else:
            predicted = forecaster.denormalised(forecaster.apply_increment(output.at_sites(), base))
        return predicted.to(torch.promote_types(frames.dtype, forecaster.dtype))
