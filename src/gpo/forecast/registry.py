"""Reference forecasts by name.

Every reference that applies to the data is in scores, rollouts, verdicts, the report and the page, is a
candidate for what the model adds its increment to, and may be part of the blended forecast. To add one
from outside, register its class:

    REFERENCES.register("zero", Zero)

An item may be text, `"module:attribute"`, which is imported when it is used. Nothing here imports torch.
"""

from typing import TYPE_CHECKING

from gpo.registry import Registry

if TYPE_CHECKING:
    from gpo.forecast.references import AbstractReference

REFERENCES: "Registry[type[AbstractReference]]" = Registry(
    "reference",
    {
        "training mean": "gpo.forecast.references:TrainingMean",
        "persistence": "gpo.forecast.references:Persistence",
        "trend": "gpo.forecast.references:Trend",
        "climatology": "gpo.forecast.climatology:Climatology",
        "damped anomaly persistence": "gpo.forecast.climatology:DampedPersistence",
        "linear map": "gpo.forecast.linear_map:LinearMap",
    },
)
"""Classes of reference forecasts, simple ones first."""
