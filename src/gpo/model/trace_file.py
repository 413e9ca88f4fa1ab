"""A trace as a file: particles, states, windows, tokens, couplings and output by name.

Layers and states are axes of their own. Complex numbers are two real ones along `part`, the real
one first. Waves are stored by their wave vectors, and made again from the numbers that define them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpo.inspect.files import (
    WEIGHT_MEANING,
    Stored,
    coordinate_variables,
    scale_variables,
    variable,
    write_dataset,
)
from gpo.model.attention import AttentionModes
from gpo.model.encoder import MLPFeatures
from gpo.model.particles import AbstractLatent, Particles
from gpo.model.wave_layer import WaveModes
from gpo.numerics.domain import Domain
from gpo.transforms.waves import Waves

AT_SITES = ("sample", "site")
OWNED = ("transport", *AT_SITES, "gaussian")
"""Particles of every layer that has some; in the paper's variant those of the encoder."""
OUTPUT = (*AT_SITES, "output_channel")
STATES = {
    True: ("depth", *AT_SITES, "channel"),
    False: ("depth", *AT_SITES, "gaussian"),
}
"""Axes of the states, by whether there are waves."""
MODAL = ("layer", "part", "mode")
HEADS = ("layer", "sample", "head")

Table = dict[str, tuple[tuple[str, ...], str, str]]

WAVES: Table = {
    "token": ((*MODAL, "sample", "channel"), "tokens", "projection of the state onto a wave"),
    "response": ((*MODAL, "field"), "response", "factor of a mode of a field"),
    "filtered": (
        (*MODAL, "sample", "field"),
        "fields",
        "filtered modes, which are evaluated at the points",
    ),
}
"""Variable, axes, attribute of `WaveModes` and meaning."""

ATTENTION: Table = {
    "token": ((*HEADS, "mode", "head_channel"), "tokens", "mean of the basis over a window"),
    "coupling": ((*HEADS, "mode", "from_mode"), "coupling", "how much a mode takes of another"),
    "coupled": ((*HEADS, "mode", "head_channel"), "coupled", "tokens after coupling"),
    "filtered": (
        (*HEADS, "mode", "gaussian"),
        "fields",
        "coupled modes, which are evaluated at the points",
    ),
}
"""Variable, axes, attribute of `AttentionModes` and meaning."""

WINDOW = (*HEADS, "site", "mode")
DISPLACEMENT_MODES = ("transport", "part", "mode", "sample", "number")


def save_trace(
    path: str | Path,
    length_units: str,
    *,
    particles: tuple[AbstractLatent, ...],
    states: tuple[Tensor, ...],
    modes: tuple[Any, ...],
    windows: tuple[Tensor, ...],
    output: Tensor,
    coords: Tensor,
    domain: Domain,
    waves: Waves | None,
) -> None:
    """Writes the fields of a `Trace` into a new file, NetCDF or Zarr by its ending."""
    axes = STATES[waves is not None]
    meaning = "state of the sites, or basis, before and after every layer"
    shown = "predicted field, as the decoder gives it"
    variables = {
        "state": variable(axes, torch.stack(states), meaning),
        "output": variable(OUTPUT, output, shown),
    }
    coordinates = coordinate_variables("site_", AT_SITES, coords, domain, "site", length_units)
    moving_particles = [latent for latent in particles if isinstance(latent, Particles)]
    if moving_particles:
        centers, scales, weights = (
            torch.stack([getattr(latent, name) for latent in moving_particles])
            for name in ("centers", "scales", "weights")
        )
        coordinates |= coordinate_variables(
            "center_", OWNED, centers, domain, "center", length_units
        )
        variables |= scale_variables(OWNED, scales, length_units)
        variables["weight"] = variable(OWNED, weights, WEIGHT_MEANING)
    for latent in particles:
        if isinstance(latent, MLPFeatures):
            meaning = "features of a site in place of particles"
            variables["feature"] = variable(OWNED[1:], latent.features, meaning)
    attributes: dict[str, list[int] | list[float]] = {}
    if waves is not None:
        meaning = "wave vectors, in turns per length of the domain"
        variables["wave_vector"] = variable(("mode", "axis"), waves.vectors, meaning)
        attributes = {
            # No file holds an empty list.
            "wave_mesh_shape": list(waves.mesh_shape) or [0],
            "wave_limits": list(waves.limits),
            "wave_periods": list(waves.periods),
        }
    if windows:
        variables["window"] = variable(WINDOW, torch.stack(windows), "fraction of a site in a mode")
    if modes:
        for name, (dims, attribute, meaning) in (WAVES if waves else ATTENTION).items():
            parts = [getattr(layer, attribute) for layer in modes]
            variables[name] = variable(dims, torch.stack(parts), meaning)
    moving = [
        layer.displacement for layer in modes if getattr(layer, "displacement", None) is not None
    ]
    if moving:
        variables["displacement_mode"] = variable(
            DISPLACEMENT_MODES, torch.stack(moving), "modes of the displacements"
        )
    title = "Every intermediate of a forward pass of the Gaussian Particle Operator"
    write_dataset(path, "Trace", title, domain, variables, coordinates, attributes)


def load_trace(path: str | Path) -> dict[str, Any]:
    """Returns the fields of the `Trace` in a file, by name."""
    stored = Stored.read(path, "Trace")
    domain = stored.domain()
    waves = _waves(stored, domain)
    states = stored.tensor("state", STATES[waves is not None]).unbind()
    num_layers = len(states) - 1
    windows, modes = (), ()
    if waves is not None:
        modes = tuple(_wave_modes(stored, num_layers))
    elif num_layers:
        windows = stored.tensor("window", WINDOW).unbind()
        modes = tuple(AttentionModes(**parts) for parts in _layers(stored, ATTENTION, num_layers))
    coords, output = stored.coords("site_", AT_SITES, domain), stored.tensor("output", OUTPUT)
    return {
        "particles": tuple(_particles(stored, domain)),
        "states": states,
        "modes": modes,
        "windows": windows,
        "output": output,
        "coords": coords,
        "domain": domain,
        "waves": waves,
    }


def _particles(stored: Stored, domain: Domain) -> Iterator[AbstractLatent]:
    if "feature" in stored:
        yield MLPFeatures(stored.tensor("feature", OWNED[1:]))
    if "weight" in stored:
        centers, scales = (stored.coords(name, OWNED, domain) for name in ("center_", "scale_"))
        rows = zip(centers, scales, stored.tensor("weight", OWNED), strict=True)
        yield from (Particles(*row) for row in rows)


def _waves(stored: Stored, domain: Domain) -> Waves | None:
    if "wave_vector" not in stored:
        return None
    mesh, limits = (
        tuple(int(count) for count in stored.numbers(f"wave_{name}"))
        for name in ("mesh_shape", "limits")
    )
    periods = tuple(stored.numbers("wave_periods"))
    return Waves(domain, () if mesh == (0,) else mesh, limits, periods)


def _wave_modes(stored: Stored, num_layers: int) -> Iterator[WaveModes]:
    """Yields the modes of every layer; the last ones have displacements."""
    name = "displacement_mode"
    displacements = list(stored.tensor(name, DISPLACEMENT_MODES)) if name in stored else []
    missing: list[Tensor | None] = [None] * (num_layers - len(displacements))
    for parts, displacement in zip(
        _layers(stored, WAVES, num_layers), missing + displacements, strict=True
    ):
        yield WaveModes(**parts, displacement=displacement)


def _layers(stored: Stored, table: Table, num_layers: int) -> Iterator[dict[str, Any]]:
    """Yields the modes of every layer, by the names of their attributes."""
    if num_layers:
        whole = {
            attribute: stored.tensor(name, dims) for name, (dims, attribute, _) in table.items()
        }
        for layer in range(num_layers):
            yield {attribute: tensor[layer] for attribute, tensor in whole.items()}
