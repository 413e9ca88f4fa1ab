"""A trained forecaster on sites that never change: frames in, the predicted frame out.

Waves, neighbours, normalised weights and means are computed once, and are buffers: they move
between devices with the model, and an exported program holds them.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.execution.geometry import PointGeometry
from gpo.forecast.forecaster import Forecaster
from gpo.numerics.trees import tensors_of, with_tensors


class FixedForecaster(nn.Module):
    """Predicts as its forecaster does at fixed positions, without any checks.

    Args:
        forecaster: A trained model gpo, with its units.
        coords: The sites.
        weights: Quadrature weights; 0 masks a site.
        queries: Other points, at which to predict instead of at the sites.
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
                f"Sites can be fixed for a model gpo, got {forecaster.model.name}. "
                "Train one on the same data: gpo run ... --model gpo"
            )
        self.forecaster = forecaster
        with torch.no_grad():
            shape = (1, len(coords), operator.problem.in_channels)
            values = coords.new_zeros(shape, dtype=operator.dtype)
            sites = operator.sites(values, coords, weights, is_whole=True)
            points = [] if queries is None else list(sites.locate(queries))
        is_masked = bool((sites.weights == 0).any())
        fixed = replace(sites.geometry, active=None, is_masked=is_masked)
        self._geometries = fixed, *(one.geometry for one in points)
        for number, tensor in enumerate(tensors_of(self._geometries)):
            self.register_buffer(f"fixed_{number}", tensor, persistent=False)

    @property
    def geometries(self) -> tuple[PointGeometry, ...]:
        """The geometry of the sites, and of the queries in portions, if there are any."""
        # Sites and queries share a lattice, whose tensors are there twice.
        buffers = self.named_buffers(recurse=False, remove_duplicate=False)
        return with_tensors(self._geometries, lambda _: next(buffers)[1])

    @property
    def frames_shape(self) -> tuple[int, int, int]:
        """Frames, sites and variables of one sample."""
        task = self.forecaster.task
        return task.history, self._geometries[0].coords.shape[1], len(task.inputs)

    def forward(
        self, frames: Float[Tensor, "batch history points inputs"]
    ) -> Float[Tensor, "batch targets outputs"]:
        """Returns the predicted frame in the units of the data.

        Args:
            frames: The last frames, oldest first, in the units of the data. Masked sites may
                hold anything; a non-finite number elsewhere spoils its sample.
        """
        (sites, *queries), forecaster = self.geometries, self.forecaster
        values, operator = forecaster.normalised_input(frames), forecaster.operator
        output = operator.run(operator.execution.fixed(values, sites))
        if queries:
            parts = []
            for geometry in queries:
                assert geometry.neighbours is not None
                answer = output.at(geometry)
                parts.append(forecaster.at_queries(answer, values, geometry.neighbours))
            predicted = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        else:
            predicted = forecaster.denormalised(
                forecaster.apply_increment(output.at_sites(), values)
            )
        return predicted.to(torch.promote_types(frames.dtype, forecaster.dtype))
