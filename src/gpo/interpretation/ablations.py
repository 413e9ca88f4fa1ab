"""What changes in a prediction when layers, heads, modes, particles or regions are ablated.

Energies and maps show what is there; only what changes when it is gone was used. `faithfulness`
tests the cheap ranking of modes by energy: if it is right, ablating the first modes raises the error
faster than ablating as many at random.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.components import Component, joint_ablation, make_components, shells
from gpo.interpretation.effects import Effects
from gpo.interpretation.null import spearman
from gpo.interpretation.regions import patches
from gpo.model.ablation import Ablation
from gpo.model.operator import GaussianParticleOperator

NUM_WAVES = 32
"""Waves that are ablated one by one, those of the highest score."""
MAX_WINDOWS = 256
"""Content windows that are ablated one by one; mostly all there are."""
NUM_RANDOM = 5
"""Random choices of every size beside the strongest modes."""
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
    parts = part_effects(effects, components, track)
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


def part_effects(
    effects: Effects, components: Sequence[Component], track: Track, *, by_layer: bool = True
) -> dict[str, Any]:
    """Returns the effect of ablating every particle, layer, head, shell of waves and strong mode.

    Args:
        effects: The model and its examples.
        components: All of its modes.
        track: Shows progress.
        by_layer: Whether shells are ablated in every layer alone, too: it takes the most time.
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
        other: Another run of the same configuration but seed.
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
        # The strongest waves of the first run; the other has the same waves by name.
        names = [part.name for part in strongest(model, make_components(forecaster, batches))]
        rows["modes"] = [mode_effects(effects, _named(effects, names), track) for effects in pair]
    correlations: dict[str, float | str | None] = {}
    for name, both in rows.items():
        first, second = (np.array([row["relative_l2"] for row in some]) for some in both)
        correlations[name] = spearman(first, second)
    if "modes" not in rows:
        correlations["modes"] = "content windows of two runs do not correspond"
    return {"errors": [effects.error for effects in pair], "effects": correlations}


def strongest(model: GaussianParticleOperator, components: Sequence[Component]) -> list[Component]:
    """Returns the components to ablate one by one, highest score first."""
    most = MAX_WINDOWS if model.waves is None else NUM_WAVES
    return sorted(components, key=lambda component: -component.score)[:most]


def mode_effects(
    effects: Effects, components: Sequence[Component], track: Track
) -> list[dict[str, Any]]:
    """Returns the effect of ablating each of some modes, in their order."""
    windows = _content_windows(effects)
    rows = []
    for component in track(components, "ablating modes"):
        supports = None
        if windows:
            layer, mode = next(iter(component.modes))
            supports = [some[layer][:, mode] for some in windows]
        effect = effects.without(Ablation(component.modes), supports)
        rows.append({"name": component.name, **component.about, "score": component.score, **effect})
    return rows


def layer_effects(effects: Effects, track: Track) -> list[dict[str, Any]]:
    """Returns the effect of ablating each layer."""
    numbers = range(len(effects.forecaster.operator.applied_layers))
    return [
        effects.without(Ablation(layers=frozenset({number})))
        for number in track(numbers, "ablating layers")
    ]


def shell_effects(effects: Effects, track: Track, *, by_layer: bool = True) -> dict[str, Any]:
    """Returns the effect of ablating all waves of about one length, in all layers and in each."""
    model = effects.forecaster.operator
    if model.waves is None:
        return {"reason": "content windows have no wave number"}
    numbers, every = shells(model.waves), range(len(model.applied_layers))
    filled = np.unique(numbers).tolist()
    alone = [[number] for number in every] if by_layer else []
    jobs = [(layers, shell) for layers in (every, *alone) for shell in filled]
    rows = []
    for layers, shell in track(jobs, "ablating shells of waves"):
        modes = np.flatnonzero(numbers == shell).tolist()
        ablated = frozenset((layer, mode) for layer in layers for mode in modes)
        rows.append(effects.without(Ablation(ablated)))
    count = len(filled)
    return {
        "wavenumbers": filled,
        "all_layers": rows[:count],
        "by_layer": [rows[start : start + count] for start in range(count, len(rows), count)],
    }


def region_effects(effects: Effects, track: Track) -> dict[str, Any]:
    """Returns the effect of ablating values and particles of each patch of sites.

    Examples count that have the sites of the first one.
    """
    geometry = effects.batches[0].geometry
    pairs = zip(effects.batches, effects.intact, strict=True)
    chosen = [(batch, intact) for batch, intact in pairs if batch.geometry is geometry]
    shared = [batch for batch, _ in chosen]
    effects = Effects(effects.forecaster, shared, [intact for _, intact in chosen])
    number_of = patches(geometry)
    rows, centers = [], []
    for number in track(range(int(number_of.max()) + 1), "ablating regions"):
        sites = np.flatnonzero(number_of == number)
        support = torch.from_numpy((number_of == number).astype(np.float32))
        supports = [support.expand(len(batch.example.frames), -1) for batch in shared]
        rows.append(effects.without(Ablation(sites=frozenset(sites.tolist())), supports))
        centers.append(geometry.coords[sites].mean(0).tolist())
    examples = sum(len(batch.example.frames) for batch in shared)
    return {"num_examples": examples, "centers": centers, "effects": rows}


def faithfulness(
    effects: Effects,
    components: Sequence[Component],
    generator: np.random.Generator,
    track: Track = lambda items, _: items,
) -> dict[str, Any]:
    r"""Returns the error against the number of ablated components.

    `area` is the mean of (error without the first $k$ - error without $k$ at random) over
    $\log_2k$, in units of what ablating everything adds to the error: 0 where the ranking is no
    better than chance, above 0 where it puts first what matters.

    Args:
        effects: The model and its examples.
        components: All of its modes.
        generator: Draws random choices.
        track: Shows progress.
    """
    ranked = sorted(components, key=lambda component: -component.score)
    total = len(components)
    powers = [2**power for power in range(total.bit_length())]
    counts = [0, *(count for count in powers if 1.5 * count <= total), total]
    draws = [generator.permutation(total) for _ in range(NUM_RANDOM)]
    top, random = [], []
    for count in track(counts, "ablating the strongest modes"):
        top.append(effects.error_without(joint_ablation(ranked[:count])))
        if count in (0, total):
            random.append([top[-1]] * NUM_RANDOM)
            continue
        chosen = [[components[number] for number in order[:count]] for order in draws]
        random.append([effects.error_without(joint_ablation(some)) for some in chosen])
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
    """Returns the effect of ablating all particles, and each; values and coordinates remain.

    Where particles move, they bring nothing: every site sees itself.
    """
    if not model.has_particles:
        return {"reason": "the model has no particles"}
    numbers = range(model.config.num_gaussians)
    choices = [frozenset(numbers), *(frozenset({number}) for number in numbers)]
    every, *each = [
        effects.without(Ablation(gaussians=some)) for some in track(choices, "ablating particles")
    ]
    return {"all": every, "each": each}


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


def _content_windows(effects: Effects) -> list[list[Tensor]]:
    """Returns the content windows of every batch and layer, modes of all heads by points."""
    rows = []
    for batch in effects.batches:
        content = batch.traced(effects.forecaster).windows
        rows.append([windows.transpose(2, 3).flatten(1, 2) for windows in content])
    return rows if rows[0] else []


def _named(effects: Effects, names: Sequence[str]) -> list[Component]:
    components = make_components(effects.forecaster, effects.batches)
    by_name = {component.name: component for component in components}
    return [by_name[name] for name in names]
