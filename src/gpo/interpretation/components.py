"""The modes of a model as components that can be ablated, each ranked by its energy.

A wave of the geometric variant is the same in all layers, so it is one component; a content window
of the paper's variant belongs to its layer. The energy that a mode scatters back is known from one
forward pass: a cheap guess of its effect, which `ablations.py` puts to the test.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.model.ablation import Ablation
from gpo.transforms.waves import Waves


@dataclass(frozen=True)
class Component:
    """One mode: a wave in all layers, or a content window of one layer."""

    name: str
    modes: frozenset[tuple[int, int]]
    """Pairs of layer and mode."""
    score: float
    """Energy that it scatters back."""
    about: dict[str, Any] = field(default_factory=dict)
    """Its entries in `interpret.json`."""


def make_components(forecaster: Forecaster, batches: Sequence[Batch]) -> list[Component]:
    """Returns all modes of a gpo with layers."""
    model = forecaster.operator
    num_layers = len(model.applied_layers)
    if model.waves is not None:
        scores = wave_energies(forecaster, batches)[1].sum(0)
        return [
            Component(
                f"k = ({', '.join(f'{number:.3g}' for number in vector)})",
                frozenset((layer, mode) for layer in range(num_layers) for mode in modes),
                float(scores[modes].sum()),
                {"vector": list(vector)},
            )
            for vector, modes in _modes_by_wave(model.waves).items()
        ]
    scores = _content_energies(forecaster, batches)
    per_head = model.config.num_gaussians
    return [
        Component(
            f"layer {layer + 1}, head {mode // per_head + 1}, mode {mode % per_head + 1}",
            frozenset({(layer, mode)}),
            float(scores[layer, mode]),
            {"layer": layer, "head": mode // per_head, "mode": mode % per_head},
        )
        for layer in range(num_layers)
        for mode in range(model.num_modes)
    ]


def joint_ablation(components: Sequence[Component]) -> Ablation:
    """Returns the ablation of all given components at once."""
    return Ablation(frozenset().union(*(component.modes for component in components)))


def wave_energies(
    forecaster: Forecaster, batches: Sequence[Batch]
) -> tuple[
    Float[np.ndarray, "layers modes"],
    Float[np.ndarray, "layers modes"],
    Float[np.ndarray, "layers modes"],
]:
    """Returns the energy of every wave before and after the filter, and its mean squared response."""
    measured, scattered, responses, count = 0.0, 0.0, [], 0
    for batch in batches:
        trace = batch.traced(forecaster)
        assert trace.waves is not None
        twice = trace.waves.multiplicities.double()
        layers = trace.modes
        tokens = torch.stack([modes.tokens for modes in layers]).double().square()
        filtered = torch.stack([modes.fields for modes in layers]).double().square()
        measured = measured + (twice * tokens.sum((1, 3, 4))).numpy()
        scattered = scattered + (twice * filtered.sum((1, 3, 4))).numpy()
        responses = [modes.response.double().square().sum(0).mean(-1).numpy() for modes in layers]
        count += len(batch.example.frames)
    return np.asarray(measured) / count, np.asarray(scattered) / count, np.stack(responses)


def shells(windows: Waves) -> Int[np.ndarray, " modes"]:
    """Returns |k| of every mode, rounded to a whole number of periods per domain length."""
    return (windows.vectors.norm(dim=-1) + 0.5).floor().long().numpy()


def _modes_by_wave(windows: Waves) -> dict[tuple[float, ...], list[int]]:
    """Returns the modes of every wave: two opposite vectors are the same wave."""
    waves: dict[tuple[float, ...], list[int]] = {}
    # Backwards, so that of two opposite vectors the positive one gives the name.
    for mode, vector in reversed(list(enumerate(windows.vectors.tolist()))):
        opposite = tuple(0.0 - component for component in vector)
        waves.setdefault(opposite if opposite in waves else tuple(vector), []).append(mode)
    return waves


def _content_energies(forecaster: Forecaster, batches: Sequence[Batch]) -> np.ndarray:
    """Returns mass times squared token by layer and mode, the mean over examples."""
    rows: list[Tensor] = []
    for batch in batches:
        trace = batch.traced(forecaster)
        weights = batch.example.weights / batch.example.weights.sum(1, keepdim=True)
        energies = [
            torch.einsum("bhnm,bn->bhm", windows.double(), weights)
            * modes.coupled.double().square().sum(-1)
            for windows, modes in zip(trace.windows, trace.modes, strict=True)
        ]
        rows.append(torch.stack(energies, dim=1).flatten(2))
    return torch.cat(rows).mean(0).numpy()
