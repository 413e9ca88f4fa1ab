"""`gpo baselines`: a list of the baselines with their sizes and supported geometries."""

from dataclasses import dataclass

import torch
from rich.table import Table

from gpo.cli.console import PlainConsole
from gpo.model.model import build_model
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo.numerics.domain import Domain
from gpo_bench.plugin import NETWORKS

PROBLEMS = {
    "grid 64 x 64": Problem(1, 1, Domain.unit_box(2, periodic=True), (64, 64)),
    "points in the plane": Problem(1, 1, Domain.unit_box(2)),
    "grid 32 x 32 x 32": Problem(1, 1, Domain.unit_box(3, periodic=True), (32, 32, 32)),
    "points on the sphere": Problem(1, 1, Domain.sphere()),
}


@dataclass(frozen=True)
class Baselines:
    """Lists the baselines with their parameter counts and the geometries they support."""

    def run(self) -> None:
        """Prints one row per model, for one input and one output field."""
        table = Table(title="Parameters for one input and one output field", show_lines=True)
        table.add_column("model")
        for geometry in PROBLEMS:
            table.add_column(geometry, justify="right")
        for name in NETWORKS:
            table.add_row(name, *(_count(name, problem) for problem in PROBLEMS.values()))
        PlainConsole(wraps=True).print(table)


def _count(name: str, problem: Problem) -> str:
    """Returns the parameter count of a baseline, or the reason why it has none."""
    try:
        with torch.device("meta"):
            return f"{build_model(name, problem).num_parameters:,}"
    except UnsupportedGeometryError as error:
        return f"- ({error})"
