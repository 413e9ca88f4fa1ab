"""Reference forecasts by name.

Every reference that applies to the data is in scores, rollouts, verdicts, the report and the page, is a
candidate for what the model adds its increment to, and may be part of the blended forecast. To add one
from outside, register its class; fields of type `Tensor` hold what was fitted:

    @dataclass(frozen=True)
    class Half(AbstractReference):
        @classmethod
        def fit(cls, inputs):
            return cls(inputs.task) if inputs.is_forecast else None

        def __call__(self, frames, coords, *, weights=None, seasons=None):
            return 0.5 * self.task.state(frames[:, -1])

    REFERENCES.register("half", Half)

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
        "damped persistence": "gpo.forecast.climatology:DampedPersistence",
        "extrapolation": "gpo.forecast.extrapolation:Extrapolation",
        "linear map": "gpo.forecast.linear_map:LinearMap",
    },
)
"""Classes of reference forecasts, simple ones first."""
