"""A forecaster that takes all sites, works on a part of them, and exchanges results with the others."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecast, Forecaster
from gpo.forecast.statistics import SiteMeans
from gpo.parallel.partition import SitePartition
from gpo.parallel.shard import DistributedShard


class SharedForecaster(Forecaster):
    """Returns the same in all processes of a group, each of which does a part of the work.

    Args:
        forecaster: The trained model, the same everywhere.
        shards: Joins the processes.
    """

    def __init__(self, forecaster: Forecaster, shards: DistributedShard) -> None:
        means = None
        if forecaster.task.is_per_site:
            means = SiteMeans(forecaster.input_mean, forecaster.output_mean)
        super().__init__(forecaster.model, forecaster.task, means)
        self.shards = shards
        self.share_sites(shards)

    def forward(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        queries: Float[Tensor, "*#batch queries dim"] | None = None,
    ) -> Float[Tensor, "batch targets outputs"]:
        """Returns the predicted frame at all sites, or at queries."""
        forecast = self.forecast(frames, coords, weights=weights)
        return forecast.at_sites() if queries is None else forecast.at(queries)

    def forecast(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Forecast:
        """Works on the sites that belong to this process."""
        is_sphere = self.model.problem.domain.is_sphere
        per_line = _line(coords, self.shards.count, is_sphere=is_sphere)
        partition = SitePartition(self.shards.rank, self.shards.count, per_line)
        part = partition.among(coords.shape[-2])
        self.share_sites(self.shards, partition)
        own_weights = None if weights is None else weights[..., part]
        inputs = frames[:, :, part], coords[..., part, :]
        forecast = super().forecast(*inputs, weights=own_weights)
        return SharedForecast(self, forecast.values, forecast.output)


@dataclass(frozen=True)
class SharedForecast(Forecast):
    """A forecast of all processes together."""

    def at_sites(self) -> Float[Tensor, "batch points outputs"]:
        """Returns the frame at all sites."""
        return self.output.sites.shard.gathered(super().at_sites(), 1)


def _line(coords: Float[Tensor, "*batch points dim"], num_parts: int, *, is_sphere: bool) -> int:
    """Returns how many sites of a grid lie on a line across its first axis.

    Parts of whole lines are grids themselves, which windows factor on. One site is a line where
    there is no grid, or too few lines for all parts.
    """
    along = coords.reshape(-1, *coords.shape[-2:])[0, :, -1 if is_sphere else 0]
    is_first = along == along[0]
    count = int(is_first.sum())
    is_grid = len(along) % count == 0 and bool(is_first[:count].all())
    return count if is_grid and len(along) // count >= num_parts else 1
