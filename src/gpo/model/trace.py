"""Every intermediate of a forward pass, in the order of the method section."""

from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from gpo.model.modes import AbstractModes, ContentModes, WaveModes
from gpo.model.particles import AbstractLatent
from gpo.numerics.domain import Domain
from gpo.optional import require
from gpo.transforms.waves import Waves


@dataclass(frozen=True)
class Trace:
    """What the operator computed on its way from a field to its answer."""

    particles: tuple[AbstractLatent, ...]
    """The particles at the sites, of every layer that transports; in the paper's variant those of
    the encoder (plain features in the ablation without them)."""
    states: tuple[Float[Tensor, "batch points channels"], ...]
    r"""$h^{(0)},\ldots,h^{(n)}$: the state before and after every layer; the basis $Z$ in the paper's variant."""
    modes: tuple[AbstractModes, ...]
    """Tokens and couplings of every layer."""
    windows: tuple[Float[Tensor, "batch heads points modes"], ...]
    """The windows of every layer; none where test functions are waves, which no field changes."""
    output: Float[Tensor, "batch points out_channels"]
    """The predicted field at the sites."""
    coords: Float[Tensor, "batch sites dim"]
    """The sites."""
    domain: Domain
    """Where they lie."""
    waves: Waves | None = None
    """The test functions of all layers, where they are waves: their wave vectors, and what to draw."""

    @property
    def wave_modes(self) -> tuple[WaveModes, ...]:
        """The modes of every layer, where test functions are waves."""
        return tuple(modes for modes in self.modes if isinstance(modes, WaveModes))

    @property
    def content_modes(self) -> tuple[ContentModes, ...]:
        """The modes of every layer, where windows depend on the field."""
        return tuple(modes for modes in self.modes if isinstance(modes, ContentModes))

    @property
    def tokens(self) -> tuple[Tensor, ...]:
        """What the test functions of every layer measured."""
        return tuple(modes.tokens for modes in (*self.wave_modes, *self.content_modes))

    @property
    def responses(self) -> tuple[Float[Tensor, "2 modes fields"], ...]:
        """By what modes are multiplied in every layer, real and imaginary part, where they are waves."""
        return tuple(modes.response for modes in self.wave_modes)

    @property
    def couplings(self) -> tuple[Float[Tensor, "batch heads modes modes"], ...]:
        """The coupling between modes in every layer; none where every mode is filtered on its own."""
        return tuple(modes.coupling for modes in self.content_modes)

    # What writes and reads files takes half a second to import, so only those wait who need it.

    def save(self, path: str | Path, *, length_units: str = "1") -> None:
        """Writes a new file, NetCDF (`.nc`) or Zarr (`.zarr`), with CF metadata.

        Args:
            path: The file; it is whole or not there.
            length_units: Units of the domain's coordinates, such as "m".
        """
        files = require("gpo.model.trace_file", "data", "Saving a trace")
        files.save_trace(path, length_units, **vars(self))

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Returns what `save` wrote."""
        files = require("gpo.model.trace_file", "data", "Loading a trace")
        return cls(**files.load_trace(path))
