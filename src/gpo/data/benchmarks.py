"""Data sets by name, the paper's benchmarks first: which reader reads and which solver makes them.

A new solver is one new file in `solvers/`, with a subclass of `AbstractSolver` and its `PRESETS`,
and one entry of `DATA_SETS`, which names the module. Solvers are imported when they are used.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpo.optional import require
from gpo.registry import Registry

if TYPE_CHECKING:
    from gpo.data.solvers.base import AbstractSolver


@dataclass(frozen=True)
class Benchmark:
    """A data set: how its files are read, and how they can be made."""

    reader: str
    """Name of the reader of its published files."""
    about: str
    """A description in one line."""
    variables: tuple[str, ...] = ()
    """Variables of the file that the paper uses; all when empty."""
    solver: str = ""
    """Module of the solver that makes such files; empty for observations."""

    @property
    def solvers(self) -> Mapping[str, "AbstractSolver"]:
        """The solver by preset (quick, default, paper); empty for observations."""
        if not self.solver:
            return {}
        return require(self.solver, "data", f"The solver {self.solver}").PRESETS


DATA_SETS: Registry[Benchmark] = Registry(
    "benchmark",
    {
        "ns2d": Benchmark(
            reader="ns2d",
            about="incompressible turbulence in a periodic box, 64 x 64 (FNO's files)",
            solver="gpo.data.solvers.navier_stokes_2d",
        ),
    },
)
"""All data sets that can be read or made by name; the package `gpo_bench` registers its own."""


def solver_for(name: str, preset: str, changes: Mapping[str, str]) -> "AbstractSolver":
    """Returns the solver of a data set at a preset, with some of its numbers changed."""
    if name not in DATA_SETS:
        raise ValueError(f"`name` must be one of {', '.join(DATA_SETS)}, got {name!r}.")
    solvers = DATA_SETS[name].solvers
    if not solvers:
        able = ", ".join(key for key, benchmark in DATA_SETS.items() if benchmark.solver)
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


def _parse(solver: "AbstractSolver", name: str, text: str) -> Any:
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
