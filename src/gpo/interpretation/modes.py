r"""Modes of a model: the energy of every wave or content window, and how well sites resolve them.

A wave of the geometric variant covers the whole domain and is the same in all layers and for all
fields: the field determines its energy, training its response, and the sites which waves are resolved,
by the Gram matrix $\Psi^*Q\Psi$. A content window of the paper's variant assigns the sites to the modes of
one layer, so it has a mass, an extent and overlaps. The energy of a mode after the filter is a cheap
estimate of its effect on the prediction, which `ablations.py` tests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch, center_of_mass
from gpo.model.ablation import Ablation
from gpo.numerics.domain import Domain
from gpo.numerics.norms import normalised_weights
from gpo.transforms.gram import EIGENVALUE_FLOOR
from gpo.transforms.waves import Waves

CHUNK = 4096
"""Sites that are added to a Gram matrix at a time."""
MAX_FUNCTIONS = 3000
"""Waves up to which the eigenvalues of their Gram matrix are computed."""


@dataclass(frozen=True)
class Component:
    """A mode that can be ablated: a wave in all layers, or a content window of one layer."""

    name: str
    modes: frozenset[tuple[int, int]]
    """Pairs of layer and mode."""
    score: float
    """Energy after the filter."""
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
    """Returns the ablation of all of these components at once."""
    return Ablation(frozenset().union(*(component.modes for component in components)))


def describe_modes(forecaster: Forecaster, batches: Sequence[Batch]) -> dict[str, Any]:
    """Returns statistics of waves or content windows for every layer, for `interpret.json`.

    Args:
        forecaster: A trained gpo.
        batches: The examples.
    """
    operator = forecaster.model.operator
    if operator is None or len(operator.layers) == 0:
        return {"reason": "the model has no layers: there are no windows"}
    if operator.waves is not None:
        return {"kind": "waves", **_describe_waves(forecaster, batches, operator.waves)}
    return {"kind": "content", "layers": _describe_windows(forecaster, batches)}


def _describe_waves(
    forecaster: Forecaster, batches: Sequence[Batch], waves: Waves
) -> dict[str, Any]:
    """Returns energy and response of every wave and layer, and the Gram matrix of the sites."""
    shell_of_mode = shells(waves)
    counts = np.maximum(np.bincount(shell_of_mode), 1)
    layers = []
    for tokens, filtered, response in zip(*wave_energies(forecaster, batches), strict=True):
        energy = filtered / filtered.sum()
        mean_response = np.sqrt(np.bincount(shell_of_mode, response) / counts)
        layers.append(
            {
                "energy_measured": (tokens / tokens.sum()).tolist(),
                "energy_scattered": energy.tolist(),
                "effective_modes": float(np.exp(-np.sum(energy * np.log(energy.clip(1e-300))))),
                "energy_by_shell": np.bincount(shell_of_mode, energy).tolist(),
                "response_by_shell": mean_response.tolist(),
            }
        )
    first = batches[0].example
    return {
        "vectors": waves.vectors.tolist(),
        "axes": axis_names(waves),
        "shells": shell_of_mode.tolist(),
        "layers": layers,
        "extent": "the whole domain: a wave is not localised",
        "gram": gram_numbers(waves, first.coords[0], first.weights[0]),
    }


def wave_energies(
    forecaster: Forecaster, batches: Sequence[Batch]
) -> tuple[
    Float[np.ndarray, "layers modes"],
    Float[np.ndarray, "layers modes"],
    Float[np.ndarray, "layers modes"],
]:
    """Returns the energy of every wave before and after the filter, and its mean squared response."""
    before, after, responses, count = 0.0, 0.0, [], 0
    for batch in batches:
        trace = batch.traced(forecaster)
        assert trace.waves is not None
        multiplicities = trace.waves.multiplicities.double()
        layers = trace.modes
        tokens = torch.stack([modes.tokens for modes in layers]).double().square()
        filtered = torch.stack([modes.fields for modes in layers]).double().square()
        before = before + (multiplicities * tokens.sum((1, 3, 4))).numpy()
        after = after + (multiplicities * filtered.sum((1, 3, 4))).numpy()
        responses = [modes.response.double().square().sum(0).mean(-1).numpy() for modes in layers]
        count += len(batch.example.frames)
    return np.asarray(before) / count, np.asarray(after) / count, np.stack(responses)


def shells(waves: Waves) -> Int[np.ndarray, " modes"]:
    """Returns |k| of every mode, rounded to a whole number of periods per domain length."""
    return (waves.vectors.norm(dim=-1) + 0.5).floor().long().numpy()


def axis_names(waves: Waves) -> list[str]:
    """Returns the names of the axes of wave vectors."""
    if waves.mesh_shape:
        return [f"index {number}" for number in range(len(waves.mesh_shape))]
    if waves.domain.is_sphere:
        return ["latitude", "longitude"]
    return list("xyz")[: len(waves.limits)]


def _modes_by_wave(waves: Waves) -> dict[tuple[float, ...], list[int]]:
    """Returns the modes of every wave: two opposite vectors are the same wave."""
    by_vector: dict[tuple[float, ...], list[int]] = {}
    # Backwards, so that of two opposite vectors the positive one gives the name.
    for mode, vector in reversed(list(enumerate(waves.vectors.tolist()))):
        opposite = tuple(0.0 - component for component in vector)
        by_vector.setdefault(opposite if opposite in by_vector else tuple(vector), []).append(mode)
    return by_vector


def gram_numbers(
    waves: Waves, coords: Float[Tensor, "points dim"], weights: Float[Tensor, " points"]
) -> dict[str, Any]:
    r"""Returns extreme eigenvalues of $\Psi^*Q\Psi$: all one if the sites resolve all functions.

    `waves` are the waves themselves, which are nearly dependent on an open axis by design;
    `measured` are the orthonormal combinations of them onto which fields are projected.

    Args:
        waves: The waves.
        coords: The sites.
        weights: Quadrature weights; 0 masks a site.
    """
    num_functions = np.prod([2 * limit + 1 for limit in waves.limits])
    if num_functions > MAX_FUNCTIONS:
        return {"reason": f"{num_functions:,} waves are too many for an eigenvalue problem"}
    positions = waves.positions(coords.double().unsqueeze(0))[0].double()
    quadrature = weights.double() / weights.double().sum()
    measured = _eigenvalues(positions, quadrature, lambda part: _orthonormal(waves, part))
    return {
        "waves": _extremes(
            _eigenvalues(positions, quadrature, lambda part: _exponentials(waves, part))
        ),
        "measured": {
            **_extremes(measured),
            "fraction_hardly_seen": float((measured < EIGENVALUE_FLOOR).mean()),
        },
    }


def _extremes(eigenvalues: np.ndarray) -> dict[str, float | int]:
    smallest, largest = max(float(eigenvalues[0]), 0.0), float(eigenvalues[-1])
    return {"count": len(eigenvalues), "smallest": smallest, "largest": largest, "smallest_over_largest": smallest / largest}  # fmt: skip


def _eigenvalues(
    positions: Tensor, quadrature: Tensor, functions: Callable[[Tensor], Tensor]
) -> np.ndarray:
    """Returns the eigenvalues of the Gram matrix of functions at the sites, ascending."""
    gram = torch.zeros(())
    for part, q in zip(positions.split(CHUNK), quadrature.split(CHUNK), strict=True):
        values = functions(part)
        gram = gram + values.mH @ (q.unsqueeze(-1) * values)
    return torch.linalg.eigvalsh(gram).numpy()


def _exponentials(
    waves: Waves, positions: Float[Tensor, "points axes"]
) -> Complex[Tensor, "points waves"]:
    vectors = waves.vectors
    # A vector of multiplicity two stands for its opposite, too.
    vectors = torch.cat([vectors, -vectors[waves.multiplicities == 2]])
    return torch.exp(2j * torch.pi * (positions @ vectors.T))


def _orthonormal(
    waves: Waves, positions: Float[Tensor, "points axes"]
) -> Float[Tensor, "points functions"]:
    functions = torch.ones_like(positions[:, :1])
    for axis, basis in enumerate(waves.bases):
        along = basis.at(positions[:, axis])
        functions = (functions.unsqueeze(-1) * along.unsqueeze(-2)).flatten(-2)
    return functions


def _describe_windows(
    forecaster: Forecaster, batches: Sequence[Batch]
) -> list[dict[str, list[Any]]]:
    """Returns the statistics of content windows of every layer, the mean over examples."""
    model = forecaster.operator
    rows: list[list[dict[str, np.ndarray]]] = []
    for batch in batches:
        weights = normalised_weights(batch.example.weights, batch.example.target).double()
        coords, domain = batch.example.coords.double(), model.problem.domain
        layers = batch.traced(forecaster).windows
        rows.append([window_statistics(part.double(), coords, weights, domain) for part in layers])
    return [
        {name: np.concatenate([part[name] for part in parts]).mean(0).tolist() for name in parts[0]}
        for parts in zip(*rows, strict=True)
    ]


def window_statistics(
    windows: Float[Tensor, "batch heads points modes"],
    coords: Float[Tensor, "batch points dim"],
    weights: Float[Tensor, "batch points"],
    domain: Domain,
) -> dict[str, np.ndarray]:
    r"""Returns statistics of the windows of a layer for every example.

    - `coverage`: the mass $\sum_jq_jp_{jg}$ of every mode; it sums to one in every head.
    - `entropy`: of a site's assignment, mean over sites, 1 if it is uniform.
    - `effective_modes`: $e^H$ of the masses of a head: the number of modes of equal mass.
    - `extent`: root mean square distance of a window's mass from its center, over that of the
      whole domain: 1 is everywhere.
    - `overlap_in_head`, `overlap_between_heads`: mean cosine of two different windows.
    - `gram_smallest`: smallest over largest singular value of $\bar A^\top A$, test functions
      against trial functions: 0 if two modes are dependent.

    Args:
        windows: Assignments of sites to modes.
        coords: The sites.
        weights: Quadrature weights, which sum to one.
        domain: Defines distances.
    """
    heads, modes = windows.shape[1], windows.shape[-1]
    mass = torch.einsum("bhnm,bn->bhm", windows, weights)
    per_site = -torch.xlogy(windows, windows).sum(-1)
    entropy = torch.einsum("bhn,bn->bh", per_site, weights) / max(np.log(modes), 1e-12)
    fractions = mass / mass.sum(-1, keepdim=True)
    weighted = (windows * weights[:, None, :, None]).transpose(2, 3).flatten(1, 2)
    extent = spread(weighted, coords, domain) / spread(weights.unsqueeze(1), coords, domain)
    normal = (windows * weights.sqrt()[:, None, :, None]).transpose(2, 3).flatten(1, 2)
    normal = torch.nn.functional.normalize(normal, dim=-1)
    cosines = normal @ normal.mT
    head = torch.arange(heads).repeat_interleave(modes)
    is_same_head = head.unsqueeze(0) == head.unsqueeze(1)
    is_other = ~torch.eye(heads * modes, dtype=torch.bool)
    tests = windows * weights[:, None, :, None] / mass.clamp_min(1e-300).unsqueeze(2)
    singular = torch.linalg.svdvals(tests.mT @ windows)
    statistics = {
        "coverage": mass,
        "entropy": entropy,
        "effective_modes": torch.exp(-torch.xlogy(fractions, fractions).sum(-1)),
        "extent": extent.unflatten(1, (heads, modes)),
        "overlap_in_head": _mean(cosines, is_same_head & is_other),
        "overlap_between_heads": _mean(cosines, ~is_same_head),
        "gram_smallest": singular[..., -1] / singular[..., 0],
    }
    return {name: values.numpy() for name, values in statistics.items()}


def _mean(cosines: Tensor, is_included: Tensor) -> Tensor:
    """Returns the mean over some pairs of windows; zero if there is no pair."""
    return (cosines * is_included).sum((1, 2)) / is_included.sum().clamp_min(1)


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


def spread(
    mass: Float[Tensor, "batch windows points"],
    coords: Float[Tensor, "batch points dim"],
    domain: Domain,
) -> Float[Tensor, "batch windows"]:
    """Returns the root mean square distance of mass from its center, in minimum images."""
    density = mass / mass.sum(-1, keepdim=True).clamp_min(1e-300)
    center = center_of_mass(density, coords, domain)
    offset = domain.offset(coords.unsqueeze(1), center.unsqueeze(2))
    return torch.einsum("bwn,bwnd->bw", density, offset.square()).sqrt()
