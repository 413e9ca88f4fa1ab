"""`gpo presets`: the paper's configurations."""

from dataclasses import dataclass

from rich.table import Table

from gpo.cli.console import PlainConsole
from gpo.model.operator import count_parameters
from gpo.model.presets import PRESETS


@dataclass(frozen=True)
class Presets:
    """Lists the paper's configurations and their parameter counts."""

    def run(self) -> None:
        """Prints one row per benchmark of the paper."""
        table = Table(title="Gaussian Particle Operator: the paper's configurations")
        for column in ("preset", "channels", "domain", "hidden / layers / heads / gaussians"):
            table.add_column(column)
        table.add_column("parameters", justify="right")
        for name, config in PRESETS.items():
            sizes = (config.hidden_dim, config.num_layers, config.num_heads, config.num_gaussians)
            table.add_row(
                name,
                f"{config.in_channels} to {config.out_channels}",
                "sphere" if config.domain.is_sphere else f"{config.domain.dim}-D",
                " / ".join(str(size) for size in sizes),
                f"{count_parameters(config):,}",
            )
        PlainConsole(wraps=True).print(table)
