"""The requests of the page as dataclasses, and `read_request`, which validates them.

The type of a field decides how its value is read, so that other packages can define requests:
whole numbers are `int`, flags `bool`, choices `Literal`, points `tuple[float, ...]`.
"""

import json
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from gpo.model.ablation import Ablation

MAX_INTEGER = 2**31 - 1
"""Largest index of an example, mode or site."""
MAX_POINTS = 64
"""Largest number of tracers."""


@dataclass(frozen=True, kw_only=True)
class ExampleRequest:
    """A request about one example of the test split."""

    example: int = 0


@dataclass(frozen=True, kw_only=True)
class AblationRequest(ExampleRequest):
    """A request about one example, with parts of the model ablated."""

    ablation: Ablation = field(default=Ablation())


@dataclass(frozen=True, kw_only=True)
class WindowRequest(ExampleRequest):
    """A request for one window of a layer; modes are numbered across heads."""

    layer: int
    mode: int


@dataclass(frozen=True, kw_only=True)
class VariableRequest(AblationRequest):
    """A request about one predicted variable."""

    variable: int = 0

    def check(self, count: int) -> None:
        """Raises a `ValueError` if the variable is not one of `count`."""
        if self.variable >= count:
            raise ValueError(f"`variable` must be from 0 to {count - 1}, got {self.variable}.")


@dataclass(frozen=True, kw_only=True)
class MixtureRequest(VariableRequest):
    """A request for the Gaussian mixture that approximates one variable of a field."""

    field: Literal["given", "predicted", "truth"] = "predicted"
    frame: int = 0
    """Index of the input frame, for the field "given"."""
    count: int = 50
    """Number of Gaussians."""


@dataclass(frozen=True, kw_only=True)
class RankingRequest(ExampleRequest):
    """A request for the importance of the model's parts over the test split."""

    computes: bool = False
    """Whether to process further test examples."""
    is_whole: bool = False
    """Whether to process all of them, without a time limit."""


@dataclass(frozen=True, kw_only=True)
class PointRequest(VariableRequest):
    """A request about a point in drawn coordinates: longitude and latitude on the sphere."""

    point: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class RolloutRequest(AblationRequest):
    """A request for a rollout."""

    steps: int = 20


@dataclass(frozen=True, kw_only=True)
class FlowRequest(AblationRequest):
    """A request about the displacements of one particle in a step of a rollout.

    Particles are numbered across all transport layers.
    """

    advector: int = 0
    step: int = 1


@dataclass(frozen=True, kw_only=True)
class TracerRequest(FlowRequest):
    """A request for the paths of tracers that a particle advects, over all steps of a rollout."""

    points: tuple[tuple[float, ...], ...]


RequestType = TypeVar("RequestType", bound=ExampleRequest)


def read_request(kind: type[RequestType], body: bytes) -> RequestType:
    """Parses the body of a request; raises a `ValueError` that states what was expected."""
    try:
        values = json.loads(body or b"{}", parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The request must be JSON, got {error}.") from error
    if not isinstance(values, dict):
        raise ValueError(f"The request must be a JSON object, got {type(values).__name__}.")
    types = get_type_hints(kind)
    unknown = sorted(set(values) - set(types))
    if unknown:
        raise ValueError(f"The request may have {', '.join(types)}, got `{unknown[0]}`.")
    required = [part.name for part in fields(kind) if part.default is MISSING]
    missing = [name for name in required if name not in values]
    if missing:
        raise ValueError(f"The request must have `{missing[0]}`.")
    return kind(**{name: _read(types[name], name, value) for name, value in values.items()})


def _read(kind: Any, name: str, value: Any) -> Any:
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            choices = ", ".join(get_args(kind))
            raise ValueError(f"`{name}` must be one of {choices}, got {_short(value)}.")
        return value
    if kind not in READERS:
        raise TypeError(f"`{name}` must be a Literal or of a type in READERS, got {kind}.")
    return READERS[kind](name, value)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name}, which is not a JSON number")


def _integer(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_INTEGER:
        raise ValueError(f"`{name}` must be a non-negative integer, got {_short(value)}.")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be true or false, got {_short(value)}.")
    return value


def _integers(name: str, value: Any) -> frozenset[int]:
    if not isinstance(value, list):
        raise ValueError(f"`{name}` must be a list of integers, got {_short(value)}.")
    return frozenset(_integer(name, item) for item in value)


def _pairs(name: str, value: Any) -> frozenset[tuple[int, int]]:
    if not isinstance(value, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in value
    ):
        raise ValueError(f"`{name}` must be a list of pairs [layer, mode], got {_short(value)}.")
    return frozenset((_integer(name, layer), _integer(name, mode)) for layer, mode in value)


def _ablation(name: str, value: Any) -> Ablation:
    readers: dict[str, Callable[[str, Any], Any]] = {
        "modes": _pairs, "layers": _integers, "sites": _integers,
    }  # fmt: skip
    if not isinstance(value, dict) or set(value) - set(readers):
        raise ValueError(f"`{name}` may have {', '.join(readers)}, got {_short(value)}.")
    return Ablation(**{part: readers[part](f"{name}.{part}", value[part]) for part in value})


def _point(name: str, value: Any) -> tuple[float, ...]:
    is_list = isinstance(value, list) and 1 <= len(value) <= 3
    if not is_list or not all(_is_number(item) for item in value):
        raise ValueError(f"`{name}` must be one to three finite numbers, got {_short(value)}.")
    return tuple(float(item) for item in value)


def _points(name: str, value: Any) -> tuple[tuple[float, ...], ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_POINTS:
        raise ValueError(
            f"`{name}` must be a list of 1 to {MAX_POINTS} points, got {_short(value)}."
        )
    return tuple(_point(name, item) for item in value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e30 and math.isfinite(value)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


READERS: dict[Any, Callable[[str, Any], Any]] = {
    int: _integer,
    bool: _flag,
    Ablation: _ablation,
    tuple[float, ...]: _point,
    tuple[tuple[float, ...], ...]: _points,
}
"""Readers by the type of a field; `Literal` fields take one of their choices."""
