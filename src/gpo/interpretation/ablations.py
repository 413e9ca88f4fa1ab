"""Changes of a prediction when layers, heads, modes, particles or regions are ablated.

Energies show which components are active; ablations show which ones the prediction depends on.
`faithfulness` tests the cheap ranking of modes by energy: if it is right, ablating the first modes
raises the error faster than ablating as many at random.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from gpo.data.geometry import Geometry
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch, Effects
from gpo.interpretation.correlations import spearman
from gpo.interpretation.modes import Component, joint_ablation, make_components, shells
from gpo.model.ablation import Ablation
from gpo.model.operator import GaussianParticleOperator

NUM_WAVES = 32
"""Waves that are ablated individually, those of the highest score."""
MAX_WINDOWS = 256
"""Content windows that are ablated individually; usually all of them."""
NUM_RANDOM = 5
"""Random draws for every number of ablated modes."""
NUM_REGIONS = 64
"""Regions of a geometry that are ablated individually."""
NO_LAYERS = "the model has no layers: there are no modes to switch off"

Track = Callable[[Sequence[Any], str], Iterable[Any]]
"""Iterates over a sequence and shows progress under a label."""


def run_ablations(
    forecaster: Forecaster,
    batches: Sequence[Batch],
    generator: np.random.Generator,
    track: Track = lambda items, _: items,
) -> dict[str, Any]:
    """Returns the effects of all ablations, for `interpret.json`.

    Args:
        forecaster: A trained gpo.
        batches: The examples.
        generator: Draws components at random.
        track: Shows progress.
    """
    if not has_layers(forecaster):
        return {"reason": NO_LAYERS}
    effects, components = Effects.of(forecaster, batches), make_components(forecaster, batches)
    curve = faithfulness(effects, components, generator, track)
    parts = component_effects(effects, components, track)
    scores, changes = (
        np.array([mode[name] for mode in parts["modes"]]) for name in ("score", "relative_l2")
    )
    return {
        **parts,
        "score_against_effect": spearman(scores, changes),
        "regions": region_effects(effects, track),
        "faithfulness": curve,
    }


def has_layers(forecaster: Forecaster) -> bool:
    """Returns whether there is anything to ablate."""
    operator = forecaster.model.operator
    return operator is not None and len(operator.layers) > 0


def component_effects(
    effects: Effects, components: Sequence[Component], track: Track, *, by_layer: bool = True
) -> dict[str, Any]:
    """Returns the effect of ablating every particle, layer, head, shell of waves and strong mode.

    Args:
        effects: The model and its examples.
        components: All of its modes.
        track: Shows progress.
        by_layer: Whether shells are also ablated in every layer separately: it takes the most time.
    """
    model = effects.forecaster.operator
    return {
        "error": effects.error,
        "particles": _particle_effects(effects, model, track),
        "layers": layer_effects(effects, track),
        "heads": _head_effects(effects, model, track),
        "shells": shell_effects(effects, track, by_layer=by_layer),
        "modes": mode_effects(effects, strongest(model, components), track),
        "num_modes": len(components),
    }


def compare_ablations(
    forecaster: Forecaster, other: Forecaster, batches: Sequence[Batch], track: Track
) -> dict[str, Any]:
    """Returns the errors of two runs, and rank correlations between the effects of their ablations.

    Args:
        forecaster: A trained gpo.
        other: A run with the same configuration and another seed.
        batches: Test examples.
        track: Shows progress.
    """
    if not has_layers(forecaster):
        return {"effects": {"reason": "the model has no layers"}}
    model = forecaster.operator
    pair = [Effects.of(run, batches) for run in (forecaster, other)]
    rows = {
        "layers": [layer_effects(effects, track) for effects in pair],
        "regions": [region_effects(effects, track)["effects"] for effects in pair],
    }
    if model.waves is not None:
        rows["shells"] = [shell_effects(effects, track)["all_layers"] for effects in pair]
        # The strongest waves of the first run; the other run has waves of the same names.
        named = [{c.name: c for c in make_components(e.forecaster, batches)} for e in pair]
        names = [component.name for component in strongest(model, list(named[0].values()))]
        rows["modes"] = [
            mode_effects(effects, [by_name[name] for name in names], track)
            for effects, by_name in zip(pair, named, strict=True)
        ]
    correlations: dict[str, float | str | None] = {}
    for name, both in rows.items():
        first, second = (np.array([row["relative_l2"] for row in run]) for run in both)
        correlations[name] = spearman(first, second)
    if "modes" not in rows:
        correlations["modes"] = "content windows of two runs do not correspond"
    return {"errors": [effects.error for effects in pair], "effects": correlations}


def strongest(model: GaussianParticleOperator, components: Sequence[Component]) -> list[Component]:
    """Returns the components that are ablated individually, highest score first."""
    count = MAX_WINDOWS if model.waves is None else NUM_WAVES
    return sorted(components, key=lambda component: -component.score)[:count]


def mode_effects(
    effects: Effects, components: Sequence[Component], track: Track
) -> list[dict[str, Any]]:
    """Returns the effect of ablating each of some modes, in their order."""
    windows: list[list[Tensor]] = []
    if effects.forecaster.operator.waves is None:
        # Content windows of every batch and layer, modes of all heads by points.
        traces = [batch.traced(effects.forecaster) for batch in effects.batches]
        windows = [[w.transpose(2, 3).flatten(1, 2) for w in trace.windows] for trace in traces]
    rows = []
    for component in track(components, "ablating modes"):
        supports = None
        if windows:
            layer, mode = next(iter(component.modes))
            supports = [by_layer[layer][:, mode] for by_layer in windows]
        effect = effects.without(Ablation(component.modes), supports)
        rows.append({"name": component.name, **component.about, "score": component.score, **effect})
    return rows


def layer_effects(effects: Effects, track: Track) -> list[dict[str, Any]]:
    """Returns the effect of ablating each layer."""
    layers = range(len(effects.forecaster.operator.applied_layers))
    return [
        effects.without(Ablation(layers=frozenset({layer})))
        for layer in track(layers, "ablating layers")
    ]


def shell_effects(effects: Effects, track: Track, *, by_layer: bool = True) -> dict[str, Any]:
    """Returns the effect of ablating all waves of one shell |k|, in all layers and in each."""
    model = effects.forecaster.operator
    if model.waves is None:
        return {"reason": "content windows have no wave number"}
    shell_of_mode, all_layers = shells(model.waves), range(len(model.applied_layers))
    occupied = np.unique(shell_of_mode).tolist()
    single = [[layer] for layer in all_layers] if by_layer else []
    jobs = [(layers, shell) for layers in (all_layers, *single) for shell in occupied]
    rows = []
    for layers, shell in track(jobs, "ablating shells of waves"):
        modes = np.flatnonzero(shell_of_mode == shell).tolist()
        rows.append(effects.without(Ablation(frozenset((n, mode) for n in layers for mode in modes))))  # fmt: skip
    count = len(occupied)
    return {
        "wavenumbers": occupied,
        "all_layers": rows[:count],
        "by_layer": [rows[start : start + count] for start in range(count, len(rows), count)],
    }


def region_effects(effects: Effects, track: Track) -> dict[str, Any]:
    """Returns the effect of ablating values and particles of each region.

    Only examples on the sites of the first example are used.
    """
    geometry = effects.batches[0].geometry
    pairs = zip(effects.batches, effects.intact, strict=True)
    used = [(batch, intact) for batch, intact in pairs if batch.geometry is geometry]
    sizes = [len(batch.example.frames) for batch, _ in used]
    effects = Effects(effects.forecaster, [batch for batch, _ in used], [row for _, row in used])
    region_of = patches(geometry)
    rows, centers = [], []
    for region in track(range(int(region_of.max()) + 1), "ablating regions"):
        sites = np.flatnonzero(region_of == region)
        support = torch.from_numpy((region_of == region).astype(np.float32))
        supports = [support.expand(size, -1) for size in sizes]
        rows.append(effects.without(Ablation(sites=frozenset(sites.tolist())), supports))
        centers.append(geometry.coords[sites].mean(0).tolist())
    return {"num_examples": sum(sizes), "centers": centers, "effects": rows}


def patches(geometry: Geometry, count: int = NUM_REGIONS) -> Int[np.ndarray, " points"]:
    """Returns the number of the region that every site belongs to; -1 at masked sites.

    The sites are bisected across their longest side until there are `count` regions.
    """
    positions = geometry.coords
    if geometry.domain.is_sphere and geometry.axes:
        latitude, longitude = (part.ravel() for part in np.meshgrid(*geometry.axes, indexing="ij"))
        shortening = np.cos(np.deg2rad(latitude.mean()))
        positions = np.stack([latitude, longitude * shortening], axis=-1)
    regions = [np.flatnonzero(~geometry.is_masked)]
    while len(regions) < count:
        halves = [half for region in regions for half in _bisected(region, positions[region])]
        if len(halves) == len(regions):
            break
        regions = halves
    region_of = np.full(geometry.num_points, -1)
    for number, region in enumerate(regions):
        region_of[region] = number
    return region_of


def _bisected(sites: np.ndarray, positions: np.ndarray) -> list[np.ndarray]:
    """Splits sites across their longest side, never through a line of a grid."""
    along = positions[:, int(np.ptp(positions, axis=0).argmax())]
    middle = np.sort(along)[len(along) // 2]
    is_first = along < middle if (along < middle).any() else along <= middle
    return [half for half in (sites[is_first], sites[~is_first]) if len(half)]


def faithfulness(
    effects: Effects,
    components: Sequence[Component],
    generator: np.random.Generator,
    track: Track = lambda items, _: items,
) -> dict[str, Any]:
    r"""Returns the error against the number of ablated components.

    `area` is the mean of (error without the first $k$ - error without $k$ at random) over
    $\log_2k$, in units of what ablating everything adds to the error: 0 if the ranking is no better
    than chance, positive if important components come first.

    Args:
        effects: The model and its examples.
        components: All of its modes.
        generator: Draws random components.
        track: Shows progress.
    """
    ranked = sorted(components, key=lambda component: -component.score)
    total = len(components)
    powers = [2**power for power in range(total.bit_length())]
    counts = [0, *(count for count in powers if 1.5 * count <= total), total]
    orders = [generator.permutation(total) for _ in range(NUM_RANDOM)]
    top, random = [], []
    for count in track(counts, "ablating the strongest modes"):
        top.append(effects.error_without(joint_ablation(ranked[:count])))
        if count in (0, total):
            random.append([top[-1]] * NUM_RANDOM)
            continue
        draws = [[components[number] for number in order[:count]] for order in orders]
        random.append([effects.error_without(joint_ablation(draw)) for draw in draws])
    chance = np.array(random)
    return {
        "removed": counts,
        "strongest_first": top,
        "random_mean": chance.mean(1).tolist(),
        "random_low": chance.min(1).tolist(),
        "random_high": chance.max(1).tolist(),
        "num_random": NUM_RANDOM,
        "area": _area(counts[1:], np.array(top) - chance.mean(1), top[-1] - top[0]),
    }


def _area(counts: Sequence[int], gaps: np.ndarray, height: float) -> float | None:
    if len(counts) < 2 or height <= 0:
        return None
    powers = np.log2(counts)
    return float(np.trapezoid(gaps[1:], powers) / (powers[-1] - powers[0]) / height)


def _particle_effects(
    effects: Effects, model: GaussianParticleOperator, track: Track
) -> dict[str, Any]:
    """Returns the effect of ablating all particles, and each; values and coordinates remain."""
    if not model.has_particles:
        return {"reason": "the model has no particles"}
    numbers = range(model.config.num_gaussians)
    choices = [frozenset(numbers), *(frozenset({number}) for number in numbers)]
    together, *each = [
        effects.without(Ablation(gaussians=some)) for some in track(choices, "ablating particles")
    ]
    return {"all": together, "each": each}


def _head_effects(effects: Effects, model: GaussianParticleOperator, track: Track) -> Any:
    """Returns the effect of ablating each head of each layer; waves have none."""
    if model.waves is not None:
        return {"reason": "waves have no heads"}
    count, modes = model.config.num_heads, model.config.num_gaussians
    rows = []
    pairs = [(layer, head) for layer in range(model.config.num_layers) for head in range(count)]
    for layer, head in track(pairs, "ablating heads"):
        numbers = range(head * modes, (head + 1) * modes)
        effect = effects.without(Ablation(frozenset((layer, mode) for mode in numbers)))
        rows.append({"layer": layer, "head": head, **effect})
    return rows
