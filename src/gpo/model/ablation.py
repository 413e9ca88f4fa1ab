"""Parts of an operator that are switched off to measure their effect; implemented as taps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from gpo.execution.points import Chunked, Points, Sites
from gpo.model.layer import AbstractLayer
from gpo.model.operator import GaussianParticleOperator
from gpo.model.taps import Tap, tapped
from gpo.numerics.products import without

Displacing = Callable[[int, Tensor], Tensor]
"""Takes the number of a layer and its displacements, points by samples by particles by axes of the
waves; returns those that are used. Of all sites at once."""
Scaling = Callable[[int, Tensor], Tensor]
"""Takes the number of a layer and the scales of its particles, particles by axes; returns those that
are used."""


@dataclass(frozen=True)
class Ablation:
    """Parts that are switched off in a forward pass; none by default."""

    modes: frozenset[tuple[int, int]] = frozenset()
    """Pairs of layer and mode that are zero after the coupling; in the paper's operator the modes of
    head h begin at h times the modes per head."""
    layers: frozenset[int] = frozenset()
    """Layers that leave the state as it is."""
    sites: frozenset[int] = frozenset()
    """Sites whose values are zero, which is the mean, and whose particles have no weight."""
    gaussians: frozenset[int] = frozenset()
    """Gaussians without weight at any site, by their number among those of a site."""
    gates: frozenset[int] = frozenset()
    """Layers whose gated product is zero; transport stays."""
    displacing: Displacing | None = None
    """Changes the displacements of particles before they are used."""
    scaling: Scaling | None = None
    """Changes the scales of particles before they are used."""

    @contextmanager
    def applied(self, model: GaussianParticleOperator | None) -> Iterator[None]:
        """Switches the parts off within a `with` block; refuses what the model does not have."""
        if self == Ablation():
            yield
            return
        if model is None:
            raise ValueError("A baseline has no parts to switch off; `ablation` needs a model gpo.")
        self._check(model)
        needs_all_sites = bool(self.sites) or self.displacing is not None
        taps = list(self._taps(_num_gaussians(model)))
        with tapped(taps, needs_all_sites=needs_all_sites):
            yield

    def _taps(self, num_gaussians: int) -> Iterator[Tap]:
        """Yields the functions on intermediates that switch the parts off."""
        sites, gaussians = sorted(self.sites), sorted(self.gaussians)
        if self.layers:
            yield Tap("layer", lambda n, layer: Skipped(layer) if n in self.layers else layer)
        if self.modes:
            yield Tap("modes", lambda n, modes: modes.without(self.modes_in(n)))
        if self.gates:
            yield Tap(
                "factors",
                lambda n, fields: (
                    fields.new_zeros(()).expand_as(fields) if n in self.gates else fields
                ),
            )
        if self.displacing is not None:
            yield Tap("displacement", self.displacing)
        if self.scaling is not None:
            yield Tap("scales", self.scaling)
        if gaussians:
            yield Tap("contribution", partial(_without_gaussians, num_gaussians, gaussians))
        if sites:
            yield Tap("values", lambda n, values: _without_sites(values, sites))
            yield Tap("contribution", lambda n, part: without(part, sites, 0), at_queries=False)
        if sites or gaussians:
            yield Tap("encode", lambda n, latent: latent.without(sites, gaussians))

    def modes_in(self, layer: int) -> list[int]:
        """Returns the modes of a layer that are switched off."""
        return sorted(mode for number, mode in self.modes if number == layer)

    def _check(self, model: GaussianParticleOperator) -> None:
        """Refuses parts that the model does not have."""
        num_layers = len(model.applied_layers)
        has_waves = model.waves is not None
        if not has_waves and (self.gates or self.displacing or self.scaling):
            raise ValueError(
                "`ablation.gates`, `ablation.displacing` and `ablation.scaling` must be left out in "
                "the paper's operator: its layers have no gate, and its particles do not move."
            )
        named = {
            "layers": ({*self.layers, *(layer for layer, _ in self.modes)}, num_layers),
            "gates": (self.gates, num_layers),
            "modes": ({mode for _, mode in self.modes}, model.num_modes),
            "gaussians": (self.gaussians, _num_gaussians(model)),
        }
        for name, (numbers, count) in named.items():
            _check_numbers(name, numbers, count)


class Skipped(AbstractLayer):
    """A layer whose update is computed, for a trace, and not used."""

    def __init__(self, layer: AbstractLayer) -> None:
        super().__init__()
        self.layer, self.sizes = layer, layer.sizes

    def couple(self, state: Chunked[Any], sites: Sites) -> Any:
        """Returns what the layer takes from the sites."""
        return self.layer.couple(state, sites)

    def update(self, state: Any, points: Points, coupled: Any) -> Any:
        """Returns the state as it is."""
        self.layer.update(state, points, coupled)
        return state


def _num_gaussians(model: GaussianParticleOperator) -> int:
    """Returns the particles of a point; a layer from outside may have none."""
    return getattr(model.config, "num_gaussians", 0)


def _check_numbers(name: str, numbers: frozenset[int] | set[int], count: int) -> None:
    outside = sorted(number for number in numbers if not 0 <= number < count)
    if outside and not count:
        raise ValueError(f"`ablation.{name}` must be left out: this model has none.")
    if outside:
        raise ValueError(f"`ablation.{name}` must be from 0 to {count - 1}, got {outside[0]}.")


def _without_gaussians(
    num_gaussians: int, gaussians: list[int], layer: int, contribution: Tensor
) -> Tensor:
    parts = contribution.unflatten(-1, (num_gaussians, -1))
    return without(parts, gaussians, dim=-2).flatten(-2)


def _without_sites(values: Tensor, sites: list[int]) -> Tensor:
    _check_numbers("sites", frozenset(sites), values.shape[1])
    return without(values, sites, dim=1)
