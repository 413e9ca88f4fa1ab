"""One forecast, evaluated at its sites or at any query points, chunk by chunk."""

from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecast, Forecaster

MAX_QUERIES = 2**15
"""Default number of query points at a time."""


class QueryForecast:
    """The forecast from one initial condition; the size of chunks does not change its values.

    Args:
        forecaster: The trained model.
        frames: The initial condition, oldest frame first.
        coords: The sites.
        weights: Quadrature weights; 0 masks a site.
    """

    def __init__(
        self,
        forecaster: Forecaster,
        frames: Float[Tensor, "history points inputs"],
        coords: Float[Tensor, "points dim"],
        weights: Float[Tensor, " points"],
    ) -> None:
        self._forecaster, self._frames = forecaster, frames
        self._coords, self._weights = coords, weights
        # A rollout that has diverged stays NaN.
        self._is_finite = bool(frames[:, weights > 0].isfinite().all())

    @torch.no_grad()
    def at(self, queries: Float[Tensor, "queries dim"]) -> Float[Tensor, "queries outputs"]:
        """Returns the forecast at any points; NaN where the initial condition is not finite."""
        if not self._is_finite:
            return queries.new_full((len(queries), len(self._forecaster.task.outputs)), torch.nan)
        return self._forecast.at(queries)[0]

    @torch.no_grad()
    def interpolated(
        self, queries: Float[Tensor, "queries dim"]
    ) -> Float[Tensor, "queries fields"]:
        """Returns the last given frame at any points, blended from the sites next to each."""
        return self._forecast.interpolated(queries)[0]

    @cached_property
    @torch.no_grad()
    def _forecast(self) -> Forecast:
        return self._forecaster.forecast(self._frames[None], self._coords, weights=self._weights)

    @cached_property
    @torch.no_grad()
    def at_sites(self) -> Float[Tensor, "points outputs"]:
        """The forecast at the sites; NaN at masked ones, or where the initial condition is not finite."""
        shape = len(self._coords), len(self._forecaster.task.outputs)
        if not self._is_finite:
            return self._coords.new_full(shape, torch.nan)
        forecaster = self._forecaster
        if forecaster.model.operator is not None:
            predicted = self._forecast.at_sites()[0]
        else:
            predicted = forecaster(self._frames[None], self._coords, weights=self._weights)[0]
        return predicted.masked_fill((self._weights == 0)[:, None], torch.nan)
