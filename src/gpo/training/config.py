"""The typed configuration of a run, in parts: data, task, model, optimizer and budget.

Importing this module imports neither torch nor Lightning: the flags of `gpo run` are made of it.
"""

from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from tyro.conf import FlagCreatePairsOff, Positional, arg

from gpo.data.forcing_config import NAMES, ForcingConfig
from gpo.files import check_fields, write_text
from gpo.training.settings import NAME, OURS, default_settings

Preset = Literal["quick", "default", "paper"]
Phase = Literal["operator", "field"]

PART = arg(help="")
"""The name of a part is all the help that a group of flags needs."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What is learned from."""

    benchmark: Positional[
        Annotated[str | None, arg(metavar="[BENCHMARK]", help_behavior_hint="")]
    ] = None
    """One of the paper's benchmarks, such as ns2d; its data are made if missing."""
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
    """Every n-th site along each axis; finer sites are scored too."""

    def __post_init__(self) -> None:
        """Refuses what no data can be read with."""
        _check("var", " ".join(self.var), len({*self.var}) == len(self.var), "named once each")
        _check("coarsen", self.coarsen, self.coarsen >= 1, "at least 1")
        if isinstance(self.data, tuple) and len(self.data) == 1:
            object.__setattr__(self, "data", self.data[0])
        is_whole = self.validation_from is None or self.test_from is not None
        _check("validation_from", self.validation_from, is_whole, "given with test_from")
        files = self.test_files
        _check("test_files", files, files is None or files >= 1, "at least 1")
        is_one = files is None or self.test_from is None
        _check("test_files", files, is_one, "given without test_from: a split has one rule")


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
            _check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model, and its sizes."""

    name: Annotated[str, arg(name="model", metavar="NAME")] = "gpo"
    """gpo, gpo-paper or a baseline; add --help for its settings."""
    settings: Annotated[Any, arg(name="")] = None
    """The settings that this model has; its defaults when not given."""

    def __post_init__(self) -> None:
        """Fills in the defaults of the model; refuses the settings of another."""
        usual = default_settings(self.name)
        if self.settings is None:
            object.__setattr__(self, "settings", usual)
        elif type(self.settings) is not type(usual):
            given, expected = type(self.settings).__name__, type(usual).__name__
            raise ValueError(f"`settings` of {self.name} must be {expected}, got {given}.")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """How it is trained."""

    learning_rate: Annotated[
        float | None, arg(metavar="X", help_behavior_hint="(default: found by a range test)")
    ] = None
    """Of AdamW, at its highest."""
    init: Annotated[str | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Trained run whose parameters it starts from, as far as they fit, at a third of the rate."""
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
        arg(metavar="FLOAT", help_behavior_hint="(default: 0.06 for forecasts, else 0)"),
    ] = None
    """Standard deviation of noise on normalised inputs, which steadies rollouts."""
    noise_fraction: Annotated[float, arg(metavar="X")] = 0.25
    """Fraction of the examples that get noise; the others keep one step accurate."""
    rollout: int = 1
    """Steps on its own forecasts that an example grows to."""
    pushforward: FlagCreatePairsOff[bool] = False
    """Learns from the last of these steps alone."""
    relative_to: Annotated[Literal["state", "change"], NAME] = "state"
    """Losses are relative to the next state, or the change to it."""
    precision: Annotated[Literal["32-true", "bf16-mixed", "16-mixed"], NAME] = "32-true"
    """32-true, bf16-mixed or 16-mixed."""
    seed: int = 0
    """Of parameters, order of examples, noise and features."""

    def __post_init__(self) -> None:
        """Refuses what nothing can be trained with."""
        for name in ("batch_size", "accumulate", "rollout"):
            _check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        for name in ("noise", "weight_decay"):
            _check(name, getattr(self, name), (getattr(self, name) or 0) >= 0, "zero or more")
        rate, fraction = self.learning_rate, self.noise_fraction
        _check("learning_rate", rate, rate is None or rate > 0, "positive")
        _check("clip", self.clip, self.clip > 0, "positive")
        _check("ema", self.ema, 0 <= self.ema < 1, "at least 0 and below 1")
        _check("noise_fraction", fraction, 0 < fraction <= 1, "above 0 and at most 1")

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
    """Epochs without a better score, after which it stops."""

    def __post_init__(self) -> None:
        """Refuses limits that leave nothing."""
        for name in ("epochs", "patience"):
            _check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        for name in ("steps", "budget_cpu"):
            value = getattr(self, name)
            _check(name, value, value is None or value > 0, "positive")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides the outcome of a run; saved with it."""

    data: Annotated[DataConfig, PART] = field(default_factory=DataConfig)
    task: Annotated[TaskConfig, PART] = field(default_factory=TaskConfig)
    forcings: Annotated[ForcingConfig, PART] = field(default_factory=ForcingConfig)
    model: Annotated[ModelConfig, PART] = field(default_factory=ModelConfig)
    optimizer: Annotated[OptimizerConfig, PART] = field(default_factory=OptimizerConfig)
    budget: Annotated[BudgetConfig, PART] = field(default_factory=BudgetConfig)

    def __post_init__(self) -> None:
        """Refuses parts that do not go together."""
        is_field = self.task.phase == "field"
        has_field = self.model.name == "gpo-paper" or not is_field
        _check("phase", self.task.phase, has_field, "operator, but for --model gpo-paper")
        given = self.forcings.names
        _check("forcings", ", ".join(given), not (is_field and given), "none in the field phase")
        relative_to = self.optimizer.relative_to
        is_right = relative_to == "state" or not is_field
        _check("relative_to", relative_to, is_right, "state in the field phase")

    @classmethod
    def of(cls, **settings: Any) -> "RunConfig":
        """Returns the configuration that `gpo run` makes of flags with these names.

        Args:
            **settings: Fields of any part, such as `data="my.nc", lead=6, model="fno"`; the model
                by its name. What is not given follows the preset and the model.
        """
        deciding = {"preset", "model", "phase", "benchmark"} & settings.keys()
        return starting_point(**{name: settings[name] for name in deciding}).changed(**settings)

    def changed(self, **settings: Any) -> "RunConfig":
        """Returns this configuration with other values of some settings, named as their flags."""
        stored: dict[str, dict[str, Any]] = {}
        for name, value in settings.items():
            if name == "model":
                stored.setdefault("model", {})["name"] = value
            else:
                stored.setdefault(self._part_of(name), {})[name] = value
        return self._merged(stored, "settings")

    def changed_by(self, path: Path, *, model: str | None = None) -> "RunConfig":
        """Returns this configuration with the fields that a YAML file holds, by part.

        Args:
            path: The file.
            model: The model, in place of the one that the file names.
        """
        stored = read_parts(path)
        if model is not None:
            stored["model"] = {**stored.get("model", {}), "name": model}
        return self._merged(stored, str(path))

    def save(self, path: Path) -> None:
        """Writes the whole configuration as YAML, by part."""
        parts = {name: asdict(part) for name, part in vars(self).items()}
        parts["model"] = {"name": self.model.name, **parts["model"]["settings"]}
        plain = {
            name: {key: list(v) if isinstance(v, tuple) else v for key, v in part.items()}
            for name, part in parts.items()
        }
        write_text(path, yaml.safe_dump(plain, sort_keys=False))

    @classmethod
    def load(cls, path: Path) -> "RunConfig":
        """Returns the whole configuration in a YAML file; refuses unknown and missing fields."""
        stored = read_parts(path)
        start = cls(model=ModelConfig(name=stored.get("model", {}).get("name", "gpo")))
        for part, known in start.names().items():
            for name in known:
                # A default in its place could silently be another run.
                if name not in stored.get(part, {}):
                    raise ValueError(f"{path}: field `{part}.{name}` is missing.")
        return start._merged(stored, str(path))

    @property
    def name(self) -> str:
        """What the run is called when it is given no folder."""
        benchmark, data = self.data.benchmark, self.data.data
        if (benchmark is None) == (data is None):
            raise ValueError("Name either a benchmark, such as ns2d, or a file with --data.")
        parts = [benchmark or _stem(data)]
        if self.model.name != "gpo":
            parts.append(self.model.name)
        parts.append(self.data.preset)
        return "-".join([*parts, *(["field"] if self.task.phase == "field" else [])])

    @property
    def learning_rate(self) -> float:
        """The highest learning rate as given, else the usual one, a third of it for fine-tuning."""
        if self.optimizer.learning_rate is not None:
            return self.optimizer.learning_rate
        usual = 6e-3 if self.model.name == "gpo" else 1e-3
        return usual if self.optimizer.init is None else usual / 3

    def differences(self, other: "RunConfig") -> dict[str, tuple[Any, Any]]:
        """Returns both values of every setting in which two runs differ, by the name of its flag."""
        mine, theirs = self._flat(), other._flat()
        pairs = {name: (mine.get(name), theirs.get(name)) for name in {**mine, **theirs}}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def _flat(self) -> dict[str, Any]:
        values = {name: value for part in vars(self).values() for name, value in vars(part).items()}
        sizes, name = vars(values.pop("settings")), values.pop("name")
        return {**values, "model": name, **sizes}

    def names(self) -> dict[str, list[str]]:
        """Returns the names of the fields of every part."""
        known = {name: [one.name for one in fields(part)] for name, part in vars(self).items()}
        return {**known, "model": ["name", *(one.name for one in fields(self.model.settings))]}

    def _part_of(self, name: str) -> str:
        for part, known in self.names().items():
            if name in known and (part, name) != ("model", "name"):
                return part
        raise ValueError(f"`{name}` is no setting of a run of {self.model.name}.")

    def _merged(self, stored: dict[str, dict[str, Any]], where: str) -> "RunConfig":
        """Returns this configuration with the fields of a mapping by part."""
        changed: dict[str, Any] = {}
        for name, given in stored.items():
            if name == "model":
                changed[name] = self._merged_model(dict(given), where)
            else:
                part = getattr(self, name)
                changed[name] = replace(
                    part, **check_fields(type(part), given, where, prefix=f"{name}.")
                )
        return replace(self, **changed)

    def _merged_model(self, given: dict[str, Any], where: str) -> ModelConfig:
        name = given.pop("name", self.model.name)
        start = self.model if name == self.model.name else ModelConfig(name=name)
        sizes = check_fields(type(start.settings), given, where, prefix="model.")
        return replace(start, settings=replace(start.settings, **sizes))


def read_parts(path: Path) -> dict[str, dict[str, Any]]:
    """Returns a YAML file of settings by part; says where a setting belongs that is in none."""
    try:
        stored = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: must be YAML, got {error}") from error
    if not isinstance(stored, dict):
        raise ValueError(f"{path}: must be a YAML mapping, got {type(stored).__name__}.")
    stored = _spelled(stored)
    if {"variant", "stage", "operator"} <= stored.keys():
        raise ValueError(
            f"{path} was written by gpo 0.1.0, which can open it; this version cannot."
        )
    model = stored.get("model")
    if isinstance(model, dict) and model.get("name", "gpo") == "gpo" and "loss_center" in model:
        raise ValueError(
            f"{path} was written by gpo 0.2.0, which can open it; this version cannot: its default "
            "model has particles that move, and no encoder."
        )
    task = stored.get("task")
    if isinstance(task, dict) and "time_features" in task:
        raise ValueError(
            f"{path}: field `task.time_features` is that of gpo 0.3.0, whose runs this version "
            "cannot open. It is now `forcings: {time_features: [day]}`."
        )
    parts = RunConfig().names()
    for name, given in stored.items():
        homes = [part for part, known in parts.items() if name in known]
        if name not in parts or (homes and not isinstance(given, dict)):
            advice = f" It belongs into a part: `{homes[0]}: {{{name}: ...}}`." if homes else ""
            raise ValueError(f"{path}: field `{name}` is unknown.{advice}")
        if not isinstance(given, dict):
            raise ValueError(f"{path}: field `{name}` must be a mapping, got {given!r}.")
    return stored


def _spelled(stored: Any) -> Any:
    """Returns a mapping whose names are those of fields: flags have hyphens."""
    if not isinstance(stored, dict):
        return stored
    return {str(name).replace("-", "_"): _spelled(value) for name, value in stored.items()}


def _stem(data: str | tuple[str, ...] | None) -> str:
    """Returns what a run of some files is called: the first of them, without signs of patterns."""
    path = Path(data[0] if isinstance(data, tuple) else str(data))
    stem = path.stem.strip("*?[]_-. ")
    return stem or path.parent.name or "data"


def _check(name: str, value: object, is_right: bool, expected: str) -> None:
    if not is_right:
        raise ValueError(f"`{name}` must be {expected}, got {value}.")


RECIPES: dict[str, dict[str, Any]] = {
    # A first answer within minutes on a laptop.
    "quick": {"budget_cpu": 240.0},
    "default": {},
    # Section 3: AdamW from 1e-3, StepLR, up to 500 epochs with early stopping, the state itself.
    "paper": {"predict": "state", "schedule": "step", "batch_size": 16, "noise": 0.0},
}
"""What a preset sets for every model, where nothing else is said."""


def starting_point(
    preset: str = "default",
    model: str | None = None,
    phase: str = "operator",
    benchmark: str | None = None,
) -> RunConfig:
    """Returns the configuration that flags change.

    Args:
        preset: quick, default or paper; paper has the paper's sizes of a benchmark, too.
        model: The model; gpo when not given, or gpo-paper of the preset paper.
        phase: What is learned.
        benchmark: Whose sizes.
    """
    name = model or ("gpo-paper" if preset == "paper" or phase == "field" else "gpo")
    settings: dict[str, Any] = {"preset": preset, **RECIPES[preset]}
    if preset == "paper" and name in OURS:
        settings |= _paper_sizes(name, benchmark)
    if preset == "paper" and name == "gpo-paper":
        settings["centers"] = "absolute"
    task = TaskConfig(phase="field" if phase == "field" else "operator")
    start = RunConfig(model=ModelConfig(name=name), task=task)
    return start.changed(**settings)


def _paper_sizes(model: str, benchmark: str | None) -> dict[str, int]:
    if benchmark is None:
        return {}
    from gpo.model.presets import PRESETS

    if benchmark not in PRESETS:
        return {}
    names = ("hidden_dim", "num_layers", "num_heads", "num_gaussians")
    known = {one.name for one in fields(OURS[model])}
    return {name: getattr(PRESETS[benchmark], name) for name in names if name in known}
