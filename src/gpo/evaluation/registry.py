"""Metrics by name.

Every registered metric is in `results.json` and in the report. To add one from outside, register it:

    METRICS.register("bias", bias)

An item may be text, `"module:attribute"`, which is imported when it is used. Nothing here imports torch.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpo.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

METRICS: "Registry[Callable[[Tensor, Tensor, Tensor], Tensor]]" = Registry(
    "metric",
    {
        name: f"gpo.numerics.norms:{name}"
        for name in ("relative_l2", "rmse", "mae", "nrmse", "vrmse", "linf")
    },
)
"""Each takes prediction, target and quadrature weights, and returns the mean over the batch."""
