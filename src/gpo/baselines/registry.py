"""All models by name, and a model that remembers under which name it was built."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from jaxtyping import Float
from torch import Tensor, nn

from gpo.baselines.amg import AMG
from gpo.baselines.base import Problem, UnsupportedGeometryError
from gpo.baselines.cno import CNO
from gpo.baselines.fno import FNO
from gpo.baselines.galerkin import GalerkinTransformer
from gpo.baselines.geo_fno import GeoFNO
from gpo.baselines.gnot import GNOT
from gpo.baselines.lno import LNO
from gpo.baselines.lsm import LSM
from gpo.baselines.m2no import M2NO
from gpo.baselines.ono import ONO
from gpo.baselines.transolver import Transolver
from gpo.model import checkpoint as artifact

REGISTRY: dict[str, Callable[[Problem], nn.Module]] = {
    "fno": FNO,
    "geo-fno": GeoFNO,
    "cno": CNO,
    "lsm": LSM,
    "m2no": M2NO,
    "amg": AMG,
    "galerkin": GalerkinTransformer,
    "gnot": GNOT,
    "transolver": Transolver,
    "ono": ONO,
    "lno": LNO,
}
"""What builds a model for a problem, by name; a model of your own joins with one line."""


class RegisteredModel(nn.Module):
    """A model out of the registry, which can be saved, loaded and moved to another grid."""

    def __init__(self, name: str, problem: Problem) -> None:
        super().__init__()
        if name not in REGISTRY:
            raise ValueError(f"`model` must be one of gpo, {', '.join(REGISTRY)}, got {name!r}.")
        self.name, self.problem = name, problem
        try:
            self.network = REGISTRY[name](problem)
        except UnsupportedGeometryError as error:
            raise UnsupportedGeometryError(f"{name} cannot take these sites: {error}") from error

    def forward(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns what the network does."""
        return self.network(values, coords, weights=weights)

    def on_grid(self, grid_shape: tuple[int, ...]) -> "RegisteredModel":
        """Returns the same model for a grid of another size; raises the reason where there is none."""
        other = RegisteredModel(self.name, replace(self.problem, grid_shape=grid_shape))
        mine, theirs = self.state_dict(), other.state_dict()
        if {name: part.shape for name, part in mine.items()} != {
            name: part.shape for name, part in theirs.items()
        }:
            raise UnsupportedGeometryError("its weights belong to one resolution")
        other.load_state_dict(mine)
        other.train(self.training)
        return other.to(next(self.parameters()).device)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes `config.json`, with name and problem, and `model.safetensors` into `folder`."""
        artifact.save(self.network, self.problem, folder, model_type=self.name)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "RegisteredModel":
        """Returns the model that `save_pretrained` wrote."""
        name = artifact.model_type(folder)
        if name not in REGISTRY:
            raise artifact.CheckpointError(
                f"{Path(folder) / artifact.CONFIG_NAME}: field `model_type` must be one of "
                f"{', '.join(REGISTRY)}, got {name!r}. A model of your own must be registered "
                "before it is loaded."
            )
        model = cls(name, artifact.load_config(folder, name, Problem))
        artifact.load_weights(model.network, folder)
        return model
