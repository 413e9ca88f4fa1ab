"""`gpo run | train | evaluate | report`: flags of training, evaluation and reports.

Heavy modules are imported inside functions, so that `--help` stays fast.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from tyro.conf import FlagCreatePairsOff, Positional, Suppress, arg

from gpo.data.benchmarks import DATA_SETS
from gpo.evaluation.results import Scope
from gpo.training.config import RunConfig, default_config, read_parts
from gpo.training.parts import Phase, Preset

if TYPE_CHECKING:
    from gpo.runs import OpenRun


@dataclass(frozen=True)
class TrainCommand:
    """Trains on a benchmark or a file of time series or static maps."""

    settings: Annotated[RunConfig, arg(name="")]
    config: Annotated[Path | None, arg(metavar="YAML", help_behavior_hint="")] = None
    """File of settings that override the preset; flags override it."""
    out: Annotated[
        Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/NAME)")
    ] = None
    """Run folder; the same command resumes there."""
    devices: int = 1
    """Number of processes or GPUs; torchrun works too."""
    space_shards: int = 1
    """Number of processes that share the points of a sample."""
    tensorboard: FlagCreatePairsOff[bool] = False
    """Log to TensorBoard too."""
    quiet: FlagCreatePairsOff[bool] = False
    """Hide progress bars."""
    auto: Annotated[bool, arg(help_behavior_hint="(default: on if only --data is set)")] = False
    """Tune unset settings on validation data first, in a third of the budget."""
    given: Suppress[frozenset[str]] = frozenset()
    """Names of the settings that the user set."""

    def __post_init__(self) -> None:
        """Checks that counts of processes are positive."""
        for name in ("devices", "space_shards"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")

    def run(self) -> None:
        """Trains, or resumes training."""
        self.train()

    def train(self) -> "OpenRun":
        """Trains, or resumes training, and returns the run."""
        from gpo.cli.work import train_run

        return train_run(
            self.settings, self.out, devices=self.devices, space_shards=self.space_shards,
            is_quiet=self.quiet, logs_tensorboard=self.tensorboard,
            chooses=self.auto and not self.is_shared, given=self.given,
        )  # fmt: skip

    @property
    def is_shared(self) -> bool:
        """Whether several processes train; each would tune differently."""
        from gpo.parallel.processes import world_size

        return world_size(self.devices) > 1


@dataclass(frozen=True)
class RunCommand:
    """Trains on a benchmark or a file, evaluates the model and writes a report."""

    training: Annotated[TrainCommand, arg(name="")]
    scope: Annotated[Scope, arg(metavar="NAME")] = "all"
    """Evaluation: all, or one-step (no rollouts, no report)."""

    def run(self) -> None:
        """Runs every stage that is not finished yet."""
        from gpo.cli.work import evaluate_run, is_evaluated, report_run
        from gpo.parallel.processes import global_rank

        run = self.training.train()
        if global_rank() == 0:
            is_new = not is_evaluated(run, self.scope)
            if is_new:
                evaluate_run(run, scope=self.scope, is_quiet=self.training.quiet)
            if self.scope == "all" and (is_new or not run.folder.report_file.exists()):
                report_run(run)


@dataclass(frozen=True)
class EvaluateCommand:
    """Evaluates a trained run and an untrained reference on the test split.

    Processes started by `torchrun` share the points.
    """

    folder: Positional[Path]
    """Run folder."""
    data: Annotated[
        Path | None, arg(metavar="FILE", help_behavior_hint="(default: the test split)")
    ] = None
    """Other file with the same variables to evaluate on; writes to on-NAME/."""

    def run(self) -> None:
        """Writes results.json and prints the scores."""
        from gpo.cli.work import evaluate_folder

        evaluate_folder(self.folder, self.data)


@dataclass(frozen=True)
class ReportCommand:
    """Draws the figures of an evaluated run and writes report.html."""

    folder: Positional[Path]
    """Run folder."""

    def run(self) -> None:
        """Writes the report."""
        from gpo.cli.work import report_run
        from gpo.runs import open_run

        report_run(open_run(self.folder))


def with_data_flag(arguments: list[str]) -> list[str]:
    """Returns the arguments with --data before a file in the place of a benchmark."""
    command, *rest = arguments
    if not rest or rest[0].startswith("-") or rest[0] in DATA_SETS or not Path(rest[0]).exists():
        return arguments
    return [command, "--data", *rest]


def defaults(command: str, arguments: list[str], benchmark: str | None = None) -> Any:
    """Returns the default command, onto which arguments are parsed.

    The set of flags depends on the model, and their defaults on preset, phase and `--config`, so
    these are read from the arguments first.

    Args:
        command: run or train.
        arguments: All arguments.
        benchmark: The benchmark, for the sizes of the preset paper (None: the first argument, if
            it is not a flag).
    """
    if benchmark is None and arguments[1:2] and not arguments[1].startswith("-"):
        benchmark = arguments[1]
    path = _value(arguments, "config")
    stored = read_parts(Path(path)) if path else {}
    data, task, model = (stored.get(part, {}) for part in ("data", "task", "model"))
    preset = _value(arguments, "preset") or data.get("preset", "default")
    phase = _value(arguments, "phase") or task.get("phase", "operator")
    name = _value(arguments, "model") or model.get("name")
    settings = default_config(
        # Invalid choices raise an error when all arguments are parsed.
        preset if preset in get_args(Preset) else "default",
        name,
        phase if phase in get_args(Phase) else "operator",
        benchmark or data.get("benchmark"),
    )
    settings = _like_origin(settings, _value(arguments, "init"), name)
    if path:
        settings = settings.updated_from_file(Path(path), model=name)
    names = _flag_names(arguments) | {key for part in stored.values() for key in part}
    training = TrainCommand(settings, auto=_tunes_by_default(settings, names), given=names)
    return RunCommand(training) if command == "run" else training


def _like_origin(settings: RunConfig, init: str | None, model: str | None) -> RunConfig:
    """Returns settings with the model of the run in `--init`, unless another is set."""
    from gpo.training.run_folder import Run

    if init is None or not Run(Path(init)).config_file.exists():
        return settings
    origin = Run(Path(init)).config()
    if model not in (None, origin.model.name):
        return settings
    task = replace(settings.task, history=origin.task.history, predict=origin.task.predict)
    return replace(settings, model=origin.model, task=task)


def _flag_names(arguments: list[str]) -> frozenset[str]:
    """Returns the names of all flags among the arguments."""
    flags = (word[2:].split("=")[0] for word in arguments if word.startswith("--"))
    return frozenset(flag.replace("-", "_") for flag in flags)


def _tunes_by_default(settings: RunConfig, names: frozenset[str]) -> bool:
    """Returns whether the user set a file, and nothing of model and training."""
    parts = settings.names()
    tunable = {"model", *parts["model"], *parts["optimizer"]} - {"seed", "batch_size"}
    return "data" in names and not names & {*tunable, "preset", "phase", "epochs", "steps"}


def settings_of(command: RunCommand | TrainCommand) -> RunConfig:
    """Returns the configuration of a command."""
    return (command.training if isinstance(command, RunCommand) else command).settings


def _value(arguments: list[str], flag: str) -> str | None:
    """Returns the value of a flag, None if it is not set."""
    value = None
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == f"--{flag}":
            value = following
        elif word.startswith(f"--{flag}="):
            value = word.split("=", 1)[1]
    return value
