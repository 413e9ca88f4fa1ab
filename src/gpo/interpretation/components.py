"""The modes of a model as parts that can be switched off, each with a cheap guess of its worth."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.waves import energies
from gpo.model.ablation import Ablation
from gpo.model.geometric import GeometricLayers
from gpo.model.operator import GaussianParticleOperator
from gpo.model.paper import Stage
from gpo.transforms.waves import Waves


@dataclass(frozen=True)
class Part:
    """One mode: a wave in all layers, or a content window of one layer."""

    name: str
    modes: frozenset[tuple[int, int]]
    """StaticMaps of layer and mode."""
    score: float
    """Energy that it scatters back: known from one forward pass, without switching anything off."""
    about: dict[str, Any] = field(default_factory=dict)
    """What `interpret.json` tells of it."""


def make_parts(forecaster: Forecaster, batches: Sequence[Batch]) -> list[Part]:
    """Returns all modes. A wave is the same in every layer; a content window belongs to its own."""
    model = forecaster.model
    assert isinstance(model, GaussianParticleOperator)
    num_layers = model.config.num_layers
    if isinstance(model.layers, GeometricLayers):
        scores = energies(forecaster, batches)[1].sum(0)
        return [
            Part(
                f"k = ({', '.join(f'{component:.3g}' for component in vector)})",
                frozenset((layer, mode) for layer in range(num_layers) for mode in modes),
                float(scores[modes].sum()),
                {"vector": list(vector)},
            )
            for vector, modes in _waves(model.layers.windows).items()
        ]
    scores = _content_scores(forecaster, batches)
    per_head = model.config.num_modes
    return [
        Part(
            f"layer {layer + 1}, head {mode // per_head + 1}, mode {mode % per_head + 1}",
            frozenset({(layer, mode)}),
            float(scores[layer, mode]),
            {"layer": layer, "head": mode // per_head, "mode": mode % per_head},
        )
        for layer in range(num_layers)
        for mode in range(model.num_modes)
    ]


def together(parts: Sequence[Part]) -> Ablation:
    """Returns what switches all of some parts off."""
    return Ablation(frozenset().union(*(part.modes for part in parts)))


def _waves(windows: Waves) -> dict[tuple[float, ...], list[int]]:
    """Returns the modes of every wave; where both of two opposite vectors are there, they are one."""
    waves: dict[tuple[float, ...], list[int]] = {}
    # Backwards, so that of two opposite vectors the positive one gives the name.
    for mode, vector in reversed(list(enumerate(windows.vectors.tolist()))):
        opposite = tuple(0.0 - component for component in vector)
        waves.setdefault(opposite if opposite in waves else tuple(vector), []).append(mode)
    return waves


def _content_scores(forecaster: Forecaster, batches: Sequence[Batch]) -> np.ndarray:
    """Returns mass times squared token by layer and mode, the mean over examples."""
    rows: list[Tensor] = []
    for batch in batches:
        stages = [stage for stage in batch.traced(forecaster).stages if isinstance(stage, Stage)]
        weights = batch.example.weights / batch.example.weights.sum(1, keepdim=True)
        rows.append(
            torch.stack(
                [
                    torch.einsum("bhnm,bn->bhm", stage.windows, weights)
                    * stage.coupled.square().sum(-1)
                    for stage in stages
                ],
                dim=1,
            ).flatten(2)
        )
    return torch.cat(rows).double().mean(0).numpy()
