"""The paper's configurations, one per benchmark, and its ablations."""

from dataclasses import fields, replace
from typing import Any

from gpo.model.config import EncoderConfig, PaperConfig
from gpo.model.operator import count_parameters
from gpo.numerics.domain import Domain


def _config(
    channels: tuple[int, int], domain: Domain, hidden_dim: int, num_layers: int, num_gaussians: int
) -> PaperConfig:
    return PaperConfig(
        in_channels=channels[0],
        out_channels=channels[1],
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        num_heads=hidden_dim // 16,
        encoder=EncoderConfig(num_gaussians=num_gaussians),
        domain=domain,
    )


PRESETS: dict[str, PaperConfig] = {
    # Vorticity in a periodic box.
    "ns2d": _config((1, 1), Domain.unit_box(2, periodic=True), 128, 8, 32),
    # Density, pressure and three velocities in a periodic cube.
    "ns3d": _config((5, 5), Domain.unit_box(3, periodic=True), 64, 8, 16),
    "era5-temp": _config((1, 1), Domain.sphere(), 64, 4, 16),
    "era5-wind": _config((1, 1), Domain.sphere(), 64, 4, 16),
    # One wind component on a projected regional grid.
    "carra": _config((1, 1), Domain.unit_box(2), 64, 4, 16),
    # The mesh itself is the input, the Mach number the output; a C-mesh that reaches about 40 chords.
    "airfoil": _config((2, 1), Domain.box([-40, -40], [40, 40]), 64, 4, 16),
    # Density, pressure and two velocities, periodic along x only.
    "turbulent": _config((4, 4), Domain.box([-0.5, -1], [0.5, 2], [True, False]), 128, 8, 32),
    # Height and two velocities on the sphere.
    "planetswe": _config((3, 3), Domain.sphere(), 64, 8, 16),
}
"""The paper's table of GPO configurations; channels and domains are those of the data."""


def preset(name: str, **changes: Any) -> PaperConfig:
    """Returns the paper's configuration for a benchmark, with `changes` to any field.

    Fields of its `EncoderConfig`, such as `num_gaussians`, may be changed in the same breath.

    Args:
        name: One of ns2d, ns3d, era5-temp, era5-wind, carra, airfoil, turbulent, planetswe.
        **changes: Fields of `PaperConfig` or `EncoderConfig` to set otherwise.
    """
    if name not in PRESETS:
        raise ValueError(f"`name` must be one of {', '.join(PRESETS)}, got {name!r}.")
    return change_config(PRESETS[name], **changes)


def change_config(config: PaperConfig, **changes: Any) -> PaperConfig:
    """Returns a configuration with changes to its own fields and to those of its encoder."""
    names = {field.name for field in fields(EncoderConfig)}
    inner = {name: changes.pop(name) for name in names & changes.keys()}
    return replace(config, encoder=replace(config.encoder, **inner), **changes)


ABLATIONS: dict[str, dict[str, Any]] = {
    "without-pg-operator": {"num_layers": 0},
    "without-gaussian-field": {"has_gaussian_field": False},
    "gaussians-1": {"num_gaussians": 1},
    "gaussians-16": {"num_gaussians": 16},
    "gaussians-32": {"num_gaussians": 32},
    "gaussians-64": {"num_gaussians": 64},
}
"""The rows of the paper's ablation table, as changes to a configuration."""


def paper_ablation(name: str, config: PaperConfig) -> PaperConfig:
    """Returns `config` with one part taken away and `hidden_dim` refitted.

    As in the paper, the parameter count is brought as close to that of `config` as the
    width can bring it, so that a row does not lose for being smaller.
    """
    if name not in ABLATIONS:
        raise ValueError(f"`name` must be one of {', '.join(ABLATIONS)}, got {name!r}.")
    goal = count_parameters(config)

    def with_head_dim(head_dim: int) -> PaperConfig:
        hidden_dim = head_dim * config.num_heads
        return change_config(config, **ABLATIONS[name], hidden_dim=hidden_dim)

    low, high = 1, 2
    while count_parameters(with_head_dim(high)) < goal:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if count_parameters(with_head_dim(middle)) < goal:
            low = middle
        else:
            high = middle
    return min(
        (with_head_dim(low), with_head_dim(high)), key=lambda c: abs(count_parameters(c) - goal)
    )
