"""Questions to a run as a whole, to one of its fields or points: how each is read and answered."""

from collections.abc import Callable
from typing import Any

from gpo_explore import comparison, mixtures, nearby, ranking, spectra, typical
from gpo_explore.requests import (
    ExampleRequest,
    MixtureRequest,
    PointRequest,
    RankingRequest,
    RolloutRequest,
    VariableRequest,
)

QUESTIONS: dict[str, tuple[type[Any], Callable[..., Any], bool]] = {
    "mixture": (MixtureRequest, mixtures.mixture, True),
    "nearby": (PointRequest, nearby.nearby, False),
    "spectrum": (VariableRequest, spectra.spectrum, False),
    "typical": (ExampleRequest, typical.typical, True),
    "ranking": (RankingRequest, ranking.ranking, True),
    "other": (ExampleRequest, comparison.prediction, False),
    "other-rollout": (RolloutRequest, comparison.rollout, True),
}
"""By the last part of the address: the request, what answers it, and whether that takes long."""
