"""A trained forecaster on sites that never change: frames in, the predicted frame out.

Windows, neighbours, normalised weights and means are computed once, and are buffers: they move
between devices with the model, and an exported program holds them.
"""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from gpo.forecast.forecaster import Forecaster
from gpo.model.operator import GaussianParticleOperator
from gpo.model.sites import FixedGeometry, Sites


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
        for name, tensor in _tensors(self._geometry).items():
            self.register_buffer(name, tensor, persistent=False)

    @property
    def geometry(self) -> FixedGeometry:
        """What is known of the sites."""
        return _with_tensors(self._geometry, dict(self.named_buffers(recurse=False)))

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
        output = forecaster.model.predict(Sites.at(geometry, values))
        if geometry.neighbours is not None:
            return forecaster.at_queries(output, values, geometry.neighbours)
        return forecaster.denormalised(forecaster.apply_increment(output, values))


def _tensors(part: Any, name: str = "fixed") -> dict[str, Tensor]:
    """Returns all tensors in a data class by where they are in it."""
    if isinstance(part, Tensor):
        return {name: part}
    if is_dataclass(part):
        named = [(field.name, getattr(part, field.name)) for field in fields(part)]
    else:
        named = list(enumerate(part)) if isinstance(part, tuple) else []
    found: dict[str, Tensor] = {}
    for key, inner in named:
        found |= _tensors(inner, f"{name}_{key}")
    return found


def _with_tensors(part: Any, tensors: dict[str, Tensor], name: str = "fixed") -> Any:
    """Returns a data class with all tensors in it replaced by others."""
    if isinstance(part, Tensor):
        return tensors[name]
    if isinstance(part, tuple):
        return tuple(
            _with_tensors(inner, tensors, f"{name}_{key}") for key, inner in enumerate(part)
        )
    if not is_dataclass(part) or isinstance(part, type):
        return part
    changed = {
        field.name: _with_tensors(getattr(part, field.name), tensors, f"{name}_{field.name}")
        for field in fields(part)
    }
    return replace(part, **changed)
