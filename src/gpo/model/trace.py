"""Every intermediate of a forward pass, in the order of the method section, and as a file.

In a file layers and states are axes of their own. Complex numbers are two real ones along `part`,
the real one first. Waves are told by their wave vectors, and built again from the numbers they
follow from.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.inspect.files import (
    WEIGHT_MEANING,
    Stored,
    place_variables,
    scale_variables,
    variable,
    write_dataset,
)
from gpo.model.encoder import MLPFeatures
from gpo.model.geometric import WaveModes
from gpo.model.layer import AbstractModes
from gpo.model.paper import ContentModes
from gpo.model.particles import AbstractLatent, Particles
from gpo.numerics.domain import Domain
from gpo.transforms.waves import Waves


@dataclass(frozen=True)
class Trace:
    """What the operator computed on its way from a field to its answer."""

    particles: AbstractLatent
    """The particles at the sites (plain features in the ablation without them)."""
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

    def save(self, path: str | Path, *, length_units: str = "1") -> None:
        """Writes a new file, NetCDF (`.nc`) or Zarr (`.zarr`), with CF metadata.

        Args:
            path: The file; it is whole or not there.
            length_units: Units of the domain's coordinates, such as "m".
        """
        save_trace(self, path, length_units)

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Returns what `save` wrote."""
        return load_trace(path)


AT_SITES = ("sample", "site")
OWNED = (*AT_SITES, "gaussian")
OUTPUT = (*AT_SITES, "output_channel")
STATES = {True: ("depth", *AT_SITES, "channel"), False: ("depth", *OWNED)}
"""Axes of the states, by whether there are waves."""
MODAL = ("layer", "part", "mode")
HEADS = ("layer", "sample", "head")

Table = dict[str, tuple[tuple[str, ...], str, str]]

WAVES: Table = {
    "token": ((*MODAL, "sample", "channel"), "tokens", "what a wave measured of the state"),
    "response": ((*MODAL, "field"), "response", "by what a mode of a field is multiplied"),
    "scattered": ((*MODAL, "sample", "field"), "scattered", "what is scattered back to the sites"),
}
"""Variable, axes, attribute of `WaveModes` and meaning."""

CONTENT: Table = {
    "token": ((*HEADS, "mode", "head_channel"), "tokens", "what a window measured of the basis"),
    "coupling": ((*HEADS, "mode", "from_mode"), "coupling", "how much a mode takes of another"),
    "coupled": ((*HEADS, "mode", "head_channel"), "coupled", "tokens after coupling"),
    "scattered": ((*HEADS, "mode", "gaussian"), "scattered", "what is scattered back to the sites"),
}
"""Variable, axes, attribute of `ContentModes` and meaning."""

WINDOW = (*HEADS, "site", "mode")


def save_trace(trace: Trace, path: str | Path, length_units: str) -> None:
    """Writes a new file, NetCDF or Zarr by its ending."""
    states = STATES[trace.waves is not None]
    meaning = "state of the sites, or basis, before and after every layer"
    shown = "predicted field, as the decoder gives it"
    content = {
        "state": variable(states, torch.stack(trace.states), meaning),
        "output": variable(OUTPUT, trace.output, shown),
    }
    places = place_variables("site_", AT_SITES, trace.coords, trace.domain, "site", length_units)
    latent = trace.particles
    if isinstance(latent, Particles):
        places |= place_variables(
            "center_", OWNED, latent.centers, trace.domain, "center", length_units
        )
        content |= scale_variables(OWNED, latent.scales, length_units)
        content["weight"] = variable(OWNED, latent.weights, WEIGHT_MEANING)
    else:
        assert isinstance(latent, MLPFeatures)
        content["feature"] = variable(
            OWNED, latent.features, "what a site holds instead of particles"
        )
    attributes: dict[str, list[int] | list[float]] = {}
    if trace.waves is not None:
        meaning = "wave vectors, in turns per length of the domain"
        content["wave_vector"] = variable(("mode", "axis"), trace.waves.vectors, meaning)
        attributes = {
            # No file holds an empty list.
            "wave_mesh_shape": list(trace.waves.mesh_shape) or [0],
            "wave_limits": list(trace.waves.limits),
            "wave_periods": list(trace.waves.periods),
        }
    if trace.windows:
        windows = torch.stack(trace.windows)
        content["window"] = variable(WINDOW, windows, "fraction of a site in a mode")
    if trace.modes:
        for name, (dims, attribute, meaning) in (WAVES if trace.waves else CONTENT).items():
            parts = [getattr(modes, attribute) for modes in trace.modes]
            content[name] = variable(dims, torch.stack(parts), meaning)
    title = "Every intermediate of a forward pass of the Gaussian Particle Operator"
    write_dataset(path, "Trace", title, trace.domain, content, places, attributes)


def load_trace(path: str | Path) -> Trace:
    """Returns the trace in a file."""
    stored = Stored.read(path, "Trace")
    domain = stored.domain()
    waves = _waves(stored, domain)
    states = stored.tensor("state", STATES[waves is not None]).unbind()
    num_layers = len(states) - 1
    windows, modes = (), ()
    if waves is not None:
        modes = tuple(WaveModes(**parts) for parts in _layers(stored, WAVES, num_layers))
    elif num_layers:
        windows = stored.tensor("window", WINDOW).unbind()
        modes = tuple(ContentModes(**parts) for parts in _layers(stored, CONTENT, num_layers))
    coords, output = stored.places("site_", AT_SITES, domain), stored.tensor("output", OUTPUT)
    return Trace(_latent(stored, domain), states, modes, windows, output, coords, domain, waves)


def _latent(stored: Stored, domain: Domain) -> AbstractLatent:
    if "feature" in stored:
        return MLPFeatures(stored.tensor("feature", OWNED))
    centers, scales = (stored.places(name, OWNED, domain) for name in ("center_", "scale_"))
    return Particles(centers, scales, stored.tensor("weight", OWNED))


def _waves(stored: Stored, domain: Domain) -> Waves | None:
    if "wave_vector" not in stored:
        return None
    mesh, limits = (
        tuple(int(count) for count in stored.numbers(f"wave_{name}"))
        for name in ("mesh_shape", "limits")
    )
    periods = tuple(stored.numbers("wave_periods"))
    return Waves(domain, () if mesh == (0,) else mesh, limits, periods)


def _layers(stored: Stored, table: Table, num_layers: int) -> Iterator[dict[str, Tensor]]:
    """Yields what every layer saw, by the names of its attributes."""
    if num_layers:
        whole = {
            attribute: stored.tensor(name, dims) for name, (dims, attribute, _) in table.items()
        }
        for layer in range(num_layers):
            yield {attribute: tensor[layer] for attribute, tensor in whole.items()}
