"""Every intermediate of a forward pass, in the order of the method section."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from gpo.model.attention import Stage
from gpo.model.geometric import WaveStage
from gpo.model.latent import AbstractLatent
from gpo.model.wave_windows import WaveWindows


@dataclass(frozen=True)
class Trace:
    """What the operator computed on its way from a field to its answer."""

    particles: AbstractLatent
    """The particles at the sites (plain features in the ablation without them)."""
    bases: tuple[Float[Tensor, "batch points channels"], ...]
    r"""$Z^{(0)},\ldots,Z^{(n)}$: the basis before and after every stage; the state, where geometric."""
    stages: tuple[Stage, ...] | tuple[WaveStage, ...]
    """Windows, tokens and couplings of every stage."""
    output: Float[Tensor, "batch points out_channels"]
    """The predicted field at the sites."""
    waves: WaveWindows | None = None
    """The windows of all stages, where they are waves: their wave vectors, and what to draw."""

    @property
    def windows(self) -> tuple[Float[Tensor, "batch heads points modes"], ...]:
        """The windows of every stage; none where they are waves, which no field changes."""
        return tuple(stage.windows for stage in self.stages if isinstance(stage, Stage))

    @property
    def tokens(self) -> tuple[Tensor, ...]:
        """What the windows of every stage measured."""
        return tuple(stage.tokens for stage in self.stages)

    @property
    def responses(self) -> tuple[Float[Tensor, "2 modes fields"], ...]:
        """By what modes are multiplied in every stage, real and imaginary part, where they are waves."""
        return tuple(stage.response for stage in self.stages if isinstance(stage, WaveStage))

    @property
    def couplings(self) -> tuple[Float[Tensor, "batch heads modes modes"], ...]:
        """The coupling between modes in every stage; none where every mode is filtered on its own."""
        return tuple(stage.coupling for stage in self.stages if isinstance(stage, Stage))
