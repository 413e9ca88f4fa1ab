"""One typed configuration of a run: what is learned from, by which model, and how."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from tyro.conf import Positional

from gpo.data.forcings import TimeFeatures
from gpo.files import write_text
from gpo.model.checkpoint import build, check_fields
from gpo.model.presets import PRESETS


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides the outcome of a run; saved with it."""

    benchmark: Positional[str | None] = None
    """One of the paper's benchmarks, such as ns2d; its data is made where it can be."""
    data: str | None = None
    """A file or folder of your own, in place of a benchmark."""
    var: tuple[str, ...] = ()
    """Variables to learn; all that belong together when not given."""
    select: tuple[str, ...] = ()
    """One value of every extra dimension by name, such as level=500."""
    preset: Literal["quick", "default", "paper"] = "default"
    """Size of a benchmark's data, and the recipe: settings that further flags change."""
    coarsen: int = 1
    """Learns on every n-th site along each axis, of scattered points on as many; scores also on the finer."""
    history: int = 1
    """Frames that predict, `lead` steps apart."""
    lead: int = 1
    """Steps from the last of them to the predicted frame."""
    clock: TimeFeatures = "none"
    """day: frames tell the time of day, to any model; they must have dates."""
    predict: Literal["state", "increment"] = "increment"
    """Whether the model gives the next state, or what is to be added to the last one; to the mean of all samples in static maps."""
    model: str = "gpo"
    """gpo, or the name of a baseline: gpo baselines lists them."""
    variant: Literal["geometric", "paper"] = "geometric"
    """Of gpo: windows that know where sites are, or the method as published."""
    hidden_dim: int | None = None
    """Width of gpo; 32, or 64 of the paper's variant, when not given."""
    num_layers: int = 4
    """Layers of gpo."""
    num_gaussians: int | None = None
    """Gaussians per site of gpo; 8, or 16 of the paper's variant, when not given."""
    num_heads: int = 4
    """Heads per stage of the paper's variant of gpo."""
    centers: Literal["absolute", "displacement"] = "displacement"
    """How the encoder of gpo predicts centers."""
    operator: tuple[str, ...] = ()
    """Further settings of gpo by name, such as share_layers=true mixing=0.3."""
    ablation: str | None = None
    """A row of the paper's ablation, such as without-pg-operator; the width is refitted."""
    relative_to: Literal["state", "change"] = "state"
    """What errors of a forecast are measured by in training: the size of the next state, or of the
    change to it, with which calm frame_chunks count as much as lively ones. Scores are always of the first kind."""
    loss: tuple[str, ...] = ()
    """Weights of the losses of gpo by name, such as center=0 basis=0.1."""
    stage: Literal["operator", "field"] = "operator"
    """What is learned: the operator, or first the Gaussian field, which reconstructs its input."""
    init: str | None = None
    """Run folder of a field stage, whose encoder and decoder the operator begins with."""
    batch_size: int = 8
    """Examples per step, over all devices."""
    accumulate: int = 1
    """Batches whose gradients are added up for one step."""
    learning_rate: float | None = None
    """Of AdamW; 6e-3 for the operator of gpo, 1e-3 for its paper's variant and all others, when not given."""
    weight_decay: float = 1e-4
    """Of AdamW."""
    schedule: Literal["cosine", "one-cycle", "step", "constant"] = "cosine"
    """How the learning rate falls over the budget; step halves it at every fifth of it."""
    epochs: int = 500
    """Passes over the training examples, at most."""
    steps: int | None = None
    """Optimiser steps, at most."""
    budget_cpu: float | None = None
    """CPU seconds to train for, at most; comparisons on a noisy machine need it."""
    patience: int = 50
    """Epochs without a better validation score after which training stops."""
    clip: float = 1.0
    """Largest gradient norm."""
    ema: float = 0.0
    """Decay of an average of the weights, such as 0.999, that is scored and kept; 0 for none."""
    noise: float | None = None
    """Standard deviation of noise on the inputs, in units of theirs, which steadies rollouts; 0.06 for
    forecasts and 0 for static maps and the field stage, when not given."""
    noise_fraction: float = 0.25
    """Part of the examples that get noise; the others keep one step accurate."""
    rollout: int = 1
    """Steps on its own forecasts that a training example takes; reached halfway to the end."""
    pushforward: bool = False
    """Learns from the last of these steps alone."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    """Of the arithmetic in training."""
    seed: int = 0
    """Of initial weights, of the order of examples, of noise and of Fourier features."""

    def __post_init__(self) -> None:
        """Refuses what no run can be made from."""
        counts = ("history", "lead", "batch_size", "epochs", "patience", "coarsen", "accumulate")
        for name in (*counts, "rollout"):
            _check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        _check("clip", self.clip, self.clip > 0, "positive")
        _check(
            "noise_fraction",
            self.noise_fraction,
            0 < self.noise_fraction <= 1,
            "above 0 and at most 1",
        )
        for name in ("learning_rate", "budget_cpu", "steps"):
            value = getattr(self, name)
            _check(name, value, value is None or value > 0, "positive")
        for name in ("noise", "weight_decay"):
            _check(name, getattr(self, name), (getattr(self, name) or 0) >= 0, "zero or more")
        _check("ema", self.ema, 0 <= self.ema < 1, "at least 0 and below 1")
        is_forecast = self.stage == "operator"
        _check("clock", self.clock, is_forecast or self.clock == "none", "none in the field stage")
        _check(
            "relative_to",
            self.relative_to,
            is_forecast or self.relative_to == "state",
            "state in the field stage",
        )
        is_gpo = self.model == "gpo"
        _check("stage", self.stage, is_gpo or self.stage == "operator", "operator for baselines")
        for name in ("init", "operator", "ablation", "loss"):
            _check(
                name,
                getattr(self, name),
                is_gpo or not getattr(self, name),
                "left out for baselines",
            )

    @property
    def name(self) -> str:
        """What the run is called when it is given no folder."""
        if (self.benchmark is None) == (self.data is None):
            raise ValueError("Name either a benchmark, such as ns2d, or a file with --data.")
        what = self.benchmark or Path(str(self.data)).stem
        parts = [what, *([] if self.model == "gpo" else [self.model]), self.preset]
        return "-".join([*parts, *(["field"] if self.stage == "field" else [])])

    def save(self, path: Path) -> None:
        """Writes the whole configuration as YAML."""
        plain = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}
        write_text(path, yaml.safe_dump(plain, sort_keys=False))

    @classmethod
    def load(cls, path: Path) -> "RunConfig":
        """Returns the whole configuration in a YAML file; refuses unknown and missing fields."""
        return build(cls, _mapping(path), str(path))

    @property
    def highest_rate(self) -> float:
        """The learning rate that schedules start from."""
        is_fast = (self.model, self.variant, self.stage) == ("gpo", "geometric", "operator")
        return self.learning_rate or (6e-3 if is_fast else 1e-3)

    def noise_on(self, is_forecast: bool) -> float:
        """Returns how large noise is, for forecasts of time series and for anything else."""
        return (0.06 if is_forecast else 0.0) if self.noise is None else self.noise

    def changed_by(self, path: Path) -> "RunConfig":
        """Returns this configuration with the fields that a YAML file holds."""
        stored = _mapping(path)
        check_fields(type(self), stored, str(path))
        return replace(self, **stored)


def _check(name: str, value: object, is_right: bool, expected: str) -> None:
    if not is_right:
        raise ValueError(f"`{name}` must be {expected}, got {value}.")


def _mapping(path: Path) -> dict[str, Any]:
    try:
        stored = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: must be YAML, got {error}") from error
    if not isinstance(stored, dict):
        raise ValueError(f"{path}: must be a YAML mapping, got {type(stored).__name__}.")
    return stored


# >>> """What a preset sets where nothing else is said."""

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
