"""Sections of a run's configuration (data, task, model, optimizer, budget): flags and defaults."""

from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from gpo.data.forcing_config import NAMES
from gpo.model.config import NAME
from gpo.model.registry import MODELS, OptimizerName, listed_models

Preset = Literal["quick", "default", "paper"]
Phase = Literal["operator", "field"]


def check_setting(name: str, value: object, is_right: bool, expected: str) -> None:
    """Raises an error that says what a setting must be, unless `is_right`."""
    if not is_right:
        raise ValueError(f"`{name}` must be {expected}, got {value}.")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Data set, variables and split."""

    benchmark: Positional[
        Annotated[str | None, arg(metavar="[BENCHMARK]", help_behavior_hint="")]
    ] = None
    """Benchmark of the paper, such as ns2d; missing data are generated."""
    data: Annotated[
        str | tuple[str, ...] | None, arg(metavar="PATH [PATH ...]", help_behavior_hint="")
    ] = None
    """Files, folders or patterns of your data, such as 'runs/*.nc'."""
    var: Annotated[
        tuple[str, ...],
        arg(metavar="VAR [VAR ...]", help_behavior_hint="(default: all on the same grid)"),
    ] = ()
    """Variables to predict."""
    inputs: Annotated[tuple[str, ...], NAMES] = ()
    """Inputs of a static map: fields, or scalars per sample."""
    select: Annotated[tuple[str, ...], arg(metavar="DIM=X [...]", help_behavior_hint="")] = ()
    """Value of an extra dimension, such as level=500; or axes=time,y,x."""
    coords: Annotated[tuple[str, ...], arg(metavar="NAME [...]", help_behavior_hint="")] = ()
    """Coordinate variables, if not recognised, such as node_x node_y."""
    periodic: Annotated[tuple[str, ...], arg(metavar="AXIS [...]", help_behavior_hint="")] = ()
    """Periodic axes, if the file does not declare them, such as x y."""
    mask: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """Points to use: where a variable is not zero, or 'lsm<0.5'."""
    mask_from: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """File with the variable of --mask at the points of the data."""
    untrusted: FlagCreatePairsOff[bool] = False
    """Read files in a child process with limits."""
    validation_from: Annotated[str | None, arg(metavar="DATE", help_behavior_hint="")] = None
    """Start date (or time) of the validation period; needs --test-from."""
    test_from: Annotated[str | None, arg(metavar="DATE", help_behavior_hint="")] = None
    """Start date (or time) of the test period."""
    test_files: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Last N files for testing, the N before them for validation."""
    preset: Annotated[Preset, NAME] = "default"
    """Default settings and size of a benchmark: quick, default or paper."""
    coarsen: int = 1
    """Train on every n-th point along each axis."""

    def __post_init__(self) -> None:
        """Checks names, split and coarsening."""
        check_setting(
            "var", " ".join(self.var), len({*self.var}) == len(self.var), "named once each"
        )
        is_whole = self.mask_from is None or self.mask is not None
        check_setting("mask_from", self.mask_from, is_whole, "given with mask")
        check_setting("coarsen", self.coarsen, self.coarsen >= 1, "at least 1")
        if isinstance(self.data, tuple) and len(self.data) == 1:
            object.__setattr__(self, "data", self.data[0])
        is_whole = self.validation_from is None or self.test_from is not None
        check_setting("validation_from", self.validation_from, is_whole, "given with test_from")
        files = self.test_files
        check_setting("test_files", files, files is None or files >= 1, "at least 1")
        is_one = files is None or self.test_from is None
        check_setting("test_files", files, is_one, "given without test_from: a split has one rule")


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """Input frames and target."""

    history: int = 1
    """Number of input frames, `lead` time steps apart."""
    lead: int = 1
    """Time steps from the last input frame to the target."""
    predict: Annotated[Literal["state", "increment"], NAME] = "increment"
    """Model output: state, or increment over the last frame (static maps: over the mean)."""
    normalise: Annotated[Literal["variables", "points"], NAME] = "variables"
    """Normalisation of fields: by variables or points."""
    non_negative: Annotated[tuple[str, ...], arg(metavar="VAR", help_behavior_hint="")] = ()
    """Outputs bounded below by zero, such as rain."""
    blend: FlagCreatePairsOff[
        Annotated[
            bool,
            arg(help="Take the model alone for forecasts.", help_behavior_hint="(default: False)"),
        ]
    ] = True
    """Combine the model with reference forecasts, by their errors on validation data."""
    phase: Annotated[Phase, NAME] = "operator"
    """Phase: operator, or field (reconstruction)."""

    def __post_init__(self) -> None:
        """Checks that history and lead are at least 1."""
        for name in ("history", "lead"):
            check_setting(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Model and its architecture."""

    name: Annotated[str, arg(name="model", metavar="NAME")] = "gpo"
    """Model: gpo, gpo-paper or a baseline; each has a --help."""
    config: Annotated[Any, arg(name="")] = None
    """Configuration of this model (None: its defaults)."""

    def __post_init__(self) -> None:
        """Fills in the default configuration; raises an error for one of another model."""
        if self.name not in listed_models():
            names = ", ".join(listed_models())
            raise ValueError(f"`model` must be one of {names}, got {self.name!r}.")
        expected = MODELS[self.name].config
        if self.config is None:
            object.__setattr__(self, "config", expected())
        elif type(self.config) is not expected:
            name = type(self.config).__name__
            raise ValueError(f"`config` of {self.name} must be {expected.__name__}, got {name}.")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Optimisation: optimizer, learning rate, batches, noise, rollouts, precision, seed."""

    optimizer: Annotated[
        OptimizerName | None,
        arg(metavar="NAME", help_behavior_hint="(default: muon for gpo, adamw for others)"),
    ] = None
    """Optimizer: muon or adamw."""
    learning_rate: Annotated[
        float | None, arg(metavar="X", help_behavior_hint="(default: found by a range test)")
    ] = None
    """Peak learning rate."""
    init: Annotated[str | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Run to initialise weights from; divides the learning rate by 3."""
    freeze: Annotated[Literal["field"] | None, arg(metavar="field", help_behavior_hint="")] = None
    """Part of --init that does not learn: field (encoder and decoder)."""
    weight_decay: float = 1e-4
    """Weight decay of AdamW and Muon."""
    schedule: Annotated[Literal["cosine", "one-cycle", "step", "constant"], NAME] = "cosine"
    """Rate schedule: cosine, one-cycle, step or constant."""
    batch_size: int = 8
    """Examples per batch, over all devices."""
    accumulate: int = 1
    """Number of batches per optimizer step."""
    clip: float = 1.0
    """Maximum gradient norm."""
    ema: float = 0.0
    """Decay of averaged weights, such as 0.999 (0: none)."""
    noise: Annotated[
        float | None,
        arg(metavar="FLOAT", help_behavior_hint="(default: 0.06 for forecasts)"),
    ] = None
    """Standard deviation of Gaussian noise added to normalised inputs; stabilises rollouts."""
    noise_fraction: Annotated[float, arg(metavar="X")] = 0.25
    """Fraction of examples to which noise is added."""
    rollout: int = 1
    """Final number of autoregressive steps per example."""
    pushforward: FlagCreatePairsOff[bool] = False
    """Take loss and gradient of the last step only."""
    relative_to: Annotated[Literal["state", "change"], NAME] = "state"
    """Denominator of relative losses: state or change."""
    precision: Annotated[Literal["32-true", "bf16-mixed", "16-mixed"], NAME] = "32-true"
    """Precision: 32-true, bf16-mixed or 16-mixed."""
    seed: int = 0
    """Random seed of weights, batches, noise and features."""

    def __post_init__(self) -> None:
        """Checks the range of every number."""
        for name in ("batch_size", "accumulate", "rollout"):
            check_setting(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        for name in ("noise", "weight_decay"):
            check_setting(
                name, getattr(self, name), 0 <= (getattr(self, name) or 0) < inf, "zero or more"
            )
        rate, fraction = self.learning_rate, self.noise_fraction
        check_setting("learning_rate", rate, rate is None or 0 < rate < inf, "positive")
        check_setting("clip", self.clip, self.clip > 0, "positive")
        check_setting("ema", self.ema, 0 <= self.ema < 1, "at least 0 and below 1")
        check_setting("seed", self.seed, 0 <= self.seed < 2**32, "from 0 to 4294967295")
        check_setting("noise_fraction", fraction, 0 < fraction <= 1, "above 0 and at most 1")

    def noise_on(self, is_forecast: bool) -> float:
        """Returns the standard deviation of the noise; by default only forecasts have any."""
        return (0.06 if is_forecast else 0.0) if self.noise is None else self.noise


@dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    """Limits of training: the first one reached ends it."""

    epochs: int = 500
    """Maximum number of epochs."""
    steps: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: no limit)")] = (
        None
    )
    """Maximum number of optimizer steps."""
    budget_cpu: Annotated[
        float | None, arg(metavar="SECONDS", help_behavior_hint="(default: no limit)")
    ] = None
    """Maximum CPU time, over all processes."""
    patience: int = 50
    """Epochs without improvement before slowing or stopping."""

    def __post_init__(self) -> None:
        """Checks that every limit is positive."""
        for name in ("epochs", "patience"):
            check_setting(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        for name in ("steps", "budget_cpu"):
            value = getattr(self, name)
            check_setting(name, value, value is None or value > 0, "positive")
