"""Data sets by name, the paper's benchmarks first: how each is read, and how it can be made."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpo.data.solvers.airfoil_vortex import AirfoilVortex
from gpo.data.solvers.airfoils import TransonicAirfoil
from gpo.data.solvers.base import AbstractSolver
from gpo.data.solvers.navier_stokes_2d import NavierStokes2D
from gpo.data.solvers.navier_stokes_3d import NavierStokes3D
from gpo.data.solvers.radiative_layer import RadiativeLayer
from gpo.data.solvers.shallow_water_sphere import ShallowWaterSphere


@dataclass(frozen=True)
class Benchmark:
    """One column of the paper's table."""

    reader: str
    """Which reader takes its published files."""
    about: str
    """What it is, in a line."""
    variables: tuple[str, ...] = ()
    """Which variables of the file the paper uses; all when empty."""
    solvers: Mapping[str, AbstractSolver] = field(default_factory=dict)
    """By preset (quick, default, paper), what makes such a file; empty for observations."""


BENCHMARKS: dict[str, Benchmark] = {
    "ns2d": Benchmark(
        reader="ns2d",
        about="incompressible turbulence in a periodic box, 64 x 64 (FNO's files)",
        solvers={
            "quick": NavierStokes2D(),
            "default": NavierStokes2D(viscosity=1e-5, num_trajectories=240),
            "paper": NavierStokes2D(viscosity=1e-5, num_trajectories=1200, refinement=4),
        },
    ),
    "ns3d": Benchmark(
        reader="pdebench",
        about="compressible turbulence in a periodic cube (PDEBench's files)",
        solvers={
            "quick": NavierStokes3D(
                size=32, num_trajectories=20, shear_viscosity=1e-3, bulk_viscosity=1e-3
            ),
            "default": NavierStokes3D(num_trajectories=32),
            "paper": NavierStokes3D(num_trajectories=100),
        },
    ),
    "era5-temp": Benchmark("gridded", "ERA5 temperature at 2 m", ("t2m",)),
    "era5-wind": Benchmark("gridded", "ERA5 zonal wind at 10 m", ("u10",)),
    "carra": Benchmark("gridded", "CARRA meridional wind at 10 m over the Arctic", ("v10",)),
    "airfoil": Benchmark(
        reader="airfoil",
        about="transonic flow around deformed airfoils (Geo-FNO's files)",
        solvers={
            "quick": TransonicAirfoil(num_trajectories=40),
            "default": TransonicAirfoil(num_trajectories=400),
            "paper": TransonicAirfoil(num_trajectories=2490),
        },
    ),
    "turbulent": Benchmark(
        reader="well",
        about="turbulent_radiative_layer_2D of The Well",
        solvers={
            "quick": RadiativeLayer(
                size=64,
                cooling_times=(3.16, 0.03, 0.32),
                shear=0.2,
                noise=0.3,
                num_trajectories=12,
                num_frames=21,
                frame_step=0.8,
                portion_size=4,
            ),
            "default": RadiativeLayer(
                shear=0.2, noise=0.3, num_trajectories=18, num_frames=51, frame_step=0.8
            ),
            "paper": RadiativeLayer(),
        },
    ),
    "planetswe": Benchmark(
        reader="well",
        about="planetswe of The Well: shallow water on the sphere",
        solvers={
            "quick": ShallowWaterSphere(),
            "default": ShallowWaterSphere(
                size=256, max_degree=170, damping_time=6.7, num_trajectories=20, num_frames=48
            ),
            "paper": ShallowWaterSphere(
                size=256,
                max_degree=255,
                damping_time=1.33,
                num_trajectories=40,
                num_frames=3024,
                hours_per_frame=1.0,
                burn_in=504.0,
            ),
        },
    ),
}

DATA_SETS: dict[str, Benchmark] = {
    **BENCHMARKS,
    "airfoil-series": Benchmark(
        reader="mesh-series",
        about="a vortex drifts past an airfoil, on triangular meshes (MeshGraphNets' layout)",
        solvers={
            "quick": AirfoilVortex(num_trajectories=10),
            "default": AirfoilVortex(num_trajectories=60),
            "paper": AirfoilVortex(num_trajectories=1000, num_around=220, num_out=80),
        },
    ),
}
"""All that can be made or is read by name: the benchmarks, and what goes beyond them."""


def solver_for(name: str, preset: str, changes: Mapping[str, str]) -> AbstractSolver:
    """Returns the solver of a data set at one size, with single numbers set otherwise."""
    if name not in DATA_SETS:
        raise ValueError(f"`name` must be one of {', '.join(DATA_SETS)}, got {name!r}.")
    solvers = DATA_SETS[name].solvers
    if not solvers:
        able = ", ".join(key for key, benchmark in DATA_SETS.items() if benchmark.solvers)
        raise ValueError(
            f"{name} cannot be made here: it is read from its published files "
            f"(gpo data info FILE). Can be made: {able}."
        )
    if preset not in solvers:
        raise ValueError(f"`preset` must be one of {', '.join(solvers)}, got {preset!r}.")
    solver = solvers[preset]
    numbers = {key.replace("-", "_"): value for key, value in changes.items()}
    return replace(solver, **{key: _parse(solver, key, text) for key, text in numbers.items()})  # type: ignore[type-var]


def cache_folder() -> Path:
    """Returns where made data is kept: $GPO_CACHE, or a folder under the user's cache."""
    chosen = os.environ.get("GPO_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gpo"


def _parse(solver: AbstractSolver, name: str, text: str) -> Any:
    if name not in getattr(solver, "__dataclass_fields__", {}):
        known = ", ".join(getattr(solver, "__dataclass_fields__", {}))
        raise ValueError(f"`{name}` is not a number of this solver, which has {known}.")
    usual = getattr(solver, name)
    kind = type(usual[0]) if isinstance(usual, tuple) else type(usual)
    try:
        if isinstance(usual, tuple):
            return tuple(kind(part) for part in text.split(","))
        return kind(text)
    except ValueError as error:
        what = (
            f"{kind.__name__}, several with commas" if isinstance(usual, tuple) else kind.__name__
        )
        raise ValueError(f"`{name}` must be {what}, got {text!r}.") from error
