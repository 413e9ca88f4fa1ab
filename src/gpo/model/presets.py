"""The paper's configurations, one per benchmark, and its ablations."""

from dataclasses import replace
from typing import Any

import torch

from gpo.model.config import AnyConfig, OperatorConfig, PaperConfig
from gpo.model.operator import GaussianParticleOperator
from gpo.model.problem import Problem
from gpo.numerics.domain import Domain


def _sizes(hidden_dim: int, num_layers: int, num_gaussians: int) -> PaperConfig:
    return PaperConfig(
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        num_heads=hidden_dim // 16,
        num_gaussians=num_gaussians,
    )


PRESETS: dict[str, tuple[Problem, PaperConfig]] = {
    # Vorticity in a periodic box.
    "ns2d": (Problem(1, 1, Domain.unit_box(2, periodic=True)), _sizes(128, 8, 32)),
    # Density, pressure and three velocities in a periodic cube.
    "ns3d": (Problem(5, 5, Domain.unit_box(3, periodic=True)), _sizes(64, 8, 16)),
    "era5-temp": (Problem(1, 1, Domain.sphere()), _sizes(64, 4, 16)),
    "era5-wind": (Problem(1, 1, Domain.sphere()), _sizes(64, 4, 16)),
    # One wind component on a projected regional grid.
    "carra": (Problem(1, 1, Domain.unit_box(2)), _sizes(64, 4, 16)),
    # The mesh itself is the input, the Mach number the output; a C-mesh that reaches about 40 chords.
    "airfoil": (Problem(2, 1, Domain.box([-40, -40], [40, 40])), _sizes(64, 4, 16)),
    # Density, pressure and two velocities, periodic along x only.
    "turbulent": (
        Problem(4, 4, Domain.box([-0.5, -1], [0.5, 2], [True, False])),
        _sizes(128, 8, 32),
    ),
    # Height and two velocities on the sphere.
    "planetswe": (Problem(3, 3, Domain.sphere()), _sizes(64, 8, 16)),
}
"""The paper's table of GPO configurations; channels and domains are those of the data."""


def preset(name: str, **changes: Any) -> tuple[Problem, PaperConfig]:
    """Returns problem and configuration of a benchmark of the paper.

    Args:
        name: One of ns2d, ns3d, era5-temp, era5-wind, carra, airfoil, turbulent, planetswe.
        **changes: Fields of the `PaperConfig` to set otherwise.
    """
    if name not in PRESETS:
        raise ValueError(f"`name` must be one of {', '.join(PRESETS)}, got {name!r}.")
    problem, config = PRESETS[name]
    return problem, replace(config, **changes)


ABLATIONS: dict[str, dict[str, Any]] = {
    "without-pg-operator": {"num_layers": 0},
    "without-gaussian-field": {"has_gaussian_field": False},
    "gaussians-1": {"num_gaussians": 1},
    "gaussians-16": {"num_gaussians": 16},
    "gaussians-32": {"num_gaussians": 32},
    "gaussians-64": {"num_gaussians": 64},
}
"""The rows of the paper's ablation table, as changes to a configuration."""


def paper_ablation(name: str, problem: Problem, config: PaperConfig) -> PaperConfig:
    """Returns `config` with one part taken away and `hidden_dim` refitted.

    As in the paper, the parameter count is brought as close to that of `config` as the
    width can bring it, so that a row does not lose for being smaller.
    """
    if name not in ABLATIONS:
        raise ValueError(f"`name` must be one of {', '.join(ABLATIONS)}, got {name!r}.")
    goal = count_parameters(problem, config)

    def with_head_dim(head_dim: int) -> PaperConfig:
        return replace(config, **ABLATIONS[name], hidden_dim=head_dim * config.num_heads)

    def count(head_dim: int) -> int:
        return count_parameters(problem, with_head_dim(head_dim))

    low, high = 1, 2
    while count(high) < goal:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if count(middle) < goal:
            low = middle
        else:
            high = middle
    return with_head_dim(min((low, high), key=lambda head_dim: abs(count(head_dim) - goal)))


def prepare(problem: Problem, config: AnyConfig, seed: int) -> AnyConfig:
    """Returns the configuration that a run builds: its own seed, and the sizes of an ablation."""
    config = replace(config, fourier_seed=seed) if config.fourier_seed is None else config
    row = getattr(config, "ablation", None)
    if row is None:
        return config
    return replace(paper_ablation(row, problem, config), ablation=None)  # pyright: ignore[reportArgumentType]


def count_parameters(problem: Problem, config: Any = OperatorConfig()) -> int:
    """Returns how many parameters the operator of a configuration has, without building it."""
    with torch.device("meta"):
        return GaussianParticleOperator(problem, config).num_parameters


def gaussian_field(
    problem: Problem, config: PaperConfig = PaperConfig()
) -> GaussianParticleOperator:
    r"""Returns the Gaussian field (section 2.1), $\hat a(x)=f^{\mathrm{dec}}_\phi(\mathcal{Z}(x;E_\theta(a)))$.

    It is the paper's operator without layers, an auto-encoder of its own.
    """
    return GaussianParticleOperator(problem, replace(config, num_layers=0), name="gaussian-field")
