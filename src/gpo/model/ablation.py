"""Parts of an operator that are switched off, to see what they cause."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

Displacing = Callable[[int, Tensor], Tensor]
"""Takes the number of a layer and the displacements that it read, points by samples by particles by
axes of the waves; returns those that are used. Of all sites at once."""


@dataclass(frozen=True)
class Ablation:
    """What does not count in a forward pass; nothing by default."""

    modes: frozenset[tuple[int, int]] = frozenset()
    """Pairs of layer and mode whose tokens are not scattered back; in the paper's variant the modes
    of head h begin at h times the modes per head."""
    layers: frozenset[int] = frozenset()
    """Layers that leave the state as it is."""
    sites: frozenset[int] = frozenset()
    """Sites that hold nothing: their values are zero, which is the mean, and their particles weigh nothing."""
    gaussians: frozenset[int] = frozenset()
    """Gaussians that weigh nothing at any site, by their number among those of a site."""
    gates: frozenset[int] = frozenset()
    """Layers whose gated product is not added; what particles bring is."""
    displacing: Displacing | None = None
    """What becomes of the displacements of particles before they are used: zeros hold them still."""

    def check(self, num_layers: int, num_modes: int, num_sites: int, num_gaussians: int) -> None:
        """Raises a `ValueError` where something is named that is not there."""
        named = {
            "layers": ({*self.layers, *(layer for layer, _ in self.modes)}, num_layers),
            "gates": (self.gates, num_layers),
            "modes": ({mode for _, mode in self.modes}, num_modes),
            "sites": (self.sites, num_sites),
            "gaussians": (self.gaussians, num_gaussians),
        }
        for name, (numbers, count) in named.items():
            strange = sorted(number for number in numbers if not 0 <= number < count)
            if strange:
                raise ValueError(
                    f"`ablation.{name}` must be from 0 to {count - 1}, got {strange[0]}."
                )

    def within(self, points: slice) -> "Ablation":
        """Returns the same for some of the sites, numbered from their first one on."""
        if not self.sites or points.start is None:
            return self
        numbers = range(points.start, points.stop)
        return replace(self, sites=frozenset(s - points.start for s in self.sites if s in numbers))

    def displaced(
        self, layer: int, read: Float[Tensor, "points batch gaussians axes"]
    ) -> Float[Tensor, "points batch gaussians axes"]:
        """Returns the displacements that are used in place of those that a layer read."""
        return read if self.displacing is None else self.displacing(layer, read)

    def modes_of(self, layer: int) -> list[int]:
        """Returns the modes of a layer that are switched off."""
        return sorted(mode for number, mode in self.modes if number == layer)

    def at_sites(
        self, held: Float[Tensor, "batch points *channels"]
    ) -> Float[Tensor, "batch points *channels"]:
        """Returns what sites hold, zero at the ablated ones."""
        return without(held, sorted(self.sites), dim=1)

    def of_sites(
        self, owned: Float[Tensor, "batch points *channels gaussians"]
    ) -> Float[Tensor, "batch points *channels gaussians"]:
        """Returns what belongs to the Gaussians of every site, zero at ablated sites and for ablated ones."""
        return without(self.at_sites(owned), sorted(self.gaussians), dim=-1)


def without(tensor: Tensor, numbers: Iterable[int], dim: int) -> Tensor:
    """Returns a tensor with some entries along an axis zero."""
    chosen = list(numbers)
    if not chosen:
        return tensor
    return tensor.index_fill(dim, torch.tensor(chosen, device=tensor.device), 0.0)
