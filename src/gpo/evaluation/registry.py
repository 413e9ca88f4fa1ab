"""Metrics and reference forecasts by name.

Every registered metric is in `results.json` and in the report. Every reference forecast that applies to
the data is scored beside the model. To add one from outside, register it:

    METRICS.register("bias", bias)
    REFERENCES.register("zero", build_zero)

An item may be text, `"module:attribute"`, which is imported when it is used. Nothing here imports torch.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpo.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from gpo.evaluation.references import Reference, ReferenceInputs

METRICS: "Registry[Callable[[Tensor, Tensor, Tensor], Tensor]]" = Registry(
    "metric",
    {
        name: f"gpo.numerics.norms:{name}"
        for name in ("relative_l2", "rmse", "mae", "nrmse", "vrmse", "linf")
    },
)
"""Each takes prediction, target and quadrature weights, and returns the mean over the batch."""

REFERENCES: "Registry[Callable[[ReferenceInputs], Reference | None]]" = Registry(
    "reference",
    {
        "training mean": "gpo.evaluation.references:build_training_mean",
        "persistence": "gpo.evaluation.references:build_persistence",
        "trend": "gpo.evaluation.references:build_trend",
        "climatology": "gpo.evaluation.references:build_climatology",
        "linear map": "gpo.evaluation.linear_map:build_linear_map",
    },
)
"""Each builds a reference forecast, or returns None where it does not apply to the data."""
