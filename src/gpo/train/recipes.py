"""What a preset sets where nothing else is said."""

from dataclasses import replace
from typing import Any

from gpo.model.presets import PRESETS
from gpo.train.config import RunConfig

RECIPES: dict[str, dict[str, Any]] = {
    # A first answer within minutes on a laptop.
    "quick": {"budget_cpu": 240.0},
    "default": {},
    # Section 3: AdamW from 1e-3, StepLR, up to 500 epochs with early stopping, the state itself.
    "paper": {
        "variant": "paper",
        "predict": "state",
        "centers": "absolute",
        "schedule": "step",
        "batch_size": 16,
        "noise": 0.0,
    },
}


def recipe(preset: str, benchmark: str | None) -> RunConfig:
    """Returns the configuration that a preset starts from; `paper` has the paper's sizes too."""
    settings = dict(RECIPES[preset])
    if preset == "paper" and benchmark in PRESETS:
        sizes = PRESETS[benchmark]
        for name in ("hidden_dim", "num_layers", "num_heads", "num_gaussians"):
            settings[name] = getattr(sizes, name)
    return replace(RunConfig(), preset=preset, **settings)
