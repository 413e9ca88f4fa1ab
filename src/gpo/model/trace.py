"""Every intermediate of a forward pass, in the order of the method section."""

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
from gpo.model.geometric import WaveStage
from gpo.model.paper import Stage
from gpo.model.particles import AbstractLatent, Particles
from gpo.numerics.domain import Domain
from gpo.transforms.waves import Waves


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
    waves: Waves | None = None
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
        from gpo.model.trace import save_trace

        save_trace(self, path, length_units)

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Returns what `save` wrote."""
        from gpo.model.trace import load_trace

        return load_trace(path)


# >>> """A trace as a file: particles, bases, windows, tokens, couplings and output by name.
#
# Layers and states are axes of their own. Complex numbers are two real ones along `part`, the real
# one first. Waves are told by their wave vectors, and built again from the numbers they follow from.
# """

AT_SITES = ("sample", "site")
OWNED = (*AT_SITES, "gaussian")
OUTPUT = (*AT_SITES, "output_channel")
STATES = {True: ("state", *AT_SITES, "channel"), False: ("state", *OWNED)}
"""Axes of the bases, by whether there are waves."""
MODAL = ("layer", "part", "mode")
HEADS = ("layer", "sample", "head")

Table = dict[str, tuple[tuple[str, ...], str, str]]

WAVES: Table = {
    "token": ((*MODAL, "sample", "channel"), "tokens", "what a wave measured of the state"),
    "response": ((*MODAL, "field"), "response", "by what a mode of a field is multiplied"),
    "filtered": ((*MODAL, "sample", "field"), "filtered", "what is scattered back to the sites"),
}
"""Variable, axes, attribute of `WaveStage` and meaning."""

CONTENT: Table = {
    "window": ((*HEADS, "site", "mode"), "windows", "share of a site in a mode"),
    "token": ((*HEADS, "mode", "head_channel"), "tokens", "what a window measured of the basis"),
    "coupling": ((*HEADS, "mode", "from_mode"), "coupling", "how much a mode takes of another"),
    "coupled": ((*HEADS, "mode", "head_channel"), "coupled", "tokens after coupling"),
}
"""Variable, axes, attribute of `Stage` and meaning."""


def save_trace(trace: Trace, path: str | Path, length_units: str) -> None:
    """Writes a new file, NetCDF or Zarr by its ending."""
    states = STATES[trace.waves is not None]
    meaning = "basis, or state of the sites, before and after every layer"
    shown = "predicted field, as the decoder gives it"
    content = {
        "basis": variable(states, torch.stack(trace.bases), meaning),
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
    if trace.stages:
        for name, (dims, attribute, meaning) in (WAVES if trace.waves else CONTENT).items():
            parts = [getattr(stage, attribute) for stage in trace.stages]
            content[name] = variable(dims, torch.stack(parts), meaning)
    title = "Every intermediate of a forward pass of the Gaussian Particle Operator"
    write_dataset(path, "Trace", title, trace.domain, content, places, attributes)


def load_trace(path: str | Path) -> Trace:
    """Returns the trace in a file."""
    stored = Stored.read(path, "Trace")
    domain = stored.domain()
    waves = _waves(stored, domain)
    bases = stored.tensor("basis", STATES[waves is not None]).unbind()
    num_layers = len(bases) - 1
    if waves is None:
        stages = tuple(Stage(**parts) for parts in _layers(stored, CONTENT, num_layers))
    else:
        stages = tuple(WaveStage(**parts) for parts in _layers(stored, WAVES, num_layers))
    coords, output = stored.places("site_", AT_SITES, domain), stored.tensor("output", OUTPUT)
    return Trace(_latent(stored, domain), bases, stages, output, coords, domain, waves)


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
