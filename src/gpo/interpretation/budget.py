r"""Where a predicted change comes from: transport, gates, and what the decoder makes of the input alone.

With $\hat u_S$ the prediction with the parts $S$ only, lift and decoder included, and $u$ the last
frame, the change is $\hat u-u=(\hat u_\emptyset-u)+(\hat u-\hat u_\emptyset)$: the first is that of the
decoder, the second is what transports and gates do. What each of those does depends on what the
others did before; the mean over every order in which parts may be added is Shapley's, and adds up to
the whole. Particles keep the displacements of the intact model in every order.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.displacing import Read, replaced_by, start_of
from gpo.model.ablation import Ablation
from gpo.numerics.norms import normalised_weights

MAX_PARTS = 6
"""Parts of which every order is tried: a prediction for each of 64 sets."""
SPREADING = "particles of this variant have no learned scale: there is no spreading"


def describe_budget(
    forecaster: Forecaster, batches: Sequence[Batch], reads: Sequence[Read]
) -> dict[str, Any]:
    r"""Returns the parts of the predicted change, for `interpret.json`.

    `share` is $\|\hat u-\hat u_{\setminus i}\|/\|\hat u-u\|$, what is lost where a part alone is held still.
    `shapley` is the mean over all orders of what a part adds, by its component along the whole
    change: these add up to one. Variables count in units of their standard deviation.

    Args:
        forecaster: A trained gpo whose particles move.
        batches: The examples.
        reads: The displacements of the intact model in every batch.
    """
    layers = sorted(reads[0])
    named = [("transport" if len(layers) == 1 else f"transport {n + 1}") for n in layers]
    parts = [*named, "gate"]
    shares = {name: [] for name in (*parts, "decoder")}
    means = {name: [] for name in shares}
    for batch, read in zip(batches, reads, strict=True):
        found = _parts_of(forecaster, batch, read, layers)
        for name, (lost, mean) in zip(shares, found, strict=True):
            shares[name] += lost
            means[name] += mean or []
    rows: dict[str, Any] = {}
    for name in shares:
        rows[name] = {"share": _mean(shares[name]), "shapley": _mean(means[name])}
    return {"parts": rows, "spreading": {"reason": SPREADING}}


def _parts_of(
    forecaster: Forecaster, batch: Batch, read: Read, layers: Sequence[int]
) -> list[tuple[list[float], list[float] | None]]:
    """Returns share and Shapley's mean of every part, the decoder last, example by example."""
    numbers = range(len(layers) + 1)
    everything = frozenset(numbers)
    chosen = {frozenset(), everything, *(everything - {number} for number in numbers)}
    has_orders = len(numbers) <= MAX_PARTS
    if has_orders:
        chosen = {frozenset(some) for size in range(len(numbers) + 1) for some in itertools.combinations(numbers, size)}  # fmt: skip
    made = {some: _with_parts(forecaster, batch, read, layers, some) for some in chosen}
    start = start_of(forecaster, batch)
    scale = forecaster.output_std
    change = (made[everything] - start) / scale
    by_decoder = (made[frozenset()] - start) / scale
    weights = normalised_weights(batch.example.weights, change)

    def along(part: Float[Tensor, "batch points outputs"]) -> list[float]:
        return (_inner(part, change, weights) / _inner(change, change, weights)).tolist()

    def size(part: Float[Tensor, "batch points outputs"]) -> list[float]:
        sizes = _inner(part, part, weights) / _inner(change, change, weights)
        return sizes.sqrt().tolist()

    rows = []
    for number in numbers:
        lost = size((made[everything] - made[everything - {number}]) / scale)
        mean = along(shapley(made, number) / scale) if has_orders else None
        rows.append((lost, mean))
    return [*rows, (size(by_decoder), along(by_decoder) if has_orders else None)]


def shapley(made: dict[frozenset[int], Tensor], part: int) -> Float[Tensor, "batch points outputs"]:
    """Returns what a part adds, the mean over every order in which all parts may be added.

    Args:
        made: What comes out with every set of parts.
        part: One of them.
    """
    most = max(map(len, made))
    total = torch.zeros_like(made[frozenset()])
    for some, answer in made.items():
        if part in some:
            before = len(some) - 1
            orders = math.factorial(before) * math.factorial(most - before - 1)
            total += orders / math.factorial(most) * (answer - made[some - {part}])
    return total


def _with_parts(
    forecaster: Forecaster,
    batch: Batch,
    read: Read,
    layers: Sequence[int],
    parts: frozenset[int],
) -> Tensor:
    """Returns the prediction with some transports, and with gates where the last part is among them."""
    used = {
        layer: read[layer] if number in parts else torch.zeros_like(read[layer])
        for number, layer in enumerate(layers)
    }
    gates = (
        frozenset()
        if len(layers) in parts
        else frozenset(range(len(forecaster.operator.applied_layers)))
    )
    ablation = Ablation(gates=gates, displacing=replaced_by(used))
    return batch.predicted(forecaster, ablation).double()


def _inner(first: Tensor, second: Tensor, weights: Tensor) -> Float[Tensor, " batch"]:
    return torch.einsum("bnc,bnc,bn->b", first, second, weights.to(first))


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None
