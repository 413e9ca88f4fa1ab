"""Distributed forecasts: several processes share the points of a sample."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecast, Forecaster
from gpo.parallel.partition import SitePartition
from gpo.parallel.shard import DistributedShard


class DistributedForecaster(Forecaster):
    """A forecaster that computes a part of the points in every process of a group.

    It takes all points, and returns the same result in all processes.

    Args:
        forecaster: The trained model, the same in all processes.
        shards: The group of processes.
    """

    def __init__(self, forecaster: Forecaster, shards: DistributedShard) -> None:
        means = None
        if forecaster.task.is_per_site:
            means = forecaster.pointwise
        super().__init__(forecaster.model, forecaster.task, means, forecaster.references)
        self.shards = shards
        self.share_sites(shards)

    def forward(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        queries: Float[Tensor, "*#batch queries dim"] | None = None,
        seasons: Float[Tensor, "batch times 2"] | None = None,
    ) -> Float[Tensor, "batch targets outputs"]:
        """Returns the predicted frame at all input points, or at queries."""
        forecast = self.forecast(frames, coords, weights=weights, seasons=seasons)
        return forecast.at_sites() if queries is None else forecast.at(queries)

    def _forecast(
        self, frames: Tensor, coords: Tensor, weights: Tensor | None, seasons: Tensor | None
    ) -> Forecast:
        """Returns a forecast computed on the points of this process."""
        is_sphere = self.model.problem.domain.is_sphere
        per_line = _line_length(coords, self.shards.count, is_sphere=is_sphere)
        partition = SitePartition(self.shards.rank, self.shards.count, per_line)
        part = partition.among(coords.shape[-2])
        self.share_sites(self.shards, partition)
        local_weights = None if weights is None else weights[..., part]
        forecast = super()._forecast(
            frames[:, :, part], coords[..., part, :], local_weights, seasons
        )
        return DistributedForecast(self, forecast.values, forecast.output, forecast.base)


@dataclass(frozen=True)
class DistributedForecast(Forecast):
    """A forecast distributed over processes."""

    def model_at_sites(self) -> Float[Tensor, "batch points outputs"]:
        """Returns the frame of the model at the input points of all processes."""
        return self.output.sites.shard.gathered(super().model_at_sites(), 1)


def _line_length(
    coords: Float[Tensor, "*batch points dim"], num_parts: int, *, is_sphere: bool
) -> int:
    """Returns the number of grid points with the same first coordinate.

    Parts of whole lines are grids, on which transforms factorise. The length is 1 without a grid, or
    with fewer lines than parts.
    """
    along = coords.reshape(-1, *coords.shape[-2:])[0, :, -1 if is_sphere else 0]
    is_first = along == along[0]
    count = int(is_first.sum())
    is_grid = len(along) % count == 0 and bool(is_first[:count].all())
    return count if is_grid and len(along) // count >= num_parts else 1
