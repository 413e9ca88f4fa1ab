"""Generates a data file in portions; an interrupted run can be resumed.

Finished portions are stored in a folder next to the file. The file is assembled from them and then
renamed, so it is complete or absent, and a resumed run produces the same bytes as an uninterrupted
run.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from gpo.atomic_files import atomic_file, write_text
from gpo.data.dataset import DataError
from gpo.data.solvers.base import AbstractSolver, Portion


def generate(
    solver: AbstractSolver, path: Path, on_progress: Callable[[int, int], None] = lambda *_: None
) -> bool:
    """Generates the file unless it exists; returns whether it was generated.

    Args:
        solver: The solver with all its parameters.
        path: The file to write. A file generated with other parameters is never overwritten.
        on_progress: Called with the numbers of finished and of all trajectories, also while
            another process generates the file.
    """
    recipe = _recipe(solver)
    note = path.with_name(path.name + ".made.json")
    if path.exists():
        _check_recipe(path, note, recipe)
        on_progress(solver.num_trajectories, solver.num_trajectories)
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    parts = path.with_name(f".{path.name}.{digest}.parts")
    with _locked(parts.with_suffix(".lock"), lambda: on_progress(*_progress(solver, parts))):
        if path.exists():
            # Another process generated it in the meantime.
            return generate(solver, path, on_progress)
        parts.mkdir(exist_ok=True)
        files = _solve_missing(solver, parts, on_progress)
        partial = parts.with_suffix(".partial")
        if partial.is_dir():
            shutil.rmtree(partial)
        solver.write(partial, _load(files))
        write_text(note, recipe)
        os.replace(partial, path)
        shutil.rmtree(parts)
    return True


def _check_recipe(path: Path, note: Path, recipe: str) -> None:
    if not note.exists() or note.read_text(encoding="utf-8") != recipe:
        problem = "exists and was generated with other parameters. Choose another --out."
        raise DataError(path, "file", problem)


@contextmanager
def _locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds a lock file, which is removed when the block succeeds.

    A process that waited on a removed lock file finds the generated data file.
    """
    lock = FileLock(path)
    while not lock.is_locked:
        try:
            lock.acquire(timeout=1.0)
        except Timeout:
            on_wait()
    try:
        yield
        path.unlink(missing_ok=True)
    finally:
        lock.release()


def _recipe(solver: AbstractSolver) -> str:
    parameters = {"solver": type(solver).__name__, **asdict(solver)}  # type: ignore[call-overload]
    return json.dumps(parameters, indent=2, sort_keys=True) + "\n"


def _solve_missing(
    solver: AbstractSolver, parts: Path, on_progress: Callable[[int, int], None]
) -> list[Path]:
    portions = _portions(solver, parts)
    on_progress(*_progress(solver, parts))
    for trajectories, file in portions.items():
        if file.exists():
            continue
        portion = solver.solve(trajectories)
        with atomic_file(file) as partial:
            np.savez(partial, **portion)  # type: ignore[arg-type]
        on_progress(*_progress(solver, parts))
    return list(portions.values())


def _portions(solver: AbstractSolver, parts: Path) -> dict[range, Path]:
    """Returns the file of each range of trajectories."""
    total = solver.num_trajectories
    starts = range(0, total, solver.portion_size)
    return {
        range(start, min(start + solver.portion_size, total)): parts / f"{start:06d}.npz"
        for start in starts
    }


def _progress(solver: AbstractSolver, parts: Path) -> tuple[int, int]:
    """Returns the number of solved trajectories, and of all."""
    portions = _portions(solver, parts).items()
    num_solved = sum(len(trajectories) for trajectories, file in portions if file.exists())
    return num_solved, solver.num_trajectories


def _load(files: list[Path]) -> Iterator[Portion]:
    for file in files:
        with np.load(file, allow_pickle=False) as arrays:
            yield {name: arrays[name] for name in arrays.files}
