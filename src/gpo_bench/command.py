"""`gpo bench` and what it makes: table1, ablation, efficiency, rollout, convergence and so on."""

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from matplotlib.figure import Figure
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tyro.conf import subcommand

from gpo.atomic_files import write_text
from gpo.cli.console import PlainConsole
from gpo.cli.data import make_data
from gpo.exporting.program import require_onnx
from gpo_bench.ablation import ablation_experiments, ablation_table
from gpo_bench.columns import COLUMNS
from gpo_bench.curves import (
    collect_convergence,
    collect_rollouts,
    collect_spectra,
    convergence_table,
    rollout_table,
    spectrum_table,
    transfer_table,
)
from gpo_bench.efficiency import measure_efficiency
from gpo_bench.experiment import Experiment
from gpo_bench.experiment_grid import ExperimentGrid
from gpo_bench.export import measure_export, versions
from gpo_bench.figures import draw_curves, draw_efficiency, draw_scaling, draw_spectra
from gpo_bench.protocol import MODELS, Protocol, describe_machine
from gpo_bench.scaling import measure_scaling
from gpo_bench.table import Table
from gpo_bench.table1 import table1, table1_experiments


@dataclass(frozen=True)
class GridOptions:
    """How experiments of a table are made, for all models alike."""

    protocol: Literal["budget", "steps", "paper"] = "budget"
    """Equal CPU seconds, equal steps, or the paper's epochs."""
    amount: float = 120.0
    """CPU seconds or steps for every experiment; the tuning of the learning rate comes on top."""
    preset: Literal["quick", "default", "paper"] = "quick"
    """Size of made data."""
    seeds: tuple[int, ...] = (0,)
    """Several give mean and spread."""
    files: Path = Path("../shared/data")
    """Folder of real files, and of published files of benchmarks as NAME.*."""
    runs: Path = Path("runs/bench")
    """Where experiments are kept; what is finished there is not made again."""
    jobs: int = 1
    """Experiments at a time."""
    finished: bool = False
    """Shows the experiments that are finished and makes no others."""
    out: Path = Path("benchmarks/results")
    """Where tables and figures go."""

    @property
    def rules(self) -> Protocol:
        """The protocol with its amount."""
        return Protocol(self.protocol, self.amount, self.preset)

    def make_column(
        self, benchmark: str, models: tuple[str, ...], repeated: tuple[str, ...] = (), **also: Any
    ) -> list[Experiment]:
        """Makes the experiments of one column of table1, with `also` set in every run, and returns them."""
        experiments, missing = table1_experiments(
            models, (benchmark,), self.rules, self.files, self.seeds, repeated
        )
        if missing:
            raise ValueError(f"{benchmark} has no data: {missing[benchmark]}.")
        experiments = [
            replace(experiment, settings={**experiment.settings, **also})
            for experiment in experiments
        ]
        self.make(experiments)
        return experiments

    def make(self, experiments: list[Experiment]) -> ExperimentGrid:
        """Makes all experiments, with progress."""
        grid = ExperimentGrid(self.runs, str(self.rules))
        if self.finished:
            experiments = [
                experiment for experiment in experiments if experiment.outcome(self.runs)
            ]
            if not experiments:
                raise ValueError(
                    f"--finished: {self.runs} has none of these experiments; without it they are made."
                )
        else:
            settings = [experiment.settings for experiment in experiments]
            for name in {made["benchmark"] for made in settings if "benchmark" in made}:
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
    """Relative L2 of all models on all benchmarks and on real files."""

    grid: GridOptions = GridOptions()
    models: tuple[str, ...] = MODELS
    """Rows."""
    repeated: tuple[str, ...] = MODELS
    """Rows that get all seeds; the others get the first."""
    benchmarks: tuple[str, ...] = tuple(COLUMNS)
    """Columns; those without data are a dash with the reason."""
    earlier: Path | None = None
    """experiments.json of an earlier experiment grid: fills what is not run now, and is marked where rules differ."""

    def run(self) -> None:
        """Makes the experiments and writes the table."""
        options, rows = self.grid, self.models
        if self.earlier is not None and not self.earlier.is_file():
            raise ValueError(
                f"--earlier must be an experiments.json of gpo bench table1, got {self.earlier}."
            )
        experiments, missing = table1_experiments(
            self.models, self.benchmarks, options.rules, options.files, options.seeds, self.repeated
        )
        grid = options.make(experiments)
        if self.earlier is not None:
            grid.take_earlier(self.earlier)
            made = {row for row, _ in (*grid.outcomes, *grid.failures)}
            rows = tuple(name for name in MODELS if name in made)
        table = table1(grid, rows, self.benchmarks, missing, options.rules)
        _write(options.out / "table1", [table])
        grid.save(options.out / "table1" / "experiments.json")


@dataclass(frozen=True)
class BenchAblation:
    """GPO with one part changed at a time."""

    grid: GridOptions = GridOptions()
    model: Literal["gpo", "gpo-paper"] = "gpo"
    """Whose parts."""
    benchmark: str = "ns2d"
    """The column it is run on."""

    def run(self) -> None:
        """Makes the experiments and writes the table."""
        options = self.grid
        experiments = ablation_experiments(
            self.model, self.benchmark, options.rules, options.files, options.seeds
        )
        grid = options.make(experiments)
        folder = options.out / f"ablation-{self.model}"
        _write(folder, [ablation_table(grid, self.model, self.benchmark, options.rules)])
        grid.save(folder / "experiments.json")


@dataclass(frozen=True)
class BenchRollout:
    """Error against step, to 20, of models that learned from noisy input."""

    grid: GridOptions = GridOptions()
    models: tuple[str, ...] = MODELS
    """Curves."""
    repeated: tuple[str, ...] = MODELS
    """Curves that are means over all seeds; the others are of the first."""
    benchmark: str = "ns2d"
    """The column it is taken from."""
    noise: float = 0.03
    """Noise on every normalised input in training, the same for all models: forecasts meet their own
    errors. Chosen on validation data, see benchmarks/study."""

    def run(self) -> None:
        """Makes the experiments that are missing, writes a table and a figure."""
        options = self.grid
        noisy = {"noise": self.noise, "noise_fraction": 1.0}
        experiments = options.make_column(self.benchmark, self.models, self.repeated, **noisy)
        curves = collect_rollouts(experiments, options.runs)
        figure = draw_curves(curves, "steps ahead", "relative L2", f"Rollout on {self.benchmark}")
        table = rollout_table(curves, self.benchmark, options.rules)
        table.notes.append(f"Trained with noise of {self.noise:g} on the normalised input.")
        _write(options.out / "rollout", [table], {"rollout": figure})


@dataclass(frozen=True)
class BenchConvergence:
    """Validation error against CPU seconds, of the experiments of table1."""

    grid: GridOptions = GridOptions()
    models: tuple[str, ...] = MODELS
    """Curves."""
    benchmark: str = "ns2d"
    """The column it is taken from."""

    def run(self) -> None:
        """Makes the experiments that are missing, writes a table and a figure."""
        options = self.grid
        curves = collect_convergence(options.make_column(self.benchmark, self.models), options.runs)
        figure = draw_curves(
            curves, "CPU seconds of training", "relative L2, validation", f"Training on {self.benchmark}"
        )  # fmt: skip
        table = convergence_table(curves, self.benchmark, options.rules)
        _write(options.out / "convergence", [table], {"convergence": figure})


@dataclass(frozen=True)
class BenchSpectrum:
    """Spectra at the end of a rollout, of truth and of the experiments of table1.

    Kinetic energy E(k) where the variable is a vorticity, as on ns2d; else variance.
    """

    grid: GridOptions = GridOptions()
    models: tuple[str, ...] = MODELS
    """Curves."""
    benchmark: str = "ns2d"
    """The column it is taken from."""

    def run(self) -> None:
        """Makes the experiments that are missing, writes a table and a figure."""
        options = self.grid
        experiments = options.make_column(self.benchmark, self.models)
        curves, about = collect_spectra(experiments, options.runs)
        figure = draw_spectra(curves, about, f"{self.benchmark} after a rollout")
        table = spectrum_table(experiments, options.runs, self.benchmark, options.rules)
        _write(options.out / "spectrum", [table], {"spectrum": figure})


@dataclass(frozen=True)
class BenchTransfer:
    """Error on coarser and finer grids and on a random part of the sites, of the experiments of table1."""

    grid: GridOptions = GridOptions()
    models: tuple[str, ...] = MODELS
    """Rows."""
    benchmark: str = "ns2d"
    """The column it is taken from; --files may hold the same data at a finer resolution."""

    def run(self) -> None:
        """Makes the experiments that are missing and writes a table."""
        options = self.grid
        experiments = options.make_column(self.benchmark, self.models)
        _write(
            options.out / "transfer",
            [transfer_table(experiments, options.runs, self.benchmark, options.rules)],
        )


@dataclass(frozen=True)
class BenchEfficiency:
    """Parameters, memory and time of a step at 64 x 64 x 3, batch 16."""

    models: tuple[str, ...] = MODELS
    """Rows."""
    repeats: int = 3
    """Every time is the least of so many."""
    out: Path = Path("benchmarks/results")
    """Where the table goes."""

    def run(self) -> None:
        """Measures side by side and writes the table."""
        with PlainConsole().status("measuring") as status:
            tables, rows = measure_efficiency(
                self.models, repeats=self.repeats, on_progress=status.update
            )
        _write(self.out / "efficiency", tables, {"efficiency": draw_efficiency(rows)})


@dataclass(frozen=True)
class BenchScaling:
    """Time and memory against the number of sites, Gaussians, width and depth."""

    max_sites: int = 2**20
    """The largest number of sites."""
    out: Path = Path("benchmarks/results")
    """Where the tables go."""

    def run(self) -> None:
        """Measures side by side and writes the tables."""
        with PlainConsole().status("measuring") as status:
            tables, rows = measure_scaling(max_sites=self.max_sites, on_progress=status.update)
        _write(self.out / "scaling", tables, {"scaling": draw_scaling(rows)})


@dataclass(frozen=True)
class BenchExport:
    """Time of inference on fixed sites: eager, exported, compiled and in onnxruntime."""

    repeats: int = 2
    """Every time is the least of so many rounds."""
    out: Path = Path("benchmarks/results")
    """Where the tables go."""

    def run(self) -> None:
        """Measures side by side and writes the tables."""
        require_onnx("gpo bench export")
        with PlainConsole().status("measuring") as status:
            tables, _ = measure_export(repeats=self.repeats, on_progress=status.update)
        for table in tables:
            table.notes.append(versions())
        _write(self.out / "export", tables)


@dataclass(frozen=True)
class Bench:
    """Makes the paper's tables and figures, with all models under the same rules."""

    what: (
        Annotated[BenchTable1, subcommand("table1")]
        | Annotated[BenchAblation, subcommand("ablation")]
        | Annotated[BenchEfficiency, subcommand("efficiency")]
        | Annotated[BenchRollout, subcommand("rollout")]
        | Annotated[BenchConvergence, subcommand("convergence")]
        | Annotated[BenchSpectrum, subcommand("spectrum")]
        | Annotated[BenchTransfer, subcommand("transfer")]
        | Annotated[BenchScaling, subcommand("scaling")]
        | Annotated[BenchExport, subcommand("export")]
    )

    def run(self) -> None:
        """Makes the chosen one."""
        self.what.run()


def _write(folder: Path, tables: list[Table], figures: dict[str, Figure] | None = None) -> None:
    """Writes tables in three languages and every figure; prints the first language."""
    folder.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["gpo", *sys.argv[1:]])
    lines = describe_machine(command)
    for table in tables:
        table.notes += lines
    write_text(folder / "table.md", "\n".join(table.markdown() for table in tables))
    write_text(folder / "table.tex", "\n".join(table.latex() for table in tables))
    head = '<!doctype html>\n<meta charset="utf-8">\n'
    write_text(folder / "table.html", head + "\n".join(table.html() for table in tables))
    for name, figure in (figures or {}).items():
        figure.savefig(folder / f"{name}.png", dpi=110)
    console = PlainConsole()
    for table in tables:
        console.print(table.markdown())
    console.print(f"written: {folder}")
