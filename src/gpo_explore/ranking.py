"""Importance of the model's parts over the test split: layers, heads, wavenumber shells, modes, particles.

The importance of a part is the relative change of predictions when it is ablated. It is read from the
`interpret.json` that `gpo interpret` writes, or computed on request.
"""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.ablations import NO_LAYERS, component_effects, has_layers
from gpo.interpretation.batches import MAX_SITES, Batch, Effects, make_batches
from gpo.interpretation.modes import Component, make_components, shells
from gpo.interpretation.results import FILE_NAME, Interpretation
from gpo_explore.arrays import Packet
from gpo_explore.requests import RankingRequest
from gpo_explore.saved import mode_name
from gpo_explore.session import AbandonedError, Session

MAX_SECONDS = 60.0
"""Time limit, after which the result is that of a part of the test split, unless all is requested."""
GROUP_SIZE = 16
"""Test examples that are processed together; finished groups are kept if the request is abandoned."""
NUM_SCORED = 32
"""Test examples that select the strongest modes, which are ablated one by one."""
Row = dict[str, Any]
"""kind, name, change, and `off`: the layers, or pairs of layer and mode, that the page can ablate."""


@dataclass
class PartialRanking:
    """Effects of the model's parts in the test examples that are processed so far."""

    forecaster: Forecaster
    components: list[Component]
    order: list[int]
    """Indices of all examples, in the order of processing."""
    num_read: int = 0
    groups: list[tuple[int, float, list[Row]]] = field(default_factory=list)
    """Number of examples in a group, error of the full model, and effects of the parts."""

    @property
    def error(self) -> float:
        """Relative L2 error of the full model."""
        counts, errors, _ = zip(*self.groups, strict=True)
        return float(np.average(errors, weights=counts))

    @property
    def rows(self) -> list[Row]:
        """The parts with their mean effects."""
        counts, _, groups = zip(*self.groups, strict=True)
        means = []
        for rows in zip(*groups, strict=True):
            pairs = [(row["change"], count) for row, count in zip(rows, counts, strict=True)]
            finite = [(change, count) for change, count in pairs if change is not None]
            total = sum(change * count for change, count in finite)
            mean = total / sum(count for _, count in finite) if finite else None
            means.append({**rows[0], "change": mean})
        return means


def ranking(
    session: Session, request: RankingRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns all parts with their effects, the strongest first; else the `reason` why there are none.

    Args:
        session: The run.
        request: Whether to compute effects, and whether without a time limit.
        is_abandoned: Checked before every ablation; the computation is aborted if it returns True.
    """
    if not has_layers(session.forecaster):
        return Packet({}, {"reason": f"{session.model_name}: {NO_LAYERS}.", "can_compute": False})
    if request.computes:
        _process(session, request.is_whole, is_abandoned)
    partial: PartialRanking | None = session.ranking
    if partial is not None and partial.num_read:
        return _packet(session, partial.rows, partial.error, partial.num_read, "computed here")
    return _stored(session) or Packet({}, {"reason": "Not computed yet.", "can_compute": True})


def _stored(session: Session) -> Packet | None:
    """Returns the results of `gpo interpret` in the run folder; None if there are none."""
    path = None if session.folder is None else session.folder / FILE_NAME
    if path is None or not path.exists():
        return None
    stored = Interpretation.load(path)
    if "reason" in stored.ablations:
        return None
    rows = list(_rows(session, stored.ablations))
    return _packet(session, rows, stored.ablations["error"], stored.num_examples, FILE_NAME)


def _process(session: Session, is_whole: bool, is_abandoned: Callable[[], bool]) -> None:
    """Processes the remaining test examples, or as many as the time limit allows."""
    start = time.monotonic()
    if session.ranking is None:
        session.ranking = _new_ranking(session)
    partial: PartialRanking = session.ranking
    total = len(partial.order)

    def track(items: Sequence[Any], description: str) -> Iterator[Any]:
        for number, item in enumerate(items):
            if is_abandoned():
                raise AbandonedError
            text = f"{description}, {number + 1} of {len(items)}; test examples"
            session.progress["ranking"] = (partial.num_read, total, text)
            yield item

    while partial.num_read < total:
        batches = _batches(session, partial.order[partial.num_read :][:GROUP_SIZE])
        effects = Effects.of(partial.forecaster, batches)
        parts = component_effects(effects, partial.components, track, by_layer=False)
        count = sum(len(batch.example.frames) for batch in batches)
        partial.groups.append((count, parts["error"], list(_rows(session, parts))))
        partial.num_read += count
        if not is_whole and time.monotonic() - start > MAX_SECONDS:
            break


def _new_ranking(session: Session) -> PartialRanking:
    with session.lock:
        forecaster = copy.deepcopy(session.forecaster)
    order = bit_reversed_order(len(session.samples))
    components = make_components(forecaster, _batches(session, order[:NUM_SCORED]))
    return PartialRanking(forecaster, components, order)


def _batches(session: Session, numbers: Sequence[int]) -> list[Batch]:
    """Returns test examples by index; fewer if they are large, but at least one."""
    count = max(1, MAX_SITES // session.data.geometry().num_points)
    samples = [session.samples[number] for number in numbers[:count]]
    with session.lock:
        return make_batches(session.data, samples, reconstructs=session.reconstructs)


def bit_reversed_order(count: int) -> list[int]:
    """Returns `range(count)` in bit-reversed order, of which every prefix is spread evenly."""
    num_bits = (count - 1).bit_length()
    reversed_bits = (int(f"{number:0{num_bits}b}"[::-1], 2) for number in range(2**num_bits))
    return [number for number in reversed_bits if number < count]


def _packet(session: Session, rows: list[Row], error: float, num_read: int, source: str) -> Packet:
    metadata = {
        "rows": sorted(
            (row for row in rows if row["change"] is not None), key=lambda row: -row["change"]
        ),
        "error": error,
        "num_read": num_read,
        "num_examples": len(session.samples),
        "source": source,
    }
    return Packet({}, metadata)


def _rows(session: Session, parts: Mapping[str, Any]) -> Iterator[Row]:
    """Yields one row for every part, under the name that the page shows, with numbers from 1."""
    model = session.operator
    all_layers = range(model.config.num_layers)
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
    wavenumbers, vectors = shells(model.waves), np.array(model.waves.vectors.tolist())
    for wavenumber, effect in zip(
        parts["shells"]["wavenumbers"], parts["shells"]["all_layers"], strict=True
    ):
        modes = np.flatnonzero(wavenumbers == wavenumber).tolist()
        pairs = [[layer, mode] for layer in all_layers for mode in modes]
        yield _row("ring", f"shell |k| ≈ {wavenumber}", effect, modes=pairs)
    for effect in parts["modes"]:
        vector = np.array(effect["vector"])
        is_same = np.isclose(vectors, vector).all(1) | np.isclose(vectors, -vector).all(1)
        modes = np.flatnonzero(is_same).tolist()
        pairs = [[layer, mode] for layer in all_layers for mode in modes]
        # Of two opposite wave vectors, the second has the positive sign.
        yield _row("mode", mode_name(session, modes[-1]), effect, modes=pairs)


def _row(kind: str, name: str, effect: Mapping[str, Any], **off: Any) -> Row:
    return {"kind": kind, "name": name, "change": effect["relative_l2"], "off": off or None}
