r"""Are waves used? The windows of the geometric variant, by their wave vectors $k$.

A wave covers the whole domain and depends on no field. The field decides how much energy a wave
has, training by what it is multiplied, and the sites which waves can be told apart: that is the
Gram matrix $\Psi^*Q\Psi$.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.components import shells, wave_energies
from gpo.transforms.gram import EIGENVALUE_FLOOR
from gpo.transforms.waves import Waves

CHUNK = 4096
"""Sites that are added to a Gram matrix at a time."""
MAX_FUNCTIONS = 3000
"""Waves up to which the eigenvalues of their Gram matrix are computed."""


def describe_waves(forecaster: Forecaster, batches: Sequence[Batch]) -> dict[str, Any]:
    """Returns energy and response by wave vector, layer by layer, and the Gram matrix of the sites.

    Args:
        forecaster: A trained gpo of the geometric variant.
        batches: The examples.
    """
    windows = forecaster.operator.waves
    assert windows is not None
    measured, scattered, responses = wave_energies(forecaster, batches)
    numbers = shells(windows)
    layers = []
    for tokens, filtered, response in zip(measured, scattered, responses, strict=True):
        energy = filtered / filtered.sum()
        counts = np.bincount(numbers)
        layers.append(
            {
                "energy_measured": (tokens / tokens.sum()).tolist(),
                "energy_scattered": energy.tolist(),
                "effective_modes": float(np.exp(-np.sum(energy * np.log(energy.clip(1e-300))))),
                "energy_by_shell": np.bincount(numbers, energy).tolist(),
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


def axis_names(windows: Waves) -> list[str]:
    """Returns the names of the axes of wave vectors."""
    if windows.mesh_shape:
        return [f"index {number}" for number in range(len(windows.mesh_shape))]
    return ["latitude", "longitude"] if windows.domain.is_sphere else list("xyz")[: len(windows.limits)]  # fmt: skip


def gram_numbers(
    windows: Waves, coords: Float[Tensor, "points dim"], weights: Float[Tensor, " points"]
) -> dict[str, Any]:
    r"""Returns extreme eigenvalues of $\Psi^*Q\Psi$: all one where sites tell functions apart.

    `waves` are the waves themselves, which are nearly dependent on an open axis by design;
    `measured` are the orthonormal combinations of them that fields are projected on.

    Args:
        windows: The waves.
        coords: The sites.
        weights: Quadrature weights; 0 masks a site.
    """
    functions = [2 * limit + 1 for limit in windows.limits]
    if np.prod(functions) > MAX_FUNCTIONS:
        return {"reason": f"{np.prod(functions):,} waves are too many to take apart"}
    positions = windows.positions(coords.double().unsqueeze(0))[0].double()
    quadrature = weights.double() / weights.double().sum()
    waves = _eigenvalues(positions, quadrature, lambda part: _waves(windows, part))
    measured = _eigenvalues(positions, quadrature, lambda part: _measured(windows, part))
    return {
        "waves": _extremes(waves),
        "measured": {
            **_extremes(measured),
            "fraction_hardly_seen": float((measured < EIGENVALUE_FLOOR).mean()),
        },
    }


def _extremes(eigenvalues: np.ndarray) -> dict[str, float | int]:
    smallest, largest = max(float(eigenvalues[0]), 0.0), float(eigenvalues[-1])
    return {"count": len(eigenvalues), "smallest": smallest, "largest": largest, "smallest_over_largest": smallest / largest}  # fmt: skip


def _eigenvalues(places: Tensor, quadrature: Tensor, functions: Any) -> np.ndarray:
    """Returns the eigenvalues of the Gram matrix of functions at the sites, ascending."""
    gram = 0.0
    for part, q in zip(places.split(CHUNK), quadrature.split(CHUNK), strict=True):
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
