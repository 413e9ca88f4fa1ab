"""Makes a data file in portions; an interrupted run can be resumed.

Finished portions are kept in a folder beside the file. The file is assembled from them and then
moved to its name, so it is complete or absent, and a resumed run gives the same bytes as an
uninterrupted one.
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

from gpo.atomic_files import whole_file, write_text
from gpo.data.dataset import DataError
from gpo.data.solvers.base import AbstractSolver, Portion


def generate(
    solver: AbstractSolver, path: Path, on_progress: Callable[[int, int], None] = lambda *_: None
) -> bool:
    """Makes the file unless it exists; returns whether it was made.

    Args:
        solver: The equation and all its numbers.
        path: The file to make. One made from other numbers is refused, never overwritten.
        on_progress: Called with trajectories done and in all, first with those found done; while
            another process makes the file, with what that has done.
    """
    recipe = _recipe(solver)
    note = path.with_name(path.name + ".made.json")
    if path.exists():
        _check_made(path, note, recipe)
        on_progress(solver.num_trajectories, solver.num_trajectories)
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    parts = path.with_name(f".{path.name}.{digest}.parts")
    with _alone(parts.with_suffix(".lock"), lambda: on_progress(*_progress(solver, parts))):
        if path.exists():
            # Another process made it in the meantime.
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


def _check_made(path: Path, note: Path, recipe: str) -> None:
    if not note.exists() or note.read_text(encoding="utf-8") != recipe:
        raise DataError(
            path, "file", "exists and was made from something else. Choose another --out."
        )


@contextmanager
def _alone(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Keeps other processes out until the block ends; the lock goes with what it was for.

    Whoever held the lock's file open when it was removed finds the work done.
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
    numbers = {"solver": type(solver).__name__, **asdict(solver)}  # type: ignore[call-overload]
    return json.dumps(numbers, indent=2, sort_keys=True) + "\n"


def _solve_missing(
    solver: AbstractSolver, parts: Path, on_progress: Callable[[int, int], None]
) -> list[Path]:
    portions = _portions(solver, parts)
    on_progress(*_progress(solver, parts))
    for numbers, file in portions.items():
        if file.exists():
            continue
        portion = solver.solve(numbers)
        with whole_file(file) as partial:
            np.savez(partial, **portion)  # type: ignore[arg-type]
        on_progress(*_progress(solver, parts))
    return list(portions.values())


def _portions(solver: AbstractSolver, parts: Path) -> dict[range, Path]:
    """Returns which trajectories are in which file."""
    total = solver.num_trajectories
    starts = range(0, total, solver.portion_size)
    return {
        range(start, min(start + solver.portion_size, total)): parts / f"{start:06d}.npz"
        for start in starts
    }


def _progress(solver: AbstractSolver, parts: Path) -> tuple[int, int]:
    """Returns how many trajectories are solved, and of how many."""
    solved = [len(numbers) for numbers, file in _portions(solver, parts).items() if file.exists()]
    return sum(solved), solver.num_trajectories


def _load(files: list[Path]) -> Iterator[Portion]:
    for file in files:
        with np.load(file, allow_pickle=False) as arrays:
            yield {name: arrays[name] for name in arrays.files}
