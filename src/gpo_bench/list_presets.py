"""`gpo presets`: the paper's configurations."""

from dataclasses import dataclass

from rich.table import Table

from gpo.cli.console import PlainConsole
from gpo.model.presets import PRESETS, count_parameters


@dataclass(frozen=True)
class Presets:
    """Lists the paper's configurations and their parameter counts."""

    def run(self) -> None:
        """Prints a row per benchmark of the paper."""
        table = Table(title="Gaussian Particle Operator: the paper's configurations")
        for column in ("preset", "channels", "domain", "hidden / layers / heads / gaussians"):
            table.add_column(column)
        table.add_column("parameters", justify="right")
        for name, (problem, config) in PRESETS.items():
            sizes = (config.hidden_dim, config.num_layers, config.num_heads, config.num_gaussians)
            table.add_row(
                name,
                f"{problem.in_channels} to {problem.out_channels}",
                "sphere" if problem.domain.is_sphere else f"{problem.domain.dim}-D",
                " / ".join(str(size) for size in sizes),
                f"{count_parameters(problem, config):,}",
            )
        PlainConsole(wraps=True).print(table)
