r"""A layer has two methods: `couple` takes what points need from each other, `update` is pointwise.

$c=C(h_1,\ldots,h_N)$ and $h_j\leftarrow F(h_j,x_j,c)$. The coupling $c$ is computed at the sites.
The update is the same function at sites and at queries, which only receive. The first layer is the
lift, whose state is None before.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from gpo.execution.memory import LayerSizes
from gpo.execution.points import Points, Sites
from gpo.model.decoder import Decoder
from gpo.numerics.domain import Domain
from gpo.transforms.waves import Waves


class AbstractLayer(nn.Module, ABC):
    """A step of the operator; its state is a tensor, points first, or a data class of such."""

    sizes = LayerSizes()
    """Numbers per point, with which memory is planned."""
    has_particles = False
    """Whether points have Gaussian particles in this layer."""
    adamw_parameters: tuple[str, ...] = ()
    """Names of matrices that AdamW updates, also where the optimizer of a run is Muon."""

    @abstractmethod
    def couple(self, state: Any, sites: Sites, /) -> Any:
        """Returns everything that a point needs from the sites: a data class of tensors, or None.

        Args:
            state: Of all sites, chunk by chunk.
            sites: Whose verbs sum over chunks and processes.
        """

    @abstractmethod
    def update(self, state: Any, points: Points, coupled: Any, /) -> Any:
        """Returns the state of points after the layer.

        Args:
            state: Before.
            points: A chunk of the sites, or queries.
            coupled: What `couple` returned.
        """


@dataclass(frozen=True)
class Parts:
    """What a configuration builds: the parts of an operator."""

    lift: AbstractLayer
    """Makes the first state of values and positions."""
    layers: Sequence[AbstractLayer]
    """In the order of application; the same one may come several times."""
    decoder: Decoder
    """Maps the last state of points to the output field."""
    waves: Waves | None = None
    """The test functions, where they are waves; None where they depend on the field."""
    num_nodes: int | None = None
    """Nodes of the lattice of unstructured points; None where no layer samples."""
    losses: Callable[..., dict[str, Tensor]] | None = None
    """Further terms of the training loss, by name (`losses.py`)."""

    @property
    def sizes(self) -> list[LayerSizes]:
        """Numbers per point of lift and layers."""
        return [self.lift.sizes, *(layer.sizes for layer in self.layers)]

    def waves_on(self, domain: Domain) -> Waves | None:
        """Returns the waves in coordinates of a domain; inside they are counted from its corner."""
        return None if self.waves is None else replace(self.waves, domain=domain)
