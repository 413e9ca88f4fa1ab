"""Does a cheap ranking of modes tell which ones matter? Those it puts first are switched off.

If the ranking is faithful, the error rises faster than when as many are chosen at random.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gpo.evaluate.interpret.effects import Effects
from gpo.evaluate.interpret.parts import Part, together

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
