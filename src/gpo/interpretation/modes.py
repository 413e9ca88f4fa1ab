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
from jaxtyping import Complex, Float, Int
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
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


def describe_content_windows(
    forecaster: Forecaster, batches: Sequence[Batch]
) -> list[dict[str, list[Any]]]:
    """Returns the statistics of content windows, layer by layer, the mean over examples.

    Args:
        forecaster: A trained gpo of the paper's variant.
        batches: The examples.
    """
    model = forecaster.operator
    rows: list[list[dict[str, np.ndarray]]] = []
    for batch in batches:
        trace = batch.traced(forecaster)
        weights = normalised_weights(batch.example.weights, batch.example.target).double()
        coords = batch.example.coords.double()
        rows.append(
            [
                window_statistics(windows.double(), coords, weights, model.problem.domain)
                for windows in trace.windows
            ]
        )
    layers = []
    for number in range(model.config.num_layers):
        parts = [row[number] for row in rows]
        means = {name: np.concatenate([part[name] for part in parts]).mean(0) for name in parts[0]}
        layers.append({name: mean.tolist() for name, mean in means.items()})
    return layers


def window_statistics(
    windows: Float[Tensor, "batch heads points modes"],
    coords: Float[Tensor, "batch points dim"],
    weights: Float[Tensor, "batch points"],
    domain: Domain,
) -> dict[str, np.ndarray]:
    r"""Returns statistics of the windows of a layer, example by example.

    - `coverage`: the mass $\sum_jq_jp_{jg}$ of every mode, one per head in all.
    - `entropy`: of a site's assignment, mean over sites, 1 where it is uniform.
    - `effective_modes`: $e^H$ of the masses of a head: the number of modes of equal mass.
    - `extent`: root mean square distance of a window's mass from its center, over that of the
      whole domain: 1 is everywhere.
    - `overlap_in_head`, `overlap_between_heads`: mean cosine of two different windows.
    - `gram_smallest`: smallest over largest singular value of $\bar A^\top A$, test functions
      against trial functions: 0 where two modes are dependent.

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
    held = (windows * weights[:, None, :, None]).transpose(2, 3).flatten(1, 2)
    extent = spread(held, coords, domain) / spread(weights.unsqueeze(1), coords, domain)
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


def _mean(cosines: Tensor, is_counted: Tensor) -> Tensor:
    """Returns the mean over some pairs of windows; zero where there is no pair."""
    return (cosines * is_counted).sum((1, 2)) / is_counted.sum().clamp_min(1)


def spread(
    mass: Float[Tensor, "batch windows points"],
    coords: Float[Tensor, "batch points dim"],
    domain: Domain,
) -> Float[Tensor, "batch windows"]:
    """Returns the root mean square distance of mass from its center, in minimum images."""
    density = mass / mass.sum(-1, keepdim=True).clamp_min(1e-300)
    offset = domain.offset(
        coords.unsqueeze(1), center_of_mass(density, coords, domain).unsqueeze(2)
    )
    return torch.einsum("bwn,bwnd->bw", density, offset.square()).sqrt()


def center_of_mass(
    density: Float[Tensor, "batch windows points"],
    coords: Float[Tensor, "batch points dim"],
    domain: Domain,
) -> Float[Tensor, "batch windows dim"]:
    """Returns the mean position of mass: the circular mean along periodic axes.

    Args:
        density: Mass at the sites; it sums to one.
        coords: The sites.
        domain: Its periodic axes close; a mean on the sphere is projected back onto it.
    """
    if domain.is_sphere or not any(domain.periodic):
        return domain.wrap(density @ coords)
    angles = 2 * torch.pi * domain.to_unit(coords)
    circular = torch.atan2(density @ angles.sin(), density @ angles.cos()) / (2 * torch.pi)
    straight = density @ domain.to_unit(coords)
    return domain.from_unit(torch.where(torch.tensor(domain.periodic), circular % 1, straight))
