"""Makes a data file: in portions, resumable, and whole or not there at all.

Finished portions wait in a folder beside the file. The file is assembled from them in one
go and moved into place, so an interrupted run goes on where it was and ends in the very
bytes an uninterrupted one gives.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from gpo.data.errors import DataError
from gpo.data.solvers.base import AbstractSolver, Portion
from gpo.files import whole_file, write_text


def generate(
    solver: AbstractSolver, path: Path, on_progress: Callable[[int, int], None] = lambda *_: None
) -> bool:
    """Makes the file unless it is there already; returns whether anything was made.

    Args:
        solver: The equation and all its numbers.
        path: The file to make. One made from other numbers is refused, never overwritten.
        on_progress: Called with trajectories done and in all, first with those found done.
    """
    recipe = _recipe(solver)
    note = path.with_name(path.name + ".made.json")
    if path.exists():
        if not note.exists() or note.read_text(encoding="utf-8") != recipe:
            raise DataError(
                path, "file", "exists and was made from something else. Choose another --out."
            )
        on_progress(solver.num_trajectories, solver.num_trajectories)
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    parts = path.with_name(f".{path.name}.{digest}.parts")
    parts.mkdir(exist_ok=True)
    files = _solve_missing(solver, parts, on_progress)
    partial = path.with_name(f".{path.name}.{digest}.partial")
    if partial.is_dir():
        shutil.rmtree(partial)
    solver.write(partial, _load(files))
    write_text(note, recipe)
    os.replace(partial, path)
    shutil.rmtree(parts)
    return True


def _recipe(solver: AbstractSolver) -> str:
    numbers = {"solver": type(solver).__name__, **asdict(solver)}  # type: ignore[call-overload]
    return json.dumps(numbers, indent=2, sort_keys=True) + "\n"


def _solve_missing(
    solver: AbstractSolver, parts: Path, on_progress: Callable[[int, int], None]
) -> list[Path]:
    starts = range(0, solver.num_trajectories, solver.portion_size)
    files = [parts / f"{start:06d}.npz" for start in starts]
    is_done = [file.exists() for file in files]
    ends = [min(start + solver.portion_size, solver.num_trajectories) for start in starts]
    done = sum(
        end - start for start, end, there in zip(starts, ends, is_done, strict=True) if there
    )
    on_progress(done, solver.num_trajectories)
    for start, end, file, there in zip(starts, ends, files, is_done, strict=True):
        if there:
            continue
        portion = solver.solve(range(start, end))
        with whole_file(file) as partial:
            np.savez(partial, **portion)  # type: ignore[arg-type]
        done += end - start
        on_progress(done, solver.num_trajectories)
    return files


def _load(files: list[Path]) -> Iterator[Portion]:
    for file in files:
        with np.load(file, allow_pickle=False) as arrays:
            yield {name: arrays[name] for name in arrays.files}
