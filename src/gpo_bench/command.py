"""`gpo bench`: the commands that reproduce the paper's tables and figures."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tyro.conf import FlagCreatePairsOff, arg, subcommand

from gpo.cli.console import PlainConsole
from gpo.cli.data import make_data
from gpo_bench.ablation import ablation_experiments, ablation_table
from gpo_bench.columns import COLUMNS
from gpo_bench.cost_command import (
    BenchEfficiency,
    BenchExport,
    BenchFigures,
    BenchMemory,
    BenchScaling,
)
from gpo_bench.curves import (
    collect_convergence,
    collect_rollouts,
    collect_spectra,
    convergence_table,
    rollout_table,
    spectrum_table,
    transfer_table,
)
from gpo_bench.experiment import Experiment
from gpo_bench.experiment_grid import ExperimentGrid
from gpo_bench.figures import draw_curves, draw_spectra
from gpo_bench.protocol import MODELS, Protocol
from gpo_bench.result_files import write_results
from gpo_bench.table1 import table1, table1_experiments


@dataclass(frozen=True)
class GridOptions:
    """Protocol and folders of the experiments, the same for all models."""

    protocol: Literal["budget", "steps", "paper"] = "budget"
    """Equal CPU seconds, equal optimizer steps, or the paper's epochs for each experiment."""
    amount: float = 120.0
    """CPU seconds or steps per experiment; selecting optimizer and learning rate takes as much again."""
    preset: Literal["quick", "default", "paper"] = "quick"
    """Size of generated data."""
    seeds: tuple[int, ...] = (0,)
    """Random seeds; several give mean and standard deviation."""
    files: Path = Path("../shared/data")
    """Folder of real data, and of published files of benchmarks as NAME.*."""
    runs: Path = Path("runs/bench")
    """Folder of the experiments; finished experiments are not repeated."""
    jobs: int = 1
    """Number of experiments at a time."""
    finished: FlagCreatePairsOff[bool] = False
    """Use finished experiments only; run no others."""
    out: Path = Path("benchmarks/results")
    """Folder for tables and figures."""

    @property
    def rules(self) -> Protocol:
        """The protocol of all experiments."""
        return Protocol(self.protocol, self.amount, self.preset)

    def run(self, experiments: list[Experiment]) -> ExperimentGrid:
        """Runs all experiments with a progress bar, and returns their grid."""
        grid = ExperimentGrid(self.runs, str(self.rules))
        if self.finished:
            experiments = [
                experiment for experiment in experiments if experiment.outcome(self.runs)
            ]
            if not experiments:
                raise ValueError(
                    f"--finished needs finished experiments in {self.runs}, which has none. "
                    "Run the command without --finished."
                )
        else:
            settings = [experiment.settings for experiment in experiments]
            for name in {each["benchmark"] for each in settings if "benchmark" in each}:
                make_data(name, self.rules.settings()["preset"])
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        console = PlainConsole()
        with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
            task = progress.add_task("experiments", total=len(experiments))

            def on_done(experiment: Experiment, message: str) -> None:
                progress.console.print(
                    f"{experiment.column}, {experiment.row}: {message}", markup=False
                )
                progress.advance(task)

            grid.run(experiments, jobs=self.jobs, on_done=on_done)
        return grid


@dataclass(frozen=True)
class BenchTable1:
    """Computes the relative L2 error of all models on all benchmarks and on real data."""

    grid: GridOptions = GridOptions()
    models: tuple[str, ...] = MODELS
    """Models, the rows of the table."""
    repeated: tuple[str, ...] = MODELS
    """Models that use all seeds; the others use the first."""
    benchmarks: tuple[str, ...] = tuple(COLUMNS)
    """Benchmarks and real data, the columns of the table; columns without data show the reason."""
    earlier: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """File experiments.json of an earlier table, for missing entries; those of another protocol are marked."""

    def run(self) -> None:
        """Runs the experiments and writes the table."""
        options, rows = self.grid, self.models
        if self.earlier is not None and not self.earlier.is_file():
            raise ValueError(
                f"--earlier must be an experiments.json of gpo bench table1, got {self.earlier}."
            )
        experiments, missing = table1_experiments(
            self.models, self.benchmarks, options.rules, options.files, options.seeds, self.repeated
        )
        grid = options.run(experiments)
        if self.earlier is not None:
            grid.take_earlier(self.earlier)
            available = {row for row, _ in (*grid.outcomes, *grid.failures)}
            rows = tuple(name for name in MODELS if name in available)
        table = table1(grid, rows, self.benchmarks, missing, options.rules)
        write_results(options.out / "table1", [table])
        grid.save(options.out / "table1" / "experiments.json")


@dataclass(frozen=True)
class BenchAblation:
    """Computes the relative L2 error of gpo with one change at a time."""

    grid: GridOptions = GridOptions()
    model: Literal["gpo", "gpo-paper"] = "gpo"
    """Model to change."""
    benchmark: str = "ns2d"
    """Benchmark or real data, a column of table1."""

    def run(self) -> None:
        """Runs the experiments and writes the table."""
        options = self.grid
        experiments = ablation_experiments(
            self.model, self.benchmark, options.rules, options.files, options.seeds
        )
        grid = options.run(experiments)
        folder = options.out / f"ablation-{self.model}"
        write_results(folder, [ablation_table(grid, self.model, self.benchmark, options.rules)])
        grid.save(folder / "experiments.json")


@dataclass(frozen=True)
class AbstractColumnBench(ABC):
    """A command that compares models on one column of table1."""

    grid: GridOptions = GridOptions()
    models: tuple[str, ...] = MODELS
    """Models to compare."""
    benchmark: str = "ns2d"
    """Benchmark or real data, a column of table1."""

    @abstractmethod
    def run(self) -> None:
        """Runs the missing experiments and writes a table, and a figure if there is one."""

    def run_experiments(
        self, repeated: tuple[str, ...] = (), **changes: Any
    ) -> tuple[list[Experiment], ExperimentGrid]:
        """Runs the experiments of the column and returns them with their grid.

        Args:
            repeated: Models that use all seeds; the others use the first.
            **changes: Further settings of all runs.
        """
        options = self.grid
        experiments, missing = table1_experiments(
            self.models, (self.benchmark,), options.rules, options.files, options.seeds, repeated
        )
        if missing:
            raise ValueError(
                f"--benchmark {self.benchmark} has no data: {missing[self.benchmark]}."
            )
        experiments = [
            replace(experiment, settings={**experiment.settings, **changes})
            for experiment in experiments
        ]
        return experiments, options.run(experiments)


@dataclass(frozen=True)
class BenchRollout(AbstractColumnBench):
    """Computes the error of rollouts of up to 20 steps, of models trained with input noise."""

    repeated: tuple[str, ...] = MODELS
    """Models whose error is a mean over all seeds; the others use the first."""
    noise: float = 0.03
    """Standard deviation of Gaussian noise added to normalised inputs in training, the same for all
    models; selected on validation data (benchmarks/study)."""

    def run(self) -> None:
        """Runs the missing experiments and writes a table and a figure."""
        changes = {"noise": self.noise, "noise_fraction": 1.0}
        experiments, grid = self.run_experiments(self.repeated, **changes)
        curves = collect_rollouts(experiments, grid.root)
        figure = draw_curves(curves, "steps ahead", "relative L2", f"Rollout on {self.benchmark}")
        table = rollout_table(curves, self.benchmark, self.grid.rules)
        noise = f"Trained with noise of {self.noise:g} on the normalised input."
        table.notes += [noise, grid.optimizers()]
        write_results(self.grid.out / "rollout", [table], {"rollout": figure})


@dataclass(frozen=True)
class BenchConvergence(AbstractColumnBench):
    """Computes the validation error against CPU seconds of the experiments of table1."""

    def run(self) -> None:
        """Runs the missing experiments and writes a table and a figure."""
        experiments, grid = self.run_experiments()
        curves = collect_convergence(experiments, grid.root)
        figure = draw_curves(
            curves, "CPU seconds of training", "RMSE / std, validation", f"Training on {self.benchmark}"
        )  # fmt: skip
        table = convergence_table(curves, self.benchmark, self.grid.rules)
        table.notes.append(grid.optimizers())
        write_results(self.grid.out / "convergence", [table], {"convergence": figure})


@dataclass(frozen=True)
class BenchSpectrum(AbstractColumnBench):
    """Computes spectra at the end of a rollout, of truth and of the experiments of table1.

    The spectrum is kinetic energy E(k) for vorticity, as on ns2d, and variance for other variables.
    """

    def run(self) -> None:
        """Runs the missing experiments and writes a table and a figure."""
        experiments, grid = self.run_experiments()
        curves, about = collect_spectra(experiments, grid.root)
        figure = draw_spectra(curves, about, f"{self.benchmark} after a rollout")
        table = spectrum_table(experiments, grid.root, self.benchmark, self.grid.rules)
        table.notes.append(grid.optimizers())
        write_results(self.grid.out / "spectrum", [table], {"spectrum": figure})


@dataclass(frozen=True)
class BenchTransfer(AbstractColumnBench):
    """Computes the error of the experiments of table1 on other grids and on a subset of the sites.

    The folder of --files may contain the same data at a finer resolution.
    """

    def run(self) -> None:
        """Runs the missing experiments and writes a table."""
        experiments, grid = self.run_experiments()
        table = transfer_table(experiments, grid.root, self.benchmark, self.grid.rules)
        table.notes.append(grid.optimizers())
        write_results(self.grid.out / "transfer", [table])


@dataclass(frozen=True)
class Bench:
    """Reproduces the paper's tables and figures, with the same protocol for all models."""

    action: (
        Annotated[BenchTable1, subcommand("table1")]
        | Annotated[BenchAblation, subcommand("ablation")]
        | Annotated[BenchEfficiency, subcommand("efficiency")]
        | Annotated[BenchRollout, subcommand("rollout")]
        | Annotated[BenchConvergence, subcommand("convergence")]
        | Annotated[BenchSpectrum, subcommand("spectrum")]
        | Annotated[BenchTransfer, subcommand("transfer")]
        | Annotated[BenchScaling, subcommand("scaling")]
        | Annotated[BenchExport, subcommand("export")]
        | Annotated[BenchMemory, subcommand("memory")]
        | Annotated[BenchFigures, subcommand("figures")]
    )
    """Table or figure to compute."""

    def run(self) -> None:
        """Runs the subcommand."""
        self.action.run()
