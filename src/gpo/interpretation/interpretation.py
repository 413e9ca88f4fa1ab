"""All numbers of `gpo interpret`, as `interpret.json`."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.splits import evenly
from gpo.files import write_text
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.ablations import read_causes
from gpo.interpretation.batches import make_batches
from gpo.interpretation.stability import half_resolution, other_data, other_seed
from gpo.interpretation.structures import read_structures
from gpo.interpretation.windows import read_windows

FILE_NAME = "interpret.json"
NUM_COMPARED = 32
"""Examples whose particles are compared with those of other data: these are cheap."""


@dataclass(frozen=True)
class Interpretation:
    """What can be said about a trained gpo; docs/interpret.md says what follows from it."""

    variant: str
    """geometric or paper."""
    num_examples: int
    """Test examples that were looked at."""
    structures: dict[str, Any]
    """Do particles sit on structures?"""
    windows: dict[str, Any]
    """Are windows used?"""
    causes: dict[str, Any]
    """What changes when parts are switched off?"""
    stability: dict[str, Any] = field(default_factory=dict)
    """Is it the same on other data, at half resolution, with another seed?"""

    def save(self, folder: Path) -> Path:
        """Writes `interpret.json`; numbers that are not finite become null."""
        path = folder / FILE_NAME
        write_text(path, json.dumps(_plain(asdict(self)), indent=1, allow_nan=False) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> "Interpretation":
        """Returns what `save` wrote."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: must be what gpo interpret wrote, got {error}. Make it again: gpo "
                f"interpret {path.parent}"
            ) from error


def interpret(
    forecaster: Forecaster,
    data: Trajectories | StaticMaps,
    members: Sequence[Any],
    *,
    num_examples: int = 8,
    other: tuple[Trajectories | StaticMaps, Sequence[Any]] | None = None,
    same: Mapping[str, Forecaster] | None = None,
    seed: int = 0,
    track: Callable[[Sequence[Any], str], Iterable[Any]] = lambda items, _: items,
) -> Interpretation:
    """Returns what can be said about a trained gpo.

    Args:
        forecaster: The trained model.
        data: What it was trained on.
        members: Its test split.
        num_examples: How many of these are looked at, evenly chosen.
        other: Other data of the same variables, and the examples of it.
        same: Runs of the same configuration but seed, by name.
        seed: Of all that is drawn; the same seed gives the same numbers.
        track: Shows progress.
    """
    if num_examples < 1:
        raise ValueError(f"`num_examples` must be at least 1, got {num_examples}.")
    forecaster.eval()
    reconstructs = isinstance(data, Trajectories) and forecaster.task.lead == 0
    chosen = evenly(members, num_examples)
    batches = make_batches(data, chosen, reconstructs=reconstructs)
    generator = np.random.default_rng(seed)
    stability: dict[str, Any] = {
        "half_resolution": half_resolution(forecaster, data, chosen, reconstructs=reconstructs)
    }
    if other is not None:
        most = max(num_examples, NUM_COMPARED)
        pair = (
            make_batches(some, evenly(all_of, most), reconstructs=reconstructs)
            for some, all_of in ((data, members), other)
        )
        stability["other_data"] = other_data(forecaster, *pair)
    if same:
        stability["other_seeds"] = {
            name: other_seed(forecaster, one.eval(), batches, track) for name, one in same.items()
        }
    return Interpretation(
        forecaster.model.config.variant,  # type: ignore[union-attr]
        len(chosen),
        read_structures(forecaster, batches, generator),
        read_windows(forecaster, batches),
        read_causes(forecaster, batches, generator, track),
        stability,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
