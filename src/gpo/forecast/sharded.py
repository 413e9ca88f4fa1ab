"""A forecaster that is given all sites, works on a part of them, and hears of the others' parts."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecast, Forecaster
from gpo.forecast.models import particle_operator
from gpo.forecast.statistics import SiteMeans
from gpo.model.ablation import Ablation
from gpo.parallel.partition import SitePartition
from gpo.parallel.shard import DistributedShard


class SharedForecaster(Forecaster):
    """Says the same in all processes of a group, each of which does its share of the work.

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
        ablation: Ablation | None = None,
    ) -> Float[Tensor, "batch targets outputs"]:
        """Returns the predicted frame at all sites, or at queries."""
        forecast = self.forecast(frames, coords, weights=weights, ablation=ablation or Ablation())
        return forecast.at_sites() if queries is None else forecast.at(queries)

    def forecast(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        ablation: Ablation = Ablation(),
    ) -> Forecast:
        """Visits the sites that belong to this process."""
        if ablation.sites:
            raise ValueError(
                "`ablation.sites` must be empty where several processes share the sites."
            )
        per_line = _line(coords, self.shards.count, is_sphere=self._is_sphere)
        partition = SitePartition(self.shards.rank, self.shards.count, per_line)
        part = partition.among(coords.shape[-2])
        self.share_sites(self.shards, partition)
        mine = None if weights is None else weights[..., part]
        given = frames[:, :, part], coords[..., part, :]
        forecast = super().forecast(*given, weights=mine, ablation=ablation)
        return SharedForecast(self, forecast.sites, forecast.output)

    @property
    def _is_sphere(self) -> bool:
        operator = particle_operator(self.model)
        return operator is not None and operator.config.domain.is_sphere


@dataclass(frozen=True)
class SharedForecast(Forecast):
    """What all processes found together."""

    def at_sites(self) -> Float[Tensor, "batch points outputs"]:
        """Returns the frame at all sites."""
        return self.sites.shard.gathered(super().at_sites(), 1)


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
