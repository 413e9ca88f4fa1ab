"""Every intermediate of a forward pass, in the order of the method section."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from gpo.model.attention import Stage
from gpo.model.latent import AbstractLatent


@dataclass(frozen=True)
class Trace:
    """What the operator computed on its way from a field to its answer."""

    particles: AbstractLatent
    """The particles at the sites (plain features in the ablation without them)."""
    bases: tuple[Float[Tensor, "batch points gaussians"], ...]
    r"""$Z^{(0)},\ldots,Z^{(n)}$: the basis before and after every stage."""
    stages: tuple[Stage, ...]
    """Windows, tokens and couplings of every stage."""
    output: Float[Tensor, "batch points channels"]
    """The predicted field at the sites."""

    @property
    def windows(self) -> tuple[Float[Tensor, "batch heads points modes"], ...]:
        """The windows of every stage."""
        return tuple(stage.windows for stage in self.stages)

    @property
    def tokens(self) -> tuple[Float[Tensor, "batch heads modes head_dim"], ...]:
        """What the windows of every stage measured."""
        return tuple(stage.tokens for stage in self.stages)

    @property
    def couplings(self) -> tuple[Float[Tensor, "batch heads modes modes"], ...]:
        """The coupling between modes in every stage."""
        return tuple(stage.coupling for stage in self.stages)
