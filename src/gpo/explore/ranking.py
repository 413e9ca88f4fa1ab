"""What matters over the test split: layers, heads, rings of waves, modes and particles, by their effect.

The effect of a part is by how much predictions change without it (`gpo interpret`). What
`interpret.json` of the run says is taken; without it, it is computed on request.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gpo.data.dataset import Trajectories
from gpo.data.splits import evenly
from gpo.explore.arrays import Packet
from gpo.explore.requests import RankingRequest
from gpo.explore.saved import mode_name
from gpo.explore.session import AbandonedError, Session
from gpo.interpretation.ablations import NO_LAYERS, has_layers, part_effects
from gpo.interpretation.batches import make_batches
from gpo.interpretation.components import make_components, shells
from gpo.interpretation.effects import Effects
from gpo.interpretation.results import FILE_NAME, Interpretation
from gpo.model.config import PaperConfig

MAX_READ = 32
"""Test examples that are read; of more, evenly spaced ones."""
Row = dict[str, Any]
"""kind, name, change, and `off`: pairs of layer and mode, or layers, where the page can switch it off."""


def ranking(
    session: Session, request: RankingRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns all parts with their effects, the strongest first; `reason` where they are not known.

    Args:
        session: The run.
        request: Whether to compute what is not known.
        is_abandoned: Whether nobody waits any more; it then ends after the ablation under way.
    """
    if not has_layers(session.forecaster):
        return Packet({}, {"reason": f"{session.model_name}: {NO_LAYERS}.", "can_compute": False})
    if session.ranking is None and request.computes:
        session.ranking = _computed(session, is_abandoned)
    found = session.ranking or _stored(session)
    if found is None:
        return Packet({}, {"reason": "Not computed yet.", "can_compute": True})
    return Packet({}, found)


def _stored(session: Session) -> dict[str, Any] | None:
    """Returns what `gpo interpret` wrote into the run folder; None where it wrote nothing of use."""
    path = None if session.folder is None else session.folder / FILE_NAME
    if path is None or not path.exists():
        return None
    found = Interpretation.load(path)
    if "reason" in found.ablations:
        return None
    return _described(session, found.ablations, found.num_examples, FILE_NAME)


def _computed(session: Session, is_abandoned: Callable[[], bool]) -> dict[str, Any]:
    def track(items: Sequence[Any], what: str) -> Iterator[Any]:
        for done, item in enumerate(items):
            if is_abandoned():
                raise AbandonedError
            session.progress["ranking"] = (done, len(items), what)
            yield item

    data = session.data
    reconstructs = isinstance(data, Trajectories) and session.forecaster.task.lead == 0
    members = evenly(session.members, MAX_READ)
    with session.lock:
        forecaster = copy.deepcopy(session.forecaster)
        batches = make_batches(data, members, reconstructs=reconstructs)
    effects = Effects.of(forecaster, batches)
    components = make_components(forecaster, batches)
    parts = part_effects(effects, components, track, by_layer=False)
    return _described(session, parts, len(members), "computed here")


def _described(
    session: Session, parts: Mapping[str, Any], num_examples: int, source: str
) -> dict[str, Any]:
    rows = [row for row in _rows(session, parts) if row["change"] is not None]
    return {
        "rows": sorted(rows, key=lambda row: -row["change"]),
        "error": parts["error"],
        "num_read": num_examples,
        "num_examples": len(session.members),
        "num_modes": parts["num_modes"],
        "source": source,
    }


def _rows(session: Session, parts: Mapping[str, Any]) -> Iterable[Row]:
    """Returns one row for every part, as the page names it: all numbers count from 1."""
    model = session.operator
    every = range(model.config.num_layers)
    for layer, effect in enumerate(parts["layers"]):
        yield _row("layer", f"layer {layer + 1}", effect, layers=[layer])
    if "each" in parts["particles"]:
        yield _row("particle", "all particles", parts["particles"]["all"])
        for number, effect in enumerate(parts["particles"]["each"]):
            yield _row("particle", f"particle {number + 1}", effect)
    if isinstance(model.config, PaperConfig):
        count = model.config.num_gaussians
        for effect in parts["heads"]:
            layer, head = effect["layer"], effect["head"]
            modes = [[layer, head * count + mode] for mode in range(count)]
            yield _row("head", f"layer {layer + 1}, head {head + 1}", effect, modes=modes)
        for effect in parts["modes"]:
            pair = [effect["layer"], effect["head"] * count + effect["mode"]]
            yield _row("mode", effect["name"], effect, modes=[pair])
        return
    assert model.waves is not None
    rings, vectors = shells(model.waves), np.array(model.waves.vectors.tolist())
    for ring, effect in zip(
        parts["shells"]["wavenumbers"], parts["shells"]["all_layers"], strict=True
    ):
        modes = np.flatnonzero(rings == ring).tolist()
        pairs = [[layer, mode] for layer in every for mode in modes]
        yield _row("ring", f"ring |k| ≈ {ring}", effect, modes=pairs)
    for effect in parts["modes"]:
        vector = np.array(effect["vector"])
        is_same = np.isclose(vectors, vector).all(1) | np.isclose(vectors, -vector).all(1)
        modes = np.flatnonzero(is_same).tolist()
        pairs = [[layer, mode] for layer in every for mode in modes]
        # Of two opposite vectors the later one is positive.
        yield _row("mode", mode_name(session, modes[-1]), effect, modes=pairs)


def _row(kind: str, name: str, effect: Mapping[str, Any], **off: Any) -> Row:
    return {"kind": kind, "name": name, "change": effect["relative_l2"], "off": off or None}
