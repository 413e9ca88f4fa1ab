"""The commands of `gpo bench` that measure costs, and the one that draws the paper's figures."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from matplotlib import pyplot as plt
from tyro.conf import arg

from gpo.atomic_files import atomic_file, write_text
from gpo.cli.console import PlainConsole
from gpo.exporting.program import require_onnx
from gpo_bench.efficiency import measure_efficiency
from gpo_bench.export import measure_export, versions
from gpo_bench.figures import draw_efficiency, draw_scaling
from gpo_bench.memory import GRIDS, measure_memory
from gpo_bench.protocol import MODELS
from gpo_bench.result_files import write_results
from gpo_bench.scaling import measure_scaling


@dataclass(frozen=True)
class BenchEfficiency:
    """Measures parameters, memory and time of a step at 64 x 64 sites, batch size 16."""

    models: tuple[str, ...] = MODELS
    """Models to measure."""
    repeats: int = 3
    """Number of measurements, of which the shortest time counts."""
    out: Path = Path("benchmarks/results")
    """Folder for the tables and the figure."""

    def run(self) -> None:
        """Measures all models and writes the tables and a figure."""
        with PlainConsole().status("measuring") as status:
            tables, rows = measure_efficiency(
                self.models, repeats=self.repeats, on_progress=status.update
            )
        write_results(self.out / "efficiency", tables, {"efficiency": draw_efficiency(rows)})
        write_text(self.out / "efficiency" / "rows.json", json.dumps(rows, indent=2) + "\n")


@dataclass(frozen=True)
class BenchScaling:
    """Measures time and memory against the number of sites, Gaussians, channels and layers."""

    max_sites: int = 2**20
    """Largest number of sites."""
    out: Path = Path("benchmarks/results")
    """Folder for the tables and the figure."""

    def run(self) -> None:
        """Measures all sizes and writes the tables and a figure."""
        with PlainConsole().status("measuring") as status:
            tables, rows = measure_scaling(max_sites=self.max_sites, on_progress=status.update)
        write_results(self.out / "scaling", tables, {"scaling": draw_scaling(rows)})


@dataclass(frozen=True)
class BenchExport:
    """Measures inference time on fixed sites: eager, exported, compiled and in onnxruntime."""

    repeats: int = 2
    """Number of measurements, of which the shortest time counts."""
    out: Path = Path("benchmarks/results")
    """Folder for the tables."""

    def run(self) -> None:
        """Measures all backends and writes the tables."""
        require_onnx("gpo bench export")
        with PlainConsole().status("measuring") as status:
            tables, _ = measure_export(repeats=self.repeats, on_progress=status.update)
        for table in tables:
            table.notes.append(versions())
        write_results(self.out / "export", tables)


@dataclass(frozen=True)
class BenchMemory:
    """Measures memory and time of a training step on the paper's grids, and the batch that fits."""

    models: tuple[str, ...] = ("gpo-paper", "gpo", "fno")
    """Models to measure."""
    benchmarks: tuple[str, ...] = tuple(GRIDS)
    """Benchmarks, whose grids and model sizes are those of the paper."""
    memory: float = 8.0
    """Memory in gigabytes that a step may take."""
    max_batch: int = 16
    """Largest batch."""
    out: Path = Path("benchmarks/results")
    """Folder for the table and the measurements; missing ones are made."""

    def run(self) -> None:
        """Makes missing measurements and writes the table."""
        with PlainConsole().status("measuring") as status:
            table, _ = measure_memory(
                self.benchmarks, self.models, self.out / "memory" / "rows.jsonl",
                memory=self.memory, max_batch=self.max_batch, on_progress=status.update,
            )  # fmt: skip
        write_results(self.out / "memory", [table])


@dataclass(frozen=True)
class BenchFigures:
    """Draws the figures of the paper from run folders and stored measurements.

    A figure without its run is left out, with the command that makes it.
    """

    out: Path = Path("figures")
    """Folder for the figures."""
    field: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Run of gpo-paper with --phase field."""
    unseen: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Other data for it, such as another viscosity."""
    era5: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Run on ERA5 with --phase field."""
    era5_unseen: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Other data for it, such as another month."""
    operator: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Run of gpo-paper."""
    compared: Annotated[tuple[Path, ...], arg(metavar="RUN [...]", help_behavior_hint="")] = ()
    """Evaluated runs of the same task, for rollouts and spectra."""
    results: Path = Path("benchmarks/results")
    """Folder of tables, for efficiency and ablation."""

    def run(self) -> None:
        """Writes every figure whose input is there."""
        # The other commands need neither the report nor the interpretation.
        from gpo_bench.paper_figures import FigureInputs, MissingInputError, figures_of

        inputs = FigureInputs(
            self.field, self.unseen, self.era5, self.era5_unseen, self.operator, self.compared,
            self.results,
        )  # fmt: skip
        console = PlainConsole()
        self.out.mkdir(parents=True, exist_ok=True)
        for name, draw in figures_of(inputs).items():
            try:
                figure = draw()
            except MissingInputError as error:
                console.print(f"{name}: not drawn, it needs {error}", markup=False)
                continue
            path = self.out / f"{name}.png"
            with atomic_file(path) as partial:
                figure.savefig(partial, dpi=110, bbox_inches="tight")
            plt.close(figure)
            console.print(f"{name}: {path}", markup=False)
