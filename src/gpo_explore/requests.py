"""The requests of the page: each is validated here, and nowhere else."""

import json
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from gpo.model.ablation import Ablation

LARGEST = 2**31 - 1
"""Upper bound of the numbers of examples, modes and sites."""
MAX_POINTS = 64
"""Points that are followed at a time."""


@dataclass(frozen=True, kw_only=True)
class ExampleRequest:
    """A request about one example of the test split."""

    example: int = 0


@dataclass(frozen=True, kw_only=True)
class AblationRequest(ExampleRequest):
    """A request about one example, with components of the model switched off."""

    ablation: Ablation = field(default=Ablation())


@dataclass(frozen=True, kw_only=True)
class WindowRequest(ExampleRequest):
    """A request for one window of a layer; modes count through all heads."""

    layer: int
    mode: int


@dataclass(frozen=True, kw_only=True)
class VariableRequest(AblationRequest):
    """A request about one variable that is predicted."""

    variable: int = 0

    def check(self, count: int) -> None:
        """Raises a `ValueError` where there are fewer variables."""
        if self.variable >= count:
            raise ValueError(f"`variable` must be from 0 to {count - 1}, got {self.variable}.")


FIELDS = ("given", "predicted", "truth")
"""Fields that can be written as Gaussians."""


@dataclass(frozen=True, kw_only=True)
class MixtureRequest(VariableRequest):
    """A request for one variable of a field as Gaussians."""

    field: str = "predicted"
    frame: int = 0
    """Which of the given frames."""
    count: int = 50
    """How many Gaussians."""


@dataclass(frozen=True, kw_only=True)
class RankingRequest(ExampleRequest):
    """A request for what matters over the test split."""

    computes: bool = False
    """Whether test examples that were not read yet are read."""
    is_whole: bool = False
    """Whether all of them are, however long it takes."""


@dataclass(frozen=True, kw_only=True)
class PointRequest(AblationRequest):
    """A request about a point of the drawn plane or space: longitude and latitude on the sphere."""

    point: tuple[float, ...]
    variable: int = 0


@dataclass(frozen=True, kw_only=True)
class RolloutRequest(AblationRequest):
    """A request for a rollout."""

    steps: int = 20


@dataclass(frozen=True, kw_only=True)
class FlowRequest(AblationRequest):
    """A request about what one particle moves in a step of a rollout.

    Particles count through all layers that transport.
    """

    carrier: int = 0
    step: int = 1


@dataclass(frozen=True, kw_only=True)
class TracerRequest(FlowRequest):
    """A request for the ways of points that a particle carries, in all steps of a rollout."""

    points: tuple[tuple[float, ...], ...]


Kind = TypeVar("Kind", bound=ExampleRequest)


def read_request(kind: type[Kind], body: bytes) -> Kind:
    """Parses the body of a request; raises a `ValueError` that states what was expected."""
    try:
        stored = json.loads(body or b"{}", parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The request must be JSON, got {error}.") from error
    if not isinstance(stored, dict):
        raise ValueError(f"The request must be a JSON object, got {type(stored).__name__}.")
    known = {part.name: part for part in fields(kind)}
    strange = sorted(set(stored) - set(known))
    if strange:
        raise ValueError(f"The request may have {', '.join(known)}, got `{strange[0]}`.")
    missing = [name for name, part in known.items()
               if part.default is MISSING and name not in stored]  # fmt: skip
    if missing:
        raise ValueError(f"The request must have `{missing[0]}`.")
    return kind(**{name: READERS[name](name, value) for name, value in stored.items()})


def _no_constant(name: str) -> None:
    raise ValueError(f"{name}, which is no number")


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
        raise ValueError(f"`{name}` must be a whole number, zero or more, got {_short(value)}.")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be true or false, got {_short(value)}.")
    return value


def _field(name: str, value: Any) -> str:
    if value not in FIELDS:
        raise ValueError(f"`{name}` must be one of {', '.join(FIELDS)}, got {_short(value)}.")
    return value


def _wholes(name: str, value: Any) -> frozenset[int]:
    if not isinstance(value, list):
        raise ValueError(f"`{name}` must be a list of whole numbers, got {_short(value)}.")
    return frozenset(_whole(name, part) for part in value)


def _pairs(name: str, value: Any) -> frozenset[tuple[int, int]]:
    if not isinstance(value, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in value
    ):
        raise ValueError(f"`{name}` must be a list of pairs [layer, mode], got {_short(value)}.")
    return frozenset((_whole(name, layer), _whole(name, mode)) for layer, mode in value)


def _ablation(name: str, value: Any) -> Ablation:
    readers: dict[str, Callable[[str, Any], Any]] = {
        "modes": _pairs, "layers": _wholes, "sites": _wholes,
    }  # fmt: skip
    if not isinstance(value, dict) or set(value) - set(readers):
        raise ValueError(f"`{name}` may have {', '.join(readers)}, got {_short(value)}.")
    return Ablation(**{part: readers[part](f"{name}.{part}", value[part]) for part in value})


def _point(name: str, value: Any) -> tuple[float, ...]:
    is_list = isinstance(value, list) and 1 <= len(value) <= 3
    if not is_list or not all(_is_number(part) for part in value):
        raise ValueError(f"`{name}` must be one to three finite numbers, got {_short(value)}.")
    return tuple(float(part) for part in value)


def _points(name: str, value: Any) -> tuple[tuple[float, ...], ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_POINTS:
        raise ValueError(
            f"`{name}` must be a list of 1 to {MAX_POINTS} points, got {_short(value)}."
        )
    return tuple(_point(name, part) for part in value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e30 and math.isfinite(value)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


READERS: dict[str, Callable[[str, Any], Any]] = {
    "example": _whole,
    "ablation": _ablation,
    "field": _field,
    "frame": _whole,
    "count": _whole,
    "computes": _flag,
    "is_whole": _flag,
    "layer": _whole,
    "mode": _whole,
    "point": _point,
    "variable": _whole,
    "steps": _whole,
    "carrier": _whole,
    "step": _whole,
    "points": _points,
}
"""The reader of every field of a request."""
