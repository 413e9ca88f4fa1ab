"""Typed configuration of a run, in the sections of `parts.py`, and its YAML file.

This module imports neither torch nor Lightning, because `gpo run --help` needs it.
"""

from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import yaml
from tyro.conf import arg

from gpo.atomic_files import write_text
from gpo.data.benchmarks import DATA_SETS
from gpo.data.forcing_config import ForcingConfig
from gpo.model.former_options import with_present_options
from gpo.model.registry import MODELS, OptimizerName
from gpo.settings_files import check_fields, read_yaml
from gpo.training.parts import (
    BudgetConfig,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    TaskConfig,
    check_setting,
)

ADDED: dict[str, dict[str, Any]] = {
    "data": {"mask": None, "mask_from": None, "untrusted": False},
    "model": {"fourier_seed": None, "num_nodes": None},
    "optimizer": {"optimizer": "adamw", "freeze": None},
    "task": {"non_negative": (), "normalise": "variables", "blend": False},
}
"""Fields that versions since 0.7 added, by section, with their values in older run folders."""

PART = arg(help="")
"""Groups of flags have no help besides the name of their section."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Complete configuration of a run; saved in its folder."""

    data: Annotated[DataConfig, PART] = field(default_factory=DataConfig)
    task: Annotated[TaskConfig, PART] = field(default_factory=TaskConfig)
    forcings: Annotated[ForcingConfig, PART] = field(default_factory=ForcingConfig)
    model: Annotated[ModelConfig, PART] = field(default_factory=ModelConfig)
    optimizer: Annotated[OptimizerConfig, PART] = field(default_factory=OptimizerConfig)
    budget: Annotated[BudgetConfig, PART] = field(default_factory=BudgetConfig)

    def __post_init__(self) -> None:
        """Checks settings that depend on other sections."""
        is_field = self.task.phase == "field"
        has_field = self.model.name == "gpo-paper" or not is_field
        check_setting("phase", self.task.phase, has_field, "operator, but for --model gpo-paper")
        names = self.forcings.names
        check_setting(
            "forcings", ", ".join(names), not (is_field and names), "none in the field phase"
        )
        relative_to = self.optimizer.relative_to
        is_right = relative_to == "state" or not is_field
        check_setting("relative_to", relative_to, is_right, "state in the field phase")
        if self.task.normalise == "points":
            predict = self.task.predict
            check_setting("predict", predict, predict == "state", "state with --normalise points")
        if self.optimizer.freeze is not None:
            self._check_frozen()

    def _check_frozen(self) -> None:
        """Checks that a frozen field exists, and that something else learns."""
        freeze, task = self.optimizer.freeze, self.task
        is_operator = self.model.name == "gpo-paper" and task.phase == "operator"
        check_setting("freeze", freeze, is_operator, "left out, but for operators of gpo-paper")
        check_setting("freeze", freeze, self.optimizer.init is not None, "given with --init FIELD")
        check_setting(
            "predict", task.predict, task.predict == "state",
            "state where the field is frozen: its decoder returns states",
        )  # fmt: skip
        num_layers = self.model.config.num_layers
        check_setting(
            "num_layers", num_layers, num_layers > 0, "at least 1 where only layers learn"
        )

    @classmethod
    def of(cls, **settings: Any) -> "RunConfig":
        """Returns the configuration of `gpo run` with these flags.

        Args:
            **settings: Fields of any section, such as `data="my.nc", lead=6, model="fno"`; the
                model by name. Other settings have the defaults of the preset and the model.
        """
        deciding = {"preset", "model", "phase", "benchmark"} & settings.keys()
        return default_config(**{name: settings[name] for name in deciding}).changed(**settings)

    def changed(self, **settings: Any) -> "RunConfig":
        """Returns a copy with some settings changed, named as their flags."""
        stored: dict[str, dict[str, Any]] = {}
        for name, value in settings.items():
            if name == "model":
                stored.setdefault("model", {})["name"] = value
            else:
                stored.setdefault(self._part_of(name), {})[name] = value
        return self._merged(stored, "settings")

    def updated_from_file(self, path: Path, *, model: str | None = None) -> "RunConfig":
        """Returns a copy with the settings of a YAML file, by section.

        Args:
            path: The file.
            model: Name of the model; overrides that of the file.
        """
        stored = read_parts(path)
        if model is not None:
            stored["model"] = {**stored.get("model", {}), "name": model}
        return self._merged(stored, str(path))

    def save(self, path: Path) -> None:
        """Writes the complete configuration as YAML, by section."""
        parts = {name: asdict(part) for name, part in vars(self).items()}
        parts["model"] = {"name": self.model.name, **parts["model"]["config"]}
        plain = {
            name: {key: list(v) if isinstance(v, tuple) else v for key, v in part.items()}
            for name, part in parts.items()
        }
        write_text(path, yaml.safe_dump(plain, sort_keys=False))

    @classmethod
    def load(cls, path: Path) -> "RunConfig":
        """Returns the configuration in a YAML file; unknown and missing fields are errors."""
        stored = read_parts(path)
        if "model" in stored:
            stored["model"] = with_present_options(stored["model"])
        start = cls(model=ModelConfig(name=stored.get("model", {}).get("name", "gpo")))
        for part, known in start.names().items():
            added = {name: ADDED[part][name] for name in known if name in ADDED.get(part, {})}
            stored[part] = {**added, **stored.get(part, {})}
            for name in known:
                # A default in its place could silently describe another run.
                if name not in stored[part]:
                    raise ValueError(f"{path}: field `{part}.{name}` is missing.")
        return start._merged(stored, str(path))

    @property
    def name(self) -> str:
        """Default name of the run folder."""
        benchmark, data = self.data.benchmark, self.data.data
        if benchmark is None and data is None:
            raise ValueError("Name a benchmark, such as ns2d, or a file with --data.")
        parts = [benchmark or _stem(data)]
        if self.model.name != "gpo":
            parts.append(self.model.name)
        parts.append(self.data.preset)
        return "-".join([*parts, *(["field"] if self.task.phase == "field" else [])])

    @property
    def learning_rate(self) -> float:
        """Peak learning rate; by default that of the model, a third of it where all parts are tuned."""
        if self.optimizer.learning_rate is not None:
            return self.optimizer.learning_rate
        default = MODELS[self.model.name].learning_rate
        is_tuned = self.optimizer.init is not None and self.optimizer.freeze is None
        return default / 3 if is_tuned else default

    @property
    def optimizer_name(self) -> OptimizerName:
        """Optimizer; by default that of the model."""
        return self.optimizer.optimizer or MODELS[self.model.name].optimizer

    def differences(self, other: "RunConfig") -> dict[str, tuple[Any, Any]]:
        """Returns both values of every setting that differs between two runs, by name."""
        left, right = self._flat(), other._flat()
        pairs = {name: (left.get(name), right.get(name)) for name in {**left, **right}}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def _flat(self) -> dict[str, Any]:
        values = {name: value for part in vars(self).values() for name, value in vars(part).items()}
        sizes, name = vars(values.pop("config")), values.pop("name")
        return {**values, "model": name, **sizes}

    def names(self) -> dict[str, list[str]]:
        """Returns the names of the fields of every section."""
        names = {name: [f.name for f in fields(part)] for name, part in vars(self).items()}
        return {**names, "model": ["name", *(f.name for f in fields(self.model.config))]}

    def _part_of(self, name: str) -> str:
        for part, known in self.names().items():
            if name in known and (part, name) != ("model", "name"):
                return part
        raise ValueError(
            f"`{name}` is not a setting of a run of {self.model.name}: see gpo run --model "
            f"{self.model.name} --help."
        )

    def _merged(self, stored: dict[str, dict[str, Any]], where: str) -> "RunConfig":
        """Returns a copy with the fields of a mapping by section."""
        changed: dict[str, Any] = {}
        for name, settings in stored.items():
            if name == "model":
                changed[name] = self._merged_model(dict(settings), where)
            else:
                part = getattr(self, name)
                checked = check_fields(type(part), settings, where, prefix=f"{name}.")
                changed[name] = replace(part, **checked)
        return replace(self, **changed)

    def _merged_model(self, settings: dict[str, Any], where: str) -> ModelConfig:
        name = settings.pop("name", self.model.name)
        start = self.model if name == self.model.name else ModelConfig(name=name)
        sizes = check_fields(type(start.config), settings, where, prefix="model.")
        return replace(start, config=replace(start.config, **sizes))


def read_parts(path: Path) -> dict[str, dict[str, Any]]:
    """Returns the settings in a YAML file by section; names the section of a misplaced one."""
    stored = read_yaml(path)
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
            "model has transport by particles, and no encoder."
        )
    task = stored.get("task")
    if isinstance(task, dict) and "time_features" in task:
        raise ValueError(
            f"{path}: field `task.time_features` is that of gpo 0.3.0, whose runs this version "
            "cannot open. It is now `forcings: {time_features: [day]}`."
        )
    parts = RunConfig().names()
    for name, section in stored.items():
        homes = [part for part, names in parts.items() if name in names]
        if name not in parts or (homes and not isinstance(section, dict)):
            advice = f" It belongs to a section: `{homes[0]}: {{{name}: ...}}`." if homes else ""
            raise ValueError(f"{path}: field `{name}` is unknown.{advice}")
        if not isinstance(section, dict):
            raise ValueError(f"{path}: field `{name}` must be a mapping, got {section!r}.")
    return stored


def _spelled(stored: Any) -> Any:
    """Replaces hyphens, as in flags, by underscores, as in fields."""
    if not isinstance(stored, dict):
        return stored
    return {str(name).replace("-", "_"): _spelled(value) for name, value in stored.items()}


def _stem(data: str | tuple[str, ...] | None) -> str:
    """Returns the name of the first file, without wildcards."""
    path = Path(data[0] if isinstance(data, tuple) else str(data))
    stem = path.stem.strip("*?[]_-. ")
    return stem or path.parent.name or "data"


RECIPES: dict[str, dict[str, Any]] = {
    # A first result within minutes on a laptop.
    "quick": {"budget_cpu": 240.0},
    "default": {},
    # Section 3: AdamW from 1e-3, StepLR, up to 500 epochs with early stopping, the state itself; no
    # references in its forecasts.
    "paper": {
        "predict": "state", "optimizer": "adamw", "learning_rate": 1e-3, "schedule": "step",
        "batch_size": 16, "noise": 0.0, "blend": False,
    },
}  # fmt: skip
"""Settings of the presets, for all models."""


def default_config(
    preset: str = "default",
    model: str | None = None,
    phase: str = "operator",
    benchmark: str | None = None,
) -> RunConfig:
    """Returns the default configuration, which flags change.

    Args:
        preset: quick, default or paper; paper has the published sizes for a benchmark.
        model: Name of the model (None: gpo, or gpo-paper with the preset paper).
        phase: operator or field.
        benchmark: The benchmark, for the preset paper.
    """
    name = model or ("gpo-paper" if preset == "paper" or phase == "field" else "gpo")
    settings: dict[str, Any] = {"preset": preset, **RECIPES[preset]}
    if preset == "paper":
        settings |= _paper_sizes(name, benchmark)
    task = TaskConfig(phase="field", predict="state") if phase == "field" else TaskConfig()
    start = RunConfig(model=ModelConfig(name=name), task=task)
    return start.changed(**settings)


def _paper_sizes(model: str, benchmark: str | None) -> dict[str, int]:
    if benchmark is None:
        return {}
    from gpo.model.presets import PRESETS

    if benchmark in DATA_SETS:
        benchmark = DATA_SETS[benchmark].sizes or benchmark
    if benchmark not in PRESETS:
        return {}
    if not MODELS[model].is_operator:
        return {}
    names = ("hidden_dim", "num_layers", "num_heads", "num_gaussians")
    present = {f.name for f in fields(MODELS[model].config)}
    return {name: getattr(PRESETS[benchmark][1], name) for name in names if name in present}
