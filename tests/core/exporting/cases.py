"""Forecasters on sites of every kind, small enough to be exported in seconds."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpo.forecast.fixed import FixedForecaster
from gpo.forecast.forecaster import Forecaster, Task
from gpo.forecast.statistics import SiteMeans
from tests.conftest import DOMAINS, make_model, random_points

VARIANTS = ("waves", "paper")
SITES = ("torus", "shuffled", "patch", "cube", "unstructured", "masked", "masked grid")


@dataclass(frozen=True)
class Case:
    """A forecaster, its sites, and queries if there are any."""

    forecaster: Forecaster
    coords: Tensor
    weights: Tensor
    queries: Tensor | None

    def frames(self, batch_size: int) -> Tensor:
        """Returns frames in the units of the data, not a number at masked sites."""
        frames = 10 + 2 * torch.randn(batch_size, 2, len(self.coords), 2)
        return frames.masked_fill(self.weights[:, None] == 0, torch.nan)

    def predict(self, frames: Tensor) -> Tensor:
        """Returns the prediction of the forecaster, with zeros in place of NaN."""
        with torch.no_grad():
            output = self.forecaster(
                frames, self.coords, weights=self.weights, queries=self.queries
            )
        return output.nan_to_num()

    def fixed(self) -> FixedForecaster:
        """Returns the forecaster on these sites."""
        return FixedForecaster(
            self.forecaster, self.coords, weights=self.weights, queries=self.queries
        )


def make_case(
    variant: str, sites: str, *, has_queries: bool = False, predict: str = "increment", **changes
) -> Case:
    domain = DOMAINS.get(sites, DOMAINS["channel"])
    if sites in ("torus", "shuffled", "cube", "masked grid"):
        coords, weights = domain.grid(*{2: (6, 5), 3: (3, 4, 5)}[domain.dim])
    else:
        coords, weights = random_points(domain, 40).float(), 0.5 + torch.rand(40)
    if sites == "shuffled":
        coords = coords.flip(0).roll(7, 0)
    if sites == "masked":
        weights[::3] = 0
    if sites == "masked grid":
        # So few that masked sites are not left out, as on fixed sites.
        weights[::6] = 0
    channels = {"in_channels": 4, "out_channels": 2}
    model = make_model(domain, variant=variant, num_waves=2, **channels, **changes).float()
    task = Task(
        inputs=("a", "b"), outputs=("a", "b"), units=("K", ""), history=2, lead=1,
        predict=predict, input_mean=(10.0, 9.0), input_std=(2.0, 0.5), output_mean=(10.0, 9.0),
        output_std=(2.0, 0.5), increment_std=(0.1, 0.2), is_per_site=predict == "state",
    )  # fmt: skip
    means = SiteMeans(*(9 + torch.randn(len(coords), 2) for _ in range(2)))
    queries = random_points(domain, 7).float() if has_queries else None
    return Case(Forecaster(model, task, means), coords, weights, queries)
