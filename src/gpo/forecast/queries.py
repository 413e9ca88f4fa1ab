"""One forecast, evaluated at its sites or at any query points, chunk by chunk."""

from dataclasses import replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.blend import Contribution
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
        seasons: Time of day and month of the frames and of the target.
        contribution: The contribution of references (None: that to a first step).
    """

    def __init__(
        self,
        forecaster: Forecaster,
        frames: Float[Tensor, "history points inputs"],
        coords: Float[Tensor, "points dim"],
        weights: Float[Tensor, " points"],
        seasons: Float[Tensor, "times 2"] | None = None,
        contribution: Contribution | None = None,
    ) -> None:
        self._forecaster, self._frames = forecaster.alone, frames
        self._coords, self._weights = coords, weights
        self._seasons = None if seasons is None else seasons[None]
        self._contribution = contribution
        if contribution is None:
            self._contribution = forecaster.contribution(
                frames[None], coords, weights=weights, seasons=self._seasons
            )
        # A rollout that has diverged stays NaN.
        self._is_finite = bool(frames[:, weights > 0].isfinite().all())

    @torch.no_grad()
    def at(self, queries: Float[Tensor, "queries dim"]) -> Float[Tensor, "queries outputs"]:
        """Returns the forecast at any points; NaN where the initial condition is not finite."""
        if self._is_finite or self._contribution is None:
            return self._forecast.at(queries)[0] if self._is_finite else self._nothing(queries)[0]
        neighbours = self._forecast.output.sites.neighbours(queries)
        rest = self._contribution.at(neighbours, self._forecaster.partition)
        return rest.added_to(self._nothing(queries))[0]

    @torch.no_grad()
    def interpolated(
        self, queries: Float[Tensor, "queries dim"]
    ) -> Float[Tensor, "queries fields"]:
        """Returns the last given frame at any points, blended from the sites next to each."""
        return self._forecast.interpolated(queries)[0]

    @cached_property
    @torch.no_grad()
    def _forecast(self) -> Forecast:
        # Numbers that are not finite are replaced where only the neighbours of queries are needed.
        frames = self._frames if self._is_finite else self._frames.nan_to_num(0.0, 0.0, 0.0)
        forecast = self._forecaster.forecast(
            frames[None], self._coords, weights=self._weights, seasons=self._seasons
        )
        return replace(forecast, contribution=self._contribution)

    @cached_property
    @torch.no_grad()
    def model_at_sites(self) -> Float[Tensor, "points outputs"]:
        """The forecast of the model at the sites, from which a rollout continues."""
        if not self._is_finite:
            return self._nothing(self._coords)[0]
        if self._forecaster.model.operator is not None:
            return self._forecast.model_at_sites()[0]
        return self._forecaster(
            self._frames[None], self._coords, weights=self._weights, seasons=self._seasons
        )[0]

    @cached_property
    @torch.no_grad()
    def at_sites(self) -> Float[Tensor, "points outputs"]:
        """The forecast at the sites; NaN at masked ones, or where the initial condition is not finite."""
        predicted = self.model_at_sites[None]
        if self._contribution is not None:
            predicted = self._contribution.added_to(predicted)
        return predicted[0].masked_fill((self._weights == 0)[:, None], torch.nan)

    def _nothing(self, points: Tensor) -> Float[Tensor, "1 points outputs"]:
        return points.new_full((1, len(points), len(self._forecaster.task.outputs)), torch.nan)
