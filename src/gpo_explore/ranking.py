"""What matters over the test split: layers, heads, rings of waves, modes and particles, by their effect.

The effect of a part is by how much predictions change without it (`gpo interpret`). What
`interpret.json` of the run says is taken; without it, it is computed on request.
"""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpo.data.dataset import Trajectories
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.ablations import NO_LAYERS, has_layers, part_effects
from gpo.interpretation.batches import MAX_SITES, Batch, make_batches
from gpo.interpretation.effects import Effects
from gpo.interpretation.modes import Component, make_components, shells
from gpo.interpretation.results import FILE_NAME, Interpretation
from gpo_explore.arrays import Packet
from gpo_explore.requests import RankingRequest
from gpo_explore.saved import mode_name
from gpo_explore.session import AbandonedError, Session

SECONDS = 60.0
"""After so long the test split is left in part, unless all of it is asked for."""
MAX_GROUP = 16
"""Test examples that are read at a time; what was read stays known when nobody waits any more."""
MAX_SCORED = 32
"""Test examples in which modes are scored; the strongest ones are switched off one by one."""
Row = dict[str, Any]
"""kind, name, change, and `off`: pairs of layer and mode, or layers, where the page can switch it off."""


@dataclass
class ReadSoFar:
    """Effects in the test examples that were read so far."""

    forecaster: Forecaster
    components: list[Component]
    order: list[int]
    """Numbers of all examples, as they are read."""
    num_read: int = 0
    groups: list[tuple[int, float, list[Row]]] = field(default_factory=list)
    """Number of examples that were read together, the error of the model and the effects in them."""

    @property
    def error(self) -> float:
        """Relative L2 of the intact model."""
        counts, errors, _ = zip(*self.groups, strict=True)
        return float(np.average(errors, weights=counts))

    @property
    def rows(self) -> list[Row]:
        """The parts with their mean effects."""
        counts, _, groups = zip(*self.groups, strict=True)
        found = []
        for same in zip(*groups, strict=True):
            pairs = [(row["change"], count) for row, count in zip(same, counts, strict=True)]
            known = [(change, count) for change, count in pairs if change is not None]
            total = sum(change * count for change, count in known)
            mean = total / sum(count for _, count in known) if known else None
            found.append({**same[0], "change": mean})
        return found


def ranking(
    session: Session, request: RankingRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns all parts with their effects, the strongest first; `reason` where they are not known.

    Args:
        session: The run.
        request: Whether to compute what is not known, and whether for all test examples however
            long it takes.
        is_abandoned: Whether nobody waits any more; it then ends after the ablation under way.
    """
    if not has_layers(session.forecaster):
        return Packet({}, {"reason": f"{session.model_name}: {NO_LAYERS}.", "can_compute": False})
    if request.computes:
        _read_more(session, request.is_whole, is_abandoned)
    done: ReadSoFar | None = session.ranking
    if done is not None and done.num_read:
        return _described(session, done.rows, done.error, done.num_read, "computed here")
    return _stored(session) or Packet({}, {"reason": "Not computed yet.", "can_compute": True})


def _stored(session: Session) -> Packet | None:
    """Returns what `gpo interpret` wrote into the run folder; None where it wrote nothing of use."""
    path = None if session.folder is None else session.folder / FILE_NAME
    if path is None or not path.exists():
        return None
    found = Interpretation.load(path)
    if "reason" in found.ablations:
        return None
    rows = list(_rows(session, found.ablations))
    return _described(session, rows, found.ablations["error"], found.num_examples, FILE_NAME)


def _read_more(session: Session, is_whole: bool, is_abandoned: Callable[[], bool]) -> None:
    """Reads the test examples that were not read yet, all of them or as many as time allows."""
    begin = time.monotonic()
    if session.ranking is None:
        session.ranking = _begun(session)
    done: ReadSoFar = session.ranking
    total = len(done.order)

    def track(items: Sequence[Any], what: str) -> Iterator[Any]:
        for number, item in enumerate(items):
            if is_abandoned():
                raise AbandonedError
            text = f"{what}, {number + 1} of {len(items)}; test examples"
            session.progress["ranking"] = (done.num_read, total, text)
            yield item

    while done.num_read < total:
        batches = _batches(session, done.order[done.num_read :][:MAX_GROUP])
        effects = Effects.of(done.forecaster, batches)
        parts = part_effects(effects, done.components, track, by_layer=False)
        count = sum(len(batch.example.frames) for batch in batches)
        done.groups.append((count, parts["error"], list(_rows(session, parts))))
        done.num_read += count
        if not is_whole and time.monotonic() - begin > SECONDS:
            break


def _begun(session: Session) -> ReadSoFar:
    with session.lock:
        forecaster = copy.deepcopy(session.forecaster)
    order = spread_order(len(session.members))
    components = make_components(forecaster, _batches(session, order[:MAX_SCORED]))
    return ReadSoFar(forecaster, components, order)


def _batches(session: Session, numbers: Sequence[int]) -> list[Batch]:
    """Returns test examples of given numbers; of large ones fewer, but at least one."""
    data = session.data
    reconstructs = isinstance(data, Trajectories) and session.forecaster.task.lead == 0
    most = max(1, MAX_SITES // session.data.geometry().num_points)
    members = [session.members[number] for number in numbers[:most]]
    with session.lock:
        return make_batches(data, members, reconstructs=reconstructs)


def spread_order(count: int) -> list[int]:
    """Returns the numbers below `count` in an order of which every beginning is spread evenly."""
    num_bits = (count - 1).bit_length()
    mirrored = (int(f"{number:0{num_bits}b}"[::-1], 2) for number in range(2**num_bits))
    return [number for number in mirrored if number < count]


def _described(
    session: Session, rows: list[Row], error: float, num_read: int, source: str
) -> Packet:
    metadata = {
        "rows": sorted(
            (row for row in rows if row["change"] is not None), key=lambda row: -row["change"]
        ),
        "error": error,
        "num_read": num_read,
        "num_examples": len(session.members),
        "source": source,
    }
    return Packet({}, metadata)


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
    if model.waves is None:
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
