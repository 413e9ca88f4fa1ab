r"""Are waves used? The geometric variant's windows by their wave vectors $k$.

A wave is the same size everywhere and no field changes it. What a field decides is how much of
it a wave carries; what training decides is by what it is multiplied; what the sites decide is
which waves can be told apart.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.model.geometric import GeometricLayers, WaveStage
from gpo.model.operator import GaussianParticleOperator
from gpo.transforms.fit import HARDLY_SEEN
from gpo.transforms.waves import Waves

CHUNK = 4096
"""Sites that are added to a Gram matrix at a time."""
MAX_FUNCTIONS = 3000
"""Waves up to which their Gram matrix is taken apart."""


def read_waves(forecaster: Forecaster, batches: Sequence[Batch]) -> dict[str, Any]:
    """Returns energy and response by wave vector, layer by layer, and how sites see waves.

    Args:
        forecaster: A trained gpo of the geometric variant.
        batches: The examples.
    """
    model = forecaster.model
    assert isinstance(model, GaussianParticleOperator)
    assert isinstance(model.layers, GeometricLayers)
    windows = model.layers.windows
    measured, scattered, responses = energies(forecaster, batches)
    numbers = shells(windows)
    layers = []
    for tokens, filtered, response in zip(measured, scattered, responses, strict=True):
        share = filtered / filtered.sum()
        counts = np.bincount(numbers)
        layers.append(
            {
                "energy_measured": (tokens / tokens.sum()).tolist(),
                "energy_scattered": share.tolist(),
                "effective_modes": float(np.exp(-np.sum(share * np.log(share.clip(1e-300))))),
                "energy_by_shell": np.bincount(numbers, share).tolist(),
                "response_by_shell": np.sqrt(
                    np.bincount(numbers, response) / np.maximum(counts, 1)
                ).tolist(),
            }
        )
    first = batches[0].example
    return {
        "vectors": windows.vectors.tolist(),
        "axes": axis_names(windows),
        "shells": numbers.tolist(),
        "layers": layers,
        "extent": "the whole domain: a wave has no place",
        "gram": gram_numbers(windows, first.coords[0], first.weights[0]),
    }


def energies(
    forecaster: Forecaster, batches: Sequence[Batch]
) -> tuple[
    Float[np.ndarray, "layers modes"],
    Float[np.ndarray, "layers modes"],
    Float[np.ndarray, "layers modes"],
]:
    """Returns what waves measure and what they scatter back, by layer, and their mean squared response."""
    measured, scattered, responses, count = 0.0, 0.0, [], 0
    for batch in batches:
        trace = batch.traced(forecaster)
        assert trace.waves is not None
        twice = trace.waves.multiplicities.double()
        stages = [stage for stage in trace.stages if isinstance(stage, WaveStage)]
        tokens = torch.stack([stage.tokens for stage in stages]).double().square()
        filtered = torch.stack([stage.filtered for stage in stages]).double().square()
        measured = measured + (twice * tokens.sum((1, 3, 4))).numpy()
        scattered = scattered + (twice * filtered.sum((1, 3, 4))).numpy()
        responses = [stage.response.double().square().sum(0).mean(-1).numpy() for stage in stages]
        count += len(batch.example.frames)
    return np.asarray(measured) / count, np.asarray(scattered) / count, np.stack(responses)


def shells(windows: Waves) -> Int[np.ndarray, " modes"]:
    """Returns the whole number next to |k| of every mode, in turns per length of the domain."""
    return (windows.vectors.norm(dim=-1) + 0.5).floor().long().numpy()


def axis_names(windows: Waves) -> list[str]:
    """Returns along what the components of wave vectors run."""
    if windows.mesh_shape:
        return [f"index {number}" for number in range(len(windows.mesh_shape))]
    return ["latitude", "longitude"] if windows.domain.is_sphere else list("xyz")[: len(windows.limits)]  # fmt: skip


def gram_numbers(
    windows: Waves, coords: Float[Tensor, "points dim"], weights: Float[Tensor, " points"]
) -> dict[str, Any]:
    r"""Returns how well sites tell waves apart: eigenvalues of $\Psi^*Q\Psi$, all one at best.

    `waves` are the waves themselves, which on an open axis nearly depend on each other by design;
    `measured` are the orthonormal combinations of them in which fields are measured, of which
    some the sites may hardly see.

    Args:
        windows: The waves.
        coords: The sites.
        weights: Quadrature weights; 0 masks a site.
    """
    functions = [2 * limit + 1 for limit in windows.limits]
    if np.prod(functions) > MAX_FUNCTIONS:
        return {"reason": f"{np.prod(functions):,} waves are too many to take apart"}
    places = windows.places(coords.double().unsqueeze(0))[0].double()
    share = weights.double() / weights.double().sum()
    waves = _eigenvalues(places, share, lambda part: _waves(windows, part))
    measured = _eigenvalues(places, share, lambda part: _measured(windows, part))
    return {
        "waves": _told_apart(waves),
        "measured": {
            **_told_apart(measured),
            "share_hardly_seen": float((measured < HARDLY_SEEN).mean()),
        },
    }


def _told_apart(eigenvalues: np.ndarray) -> dict[str, float | int]:
    smallest, largest = max(float(eigenvalues[0]), 0.0), float(eigenvalues[-1])
    return {"count": len(eigenvalues), "smallest": smallest, "largest": largest, "smallest_over_largest": smallest / largest}  # fmt: skip


def _eigenvalues(places: Tensor, share: Tensor, functions: Any) -> np.ndarray:
    """Returns the eigenvalues of the Gram matrix of functions at the sites, ascending."""
    gram = 0.0
    for part, q in zip(places.split(CHUNK), share.split(CHUNK), strict=True):
        values = functions(part)
        gram = gram + values.mH @ (q.unsqueeze(-1) * values)
    assert isinstance(gram, Tensor)
    return torch.linalg.eigvalsh(gram).numpy()


def _waves(windows: Waves, places: Float[Tensor, "points axes"]) -> Complex[Tensor, "points waves"]:
    vectors = windows.vectors
    # The opposite of every vector that stands for two.
    vectors = torch.cat([vectors, -vectors[windows.multiplicities == 2]])
    return torch.exp(2j * torch.pi * (places @ vectors.T))


def _measured(
    windows: Waves, places: Float[Tensor, "points axes"]
) -> Float[Tensor, "points functions"]:
    functions = torch.ones_like(places[:, :1])
    for axis, basis in enumerate(windows.bases):
        functions = (functions.unsqueeze(-1) * basis.at(places[:, axis]).unsqueeze(-2)).flatten(-2)
    return functions
