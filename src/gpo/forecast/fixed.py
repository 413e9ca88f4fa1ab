"""A trained forecaster on sites that never change: frames in, the predicted frame out.

Windows, neighbours, normalised weights and means are computed once, and are buffers: they move
between devices with the model, and an exported program holds them.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.forecast.forecaster import Forecaster
from gpo.model.operator import GaussianParticleOperator
from gpo.model.sites import FixedGeometry, Sites
from gpo.numerics.trees import tensors_of, with_tensors


class FixedForecaster(nn.Module):
    """Predicts as its forecaster does at given places, and checks nothing any more.

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
        if not isinstance(forecaster.model, GaussianParticleOperator):
            raise ValueError(
                f"Sites can be fixed for a model gpo, got {type(forecaster.model).__name__}. "
                "Train one on the same data: gpo run ... --model gpo"
            )
        self.forecaster = forecaster
        self._geometry = forecaster.model.fix(coords, weights=weights, queries=queries)
        for number, tensor in enumerate(tensors_of(self._geometry)):
            self.register_buffer(f"fixed_{number}", tensor, persistent=False)

    @property
    def geometry(self) -> FixedGeometry:
        """What is known of the sites."""
        # Sites and queries share a lattice, whose tensors are there twice.
        buffers = self.named_buffers(recurse=False, remove_duplicate=False)
        return with_tensors(self._geometry, lambda _: next(buffers)[1])

    @property
    def frames_shape(self) -> tuple[int, int, int]:
        """Frames, sites and variables that one sample is given."""
        task = self.forecaster.task
        return task.history, self._geometry.coords.shape[1], len(task.inputs)

    def forward(
        self, frames: Float[Tensor, "batch history points inputs"]
    ) -> Float[Tensor, "batch targets outputs"]:
        """Returns the predicted frame in the units of the data.

        Args:
            frames: The last frames, oldest first, in the units of the data. Masked sites may
                hold anything; a number that is not finite elsewhere spoils its sample.
        """
        geometry, forecaster = self.geometry, self.forecaster
        values = forecaster.normalised_input(frames)
        assert isinstance(forecaster.model, GaussianParticleOperator)
        output = forecaster.model.run(Sites.at(geometry, values)).answer
        if geometry.neighbours is not None:
            found = forecaster.at_queries(output, values, geometry.neighbours)
        else:
            found = forecaster.denormalised(forecaster.apply_increment(output, values))
        return found.to(torch.promote_types(frames.dtype, forecaster.dtype))
