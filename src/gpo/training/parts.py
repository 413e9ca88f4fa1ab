"""The parts of a run's configuration: data, task, model, optimizer, budget; their flags and defaults."""

from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from gpo.data.forcing_config import NAMES
from gpo.model.config import NAME
from gpo.model.registry import MODELS, listed_models

Preset = Literal["quick", "default", "paper"]
Phase = Literal["operator", "field"]


def check_setting(name: str, value: object, is_right: bool, expected: str) -> None:
    """Refuses a setting with what it must be."""
    if not is_right:
        raise ValueError(f"`{name}` must be {expected}, got {value}.")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What is learned from."""

    benchmark: Positional[
        Annotated[str | None, arg(metavar="[BENCHMARK]", help_behavior_hint="")]
    ] = None
    """A benchmark of the paper, such as ns2d; its data are made if missing."""
    data: Annotated[
        str | tuple[str, ...] | None, arg(metavar="PATH [PATH ...]", help_behavior_hint="")
    ] = None
    """A file or folder of your own, a pattern 'runs/*.nc', or several."""
    var: Annotated[
        tuple[str, ...],
        arg(metavar="VAR [VAR ...]", help_behavior_hint="(default: all that belong together)"),
    ] = ()
    """Variables to learn."""
    inputs: Annotated[tuple[str, ...], NAMES] = ()
    """What they are mapped from: fields, or one number per sample."""
    select: Annotated[tuple[str, ...], arg(metavar="DIM=X [...]", help_behavior_hint="")] = ()
    """One value of an extra dimension, level=500; or axes=time,y,x."""
    coords: Annotated[tuple[str, ...], arg(metavar="NAME [...]", help_behavior_hint="")] = ()
    """Coordinates of sites, where names do not tell: node_x node_y."""
    periodic: Annotated[tuple[str, ...], arg(metavar="AXIS [...]", help_behavior_hint="")] = ()
    """Axes that close on themselves, where the file does not tell: x y."""
    validation_from: Annotated[str | None, arg(metavar="DATE", help_behavior_hint="")] = None
    """Date, or time, where validation begins; needs --test-from."""
    test_from: Annotated[str | None, arg(metavar="DATE", help_behavior_hint="")] = None
    """Date, or time, where the test begins."""
    test_files: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """The last so many files are the test, as many before validate."""
    preset: Annotated[Preset, NAME] = "default"
    """quick, default or paper: size of a benchmark's data, and settings that flags change."""
    coarsen: int = 1
    """Every n-th site along each axis; others are scored too."""

    def __post_init__(self) -> None:
        """Refuses what no data can be read with."""
        check_setting(
            "var", " ".join(self.var), len({*self.var}) == len(self.var), "named once each"
        )
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
    """What is predicted from what."""

    history: int = 1
    """Frames that predict, `lead` steps apart."""
    lead: int = 1
    """Steps from the last of them to the predicted frame."""
    predict: Annotated[Literal["state", "increment"], NAME] = "increment"
    """state: the next one; increment: what is added to the last, in static maps to their mean."""
    phase: Annotated[Phase, NAME] = "operator"
    """Learns the operator, or first the Gaussian field."""

    def __post_init__(self) -> None:
        """Refuses what no task can be made from."""
        for name in ("history", "lead"):
            check_setting(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model, and its sizes."""

    name: Annotated[str, arg(name="model", metavar="NAME")] = "gpo"
    """gpo, gpo-paper or a baseline; add --help for its settings."""
    config: Annotated[Any, arg(name="")] = None
    """The configuration of this model; its defaults when not given."""

    def __post_init__(self) -> None:
        """Fills in the defaults of the model; refuses the configuration of another."""
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
    """How it is trained."""

    learning_rate: Annotated[
        float | None, arg(metavar="X", help_behavior_hint="(default: found by a range test)")
    ] = None
    """Of AdamW, at its highest."""
    init: Annotated[str | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Trained run to start from, as far as it fits, at a third of the rate."""
    weight_decay: float = 1e-4
    """Of AdamW."""
    schedule: Annotated[Literal["cosine", "one-cycle", "step", "constant"], NAME] = "cosine"
    """cosine, one-cycle, step or constant, over the budget."""
    batch_size: int = 8
    """Examples per step, over all devices."""
    accumulate: int = 1
    """Batches whose gradients are added up for one step."""
    clip: float = 1.0
    """Largest gradient norm."""
    ema: float = 0.0
    """Decay of averaged parameters, such as 0.999; 0 for none."""
    noise: Annotated[
        float | None,
        arg(metavar="FLOAT", help_behavior_hint="(default: 0.06 in forecasts)"),
    ] = None
    """On normalised inputs, which steadies rollouts."""
    noise_fraction: Annotated[float, arg(metavar="X")] = 0.25
    """Fraction of the examples that get noise."""
    rollout: int = 1
    """Steps on its own forecasts that an example grows to."""
    pushforward: FlagCreatePairsOff[bool] = False
    """Learns from the last of these steps alone."""
    relative_to: Annotated[Literal["state", "change"], NAME] = "state"
    """What losses are relative to: the next state, or the change."""
    precision: Annotated[Literal["32-true", "bf16-mixed", "16-mixed"], NAME] = "32-true"
    """32-true, bf16-mixed or 16-mixed."""
    seed: int = 0
    """Of parameters, order of examples, noise and features."""

    def __post_init__(self) -> None:
        """Refuses what nothing can be trained with."""
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
        """Returns how large noise is, for forecasts of time series and for anything else."""
        return (0.06 if is_forecast else 0.0) if self.noise is None else self.noise


@dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    """When training ends: at the first of these limits."""

    epochs: int = 500
    """Passes over the training examples, at most."""
    steps: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: no limit)")] = (
        None
    )
    """Optimizer steps, at most."""
    budget_cpu: Annotated[
        float | None, arg(metavar="SECONDS", help_behavior_hint="(default: no limit)")
    ] = None
    """CPU seconds of training, at most: the fair limit on a noisy machine."""
    patience: int = 50
    """Epochs without a better score before it slows or stops."""

    def __post_init__(self) -> None:
        """Refuses limits that leave nothing."""
        for name in ("epochs", "patience"):
            check_setting(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        for name in ("steps", "budget_cpu"):
            value = getattr(self, name)
            check_setting(name, value, value is None or value > 0, "positive")
