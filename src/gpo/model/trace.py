"""Every intermediate of a forward pass, in the order of the method section."""

from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from gpo.model.attention import Stage
from gpo.model.geometric import WaveStage
from gpo.model.latent import AbstractLatent
from gpo.model.wave_windows import WaveWindows
from gpo.numerics.domain import Domain


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
    coords: Float[Tensor, "batch sites dim"]
    """The sites."""
    domain: Domain
    """Where they lie."""
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

    # What writes and reads files takes half a second to import, so only those wait who need it.

    def save(self, path: str | Path, *, length_units: str = "1") -> None:
        """Writes a new file, NetCDF (`.nc`) or Zarr (`.zarr`), with CF metadata.

        Args:
            path: The file; it is whole or not there.
            length_units: Units of the domain's coordinates, such as "m".
        """
        from gpo.model.trace_file import save_trace

        save_trace(self, path, length_units)

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Returns what `save` wrote."""
        from gpo.model.trace_file import load_trace

        return load_trace(path)
