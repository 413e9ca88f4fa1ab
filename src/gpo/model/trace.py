"""Every intermediate of a forward pass, to be drawn, measured or saved; recorded by taps."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from gpo.model.particles import AbstractLatent, Particles
from gpo.model.taps import Tap, tapped
from gpo.numerics.domain import Domain
from gpo.optional import require
from gpo.transforms.waves import Waves

if TYPE_CHECKING:
    from gpo.model.operator import GaussianParticleOperator


@dataclass(frozen=True)
class Trace:
    """What the operator computed on its way from a field to its answer."""

    particles: tuple[AbstractLatent, ...]
    """The particles of every layer with transport; in the paper's operator those of the encoder
    (plain features in the ablation without them)."""
    states: tuple[Float[Tensor, "batch points channels"], ...]
    r"""$h^{(0)},\ldots,h^{(n)}$: the state before and after every layer; the basis $Z$ in the paper's operator."""
    modes: tuple[Any, ...]
    """What every layer took from all sites: `WaveModes` or `AttentionModes`."""
    windows: tuple[Float[Tensor, "batch heads points modes"], ...]
    """The windows of every layer; none where test functions are waves, which no field changes."""
    output: Float[Tensor, "batch points out_channels"]
    """The predicted field at the sites."""
    coords: Float[Tensor, "batch sites dim"]
    """The sites."""
    domain: Domain
    """Where they lie."""
    waves: Waves | None = None
    """The test functions of all layers, where they are waves."""

    @property
    def gaussians(self) -> tuple[Particles, ...]:
        """The particles, where there are Gaussians."""
        return tuple(cloud for cloud in self.particles if isinstance(cloud, Particles))

    @property
    def tokens(self) -> tuple[Tensor, ...]:
        """What the test functions of every layer measure."""
        return tuple(modes.tokens for modes in self.modes)

    @property
    def responses(self) -> tuple[Float[Tensor, "2 modes fields"], ...]:
        """The filter of every layer, real and imaginary part, where test functions are waves."""
        return () if self.waves is None else tuple(modes.response for modes in self.modes)

    @property
    def couplings(self) -> tuple[Float[Tensor, "batch heads modes modes"], ...]:
        """The coupling between modes in every layer; none where every mode is filtered on its own."""
        return () if self.waves is not None else tuple(modes.coupling for modes in self.modes)

    # Reading and writing files takes half a second to import, so it is imported where it is used.

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


RECORDED = (
    "update", "modes", "test_functions", "displacement", "scales", "contribution", "encode",
)  # fmt: skip
"""Methods of layers whose results a trace keeps."""


def record(
    model: "GaussianParticleOperator",
    values: Tensor,
    coords: Tensor,
    weights: Tensor | None,
    *,
    num_layers: int | None = None,
) -> Trace:
    """Returns the trace of a forward pass.

    Args:
        model: The operator.
        values: The input field.
        coords: The sites.
        weights: Quadrature weights.
        num_layers: How many of the layers are applied; all when not given.
    """
    kept: dict[str, dict[int, Any]] = defaultdict(dict)

    def keep(name: str) -> Tap:
        def function(layer: int, value: Any) -> Any:
            kept[name][layer] = value
            return value

        return Tap(name, function)

    with tapped([keep(name) for name in RECORDED], needs_all_sites=True):
        sites = model.sites(values, coords, weights)
        output = model.run(sites, num_layers=num_layers).at_sites()
    layers: list[Any] = model.applied_layers
    (points,) = sites.chunks
    particles = [*kept["encode"].values()]
    for number, displacement in kept["displacement"].items():
        layer, contribution = layers[number], kept["contribution"][number]
        particles.append(
            layer.particles(displacement, kept["scales"][number], contribution, points)
        )
    domain, dtype = model.problem.domain, sites.coords_dtype
    coords = domain.from_local(sites.geometry.coords).to(dtype).expand(len(values), -1, -1)
    trace = Trace(
        tuple(cloud.placed(domain, dtype) for cloud in particles),
        tuple(
            (state if isinstance(state, Tensor) else state.values).transpose(0, 1)
            for state in kept["update"].values()
        ),
        tuple(kept["modes"].values()),
        tuple(windows.permute(1, 2, 0, 3) for windows in kept["test_functions"].values()),
        output,
        coords,
        domain,
        model.waves,
    )
    # Copies of layers refer to themselves: what they keep would stay until it is collected.
    kept.clear()
    return trace
