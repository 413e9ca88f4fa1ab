"""Does a mode cause anything? Parts are switched off, and what changes is written down.

Energy, mass and maps show what is there; only what changes when it is gone was used.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from gpo.data.geometry import Geometry
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.components import Part, make_parts, together
from gpo.interpretation.effects import Effects
from gpo.interpretation.null import spearman
from gpo.interpretation.waves import shells
from gpo.model.ablation import Ablation
from gpo.model.geometric import GeometricLayers
from gpo.model.operator import GaussianParticleOperator
from gpo.model.paper import Stage

NUM_WAVES = 32
"""Waves that are switched off one by one, those of the highest score."""
MAX_WINDOWS = 256
"""The same for content windows; mostly all there are."""
NUM_REGIONS = 64
"""Patches of sites that are switched off one by one."""

Track = Callable[[Sequence[Any], str], Iterable[Any]]
"""Goes through a sequence and shows how far."""


def read_causes(
    forecaster: Forecaster,
    batches: Sequence[Batch],
    generator: np.random.Generator,
    track: Track = lambda items, _: items,
) -> dict[str, Any]:
    """Returns what every part causes, for `interpret.json`.

    Args:
        forecaster: A trained gpo.
        batches: The examples.
        generator: Draws parts at random.
        track: Shows progress.
    """
    model = forecaster.model
    if not isinstance(model, GaussianParticleOperator) or model.config.num_layers == 0:
        return {"reason": "the model has no layers: there are no modes to switch off"}
    effects, parts = Effects.of(forecaster, batches), make_parts(forecaster, batches)
    curve = faithfulness(effects, parts, generator, track)
    modes = mode_effects(effects, strongest(model, parts), track)
    scores, changes = (
        np.array([mode[name] for mode in modes]) for name in ("score", "relative_l2")
    )
    return {
        "error": effects.error,
        "particles": _particles(effects, model),
        "layers": layer_effects(effects, track),
        "heads": _heads(effects, model, track),
        "shells": shell_effects(effects, track),
        "modes": modes,
        "num_modes": len(parts),
        "score_against_effect": spearman(scores, changes),
        "regions": region_effects(effects, track),
        "faithfulness": curve,
    }


def strongest(model: GaussianParticleOperator, parts: Sequence[Part]) -> list[Part]:
    """Returns the parts that are worth switching off one by one, highest score first."""
    most = NUM_WAVES if isinstance(model.layers, GeometricLayers) else MAX_WINDOWS
    return sorted(parts, key=lambda part: -part.score)[:most]


def mode_effects(effects: Effects, parts: Sequence[Part], track: Track) -> list[dict[str, Any]]:
    """Returns what every one of some modes causes, in their order."""
    windows = _windows(effects)
    rows = []
    for part in track(parts, "silencing modes"):
        supports = None
        if windows:
            layer, mode = next(iter(part.modes))
            supports = [some[layer][:, mode] for some in windows]
        effect = effects.without(Ablation(part.modes), supports)
        rows.append({"name": part.name, **part.about, "score": part.score, **effect})
    return rows


def layer_effects(effects: Effects, track: Track) -> list[dict[str, Any]]:
    """Returns what every layer causes."""
    model = effects.forecaster.model
    assert isinstance(model, GaussianParticleOperator)
    numbers = range(model.config.num_layers)
    return [
        effects.without(Ablation(layers=frozenset({number})))
        for number in track(numbers, "silencing layers")
    ]


def shell_effects(effects: Effects, track: Track) -> dict[str, Any]:
    """Returns what all waves of about one length cause, in all layers and in each."""
    model = effects.forecaster.model
    assert isinstance(model, GaussianParticleOperator)
    if not isinstance(model.layers, GeometricLayers):
        return {"reason": "content windows have no wave number"}
    numbers, every = shells(model.layers.windows), range(model.config.num_layers)
    filled = np.unique(numbers).tolist()
    jobs = [(layers, shell) for layers in (every, *([n] for n in every)) for shell in filled]
    rows = []
    for layers, shell in track(jobs, "silencing shells of waves"):
        modes = np.flatnonzero(numbers == shell).tolist()
        silent = frozenset((layer, mode) for layer in layers for mode in modes)
        rows.append(effects.without(Ablation(silent)))
    count = len(filled)
    return {
        "wavenumbers": filled,
        "all_layers": rows[:count],
        "by_layer": [rows[start : start + count] for start in range(count, len(rows), count)],
    }


def region_effects(effects: Effects, track: Track) -> dict[str, Any]:
    """Returns what the values and particles of every patch of sites cause, where sites are shared."""
    geometry = effects.batches[0].geometry
    pairs = zip(effects.batches, effects.intact, strict=True)
    chosen = [(batch, intact) for batch, intact in pairs if batch.geometry is geometry]
    shared = [batch for batch, _ in chosen]
    effects = Effects(effects.forecaster, shared, [intact for _, intact in chosen])
    number_of = patches(geometry)
    rows, centers = [], []
    for number in track(range(int(number_of.max()) + 1), "silencing regions"):
        sites = np.flatnonzero(number_of == number)
        inside = torch.from_numpy((number_of == number).astype(np.float32))
        supports = [inside.expand(len(batch.example.frames), -1) for batch in shared]
        rows.append(effects.without(Ablation(sites=frozenset(sites.tolist())), supports))
        centers.append(geometry.coords[sites].mean(0).tolist())
    examples = sum(len(batch.example.frames) for batch in shared)
    return {"num_examples": examples, "centers": centers, "effects": rows}


def patches(geometry: Geometry, count: int = NUM_REGIONS) -> Int[np.ndarray, " points"]:
    """Returns the number of the patch that every site belongs to; -1 at masked sites.

    The sites are cut in halves, across the longest side, until there are `count` patches.
    """
    places = geometry.coords
    if geometry.domain.is_sphere and geometry.axes:
        up, along = (part.ravel() for part in np.meshgrid(*geometry.axes, indexing="ij"))
        places = np.stack([up, along * np.cos(np.deg2rad(up.mean()))], axis=-1)
    pieces = [np.flatnonzero(~geometry.is_masked)]
    while len(pieces) < count:
        halves = [half for piece in pieces for half in _halves(piece, places[piece])]
        if len(halves) == len(pieces):
            break
        pieces = halves
    number_of = np.full(geometry.num_points, -1)
    for number, piece in enumerate(pieces):
        number_of[piece] = number
    return number_of


def _halves(piece: np.ndarray, places: np.ndarray) -> list[np.ndarray]:
    """Cuts sites across their longest side, never through a line of a grid."""
    along = places[:, int(np.ptp(places, axis=0).argmax())]
    middle = np.sort(along)[len(along) // 2]
    is_first = along < middle if (along < middle).any() else along <= middle
    return [half for half in (piece[is_first], piece[~is_first]) if len(half)]


def _particles(effects: Effects, model: GaussianParticleOperator) -> dict[str, Any]:
    """Returns what the Gaussians cause, all of them and each; values and places are left."""
    numbers = range(model.config.num_gaussians)
    return {
        "all": effects.without(Ablation(gaussians=frozenset(numbers))),
        "each": [effects.without(Ablation(gaussians=frozenset({number}))) for number in numbers],
    }


def _heads(effects: Effects, model: GaussianParticleOperator, track: Track) -> Any:
    if isinstance(model.layers, GeometricLayers):
        return {"reason": "waves have no heads"}
    count, modes = model.config.num_heads, model.config.num_modes
    rows = []
    pairs = [(layer, head) for layer in range(model.config.num_layers) for head in range(count)]
    for layer, head in track(pairs, "silencing heads"):
        mine = range(head * modes, (head + 1) * modes)
        effect = effects.without(Ablation(frozenset((layer, mode) for mode in mine)))
        rows.append({"layer": layer, "head": head, **effect})
    return rows


def _windows(effects: Effects) -> list[list[Tensor]]:
    """Returns the content windows of every batch and layer, modes of all heads by points."""
    rows = []
    for batch in effects.batches:
        stages = batch.traced(effects.forecaster).stages
        content = [stage.windows for stage in stages if isinstance(stage, Stage)]
        rows.append([windows.transpose(2, 3).flatten(1, 2) for windows in content])
    return rows if rows[0] else []


# >>> """Does a cheap ranking of modes tell which ones matter? Those it puts first are switched off.
#
# If the ranking is faithful, the error rises faster than when as many are chosen at random.
# """

NUM_RANDOM = 5
"""Random choices of every size."""


def faithfulness(
    effects: Effects,
    parts: Sequence[Part],
    generator: np.random.Generator,
    track: Callable[[Sequence[Any], str], Iterable[Any]] = lambda items, _: items,
) -> dict[str, Any]:
    r"""Returns the error against the number of parts that are switched off.

    `area` is the mean of (error without the first $k$ - error without $k$ at random) over
    $\log_2k$, in units of what switching everything off adds to the error: 0 where the ranking
    knows nothing, above 0 where it puts first what matters.

    Args:
        effects: The model and its examples.
        parts: All of its modes.
        generator: Draws random choices.
        track: Shows progress.
    """
    ranked = sorted(parts, key=lambda part: -part.score)
    powers = [2**power for power in range(len(parts).bit_length())]
    counts = [0, *(count for count in powers if 1.5 * count <= len(parts)), len(parts)]
    draws = [generator.permutation(len(parts)) for _ in range(NUM_RANDOM)]
    top, random = [], []
    for count in track(counts, "silencing the strongest"):
        top.append(effects.error_without(together(ranked[:count])))
        if count in (0, len(parts)):
            random.append([top[-1]] * NUM_RANDOM)
            continue
        chosen = [[parts[number] for number in order[:count]] for order in draws]
        random.append([effects.error_without(together(some)) for some in chosen])
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
    places = np.log2(counts)
    return float(np.trapezoid(gaps[1:], places) / (places[-1] - places[0]) / height)
