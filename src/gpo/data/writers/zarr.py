"""Forecasts as Zarr, written block by block; an interrupted process can be resumed.

Until it is complete, the store is in the folder `NAME.zarr.unfinished`, beside `progress.json`
with its settings and the number of finished blocks. A block is one chunk of every variable, so
no chunk is written twice, except the one that an interruption cut short.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpo.atomic_files import whole_file, write_text
from gpo.data.query_points import block_shape, blocks
from gpo.data.writers.layout import (
    ATTRIBUTES,
    AbstractForecastWriter,
    ForecastLayout,
)
from gpo.optional import require

AXES = "_ARRAY_DIMENSIONS"
"""Attribute in which xarray expects the names of dimensions in Zarr of format 2."""
COORDINATES_AT_ONCE = 2**22


class ForecastStore(AbstractForecastWriter):
    """Writes forecasts, or resumes where an earlier process was interrupted.

    Args:
        path: The store, which must not exist yet.
        layout: Its variables, points and times.
        block: Shape of the blocks of points.
        settings: All that determines the numbers; a store with other settings is refused.
    """

    def __init__(
        self,
        path: Path,
        layout: ForecastLayout,
        block: Sequence[int],
        settings: Mapping[str, Any],
    ) -> None:
        self._zarr = require("zarr", "data", "Writing Zarr")
        self.path, self._layout = path, layout
        self.folder = path.with_name(f"{path.name}.unfinished")
        self._store, self._progress = self.folder / path.name, self.folder / "progress.json"
        self._state = self.folder / "state.npz"
        self._settings = json.loads(json.dumps(dict(settings)))
        self.num_done = self._resumed() if self._progress.exists() else self._create(block)
        self._arrays = [
            self._zarr.open_array(self._store / variable.name, mode="r+")
            for variable in layout.variables
        ]

    def write(self, index: tuple[int | slice, ...], values: np.ndarray) -> None:
        """Writes a block and counts it as finished."""
        for channel, array in enumerate(self._arrays):
            array[index] = values[..., channel]
        self._count(self.num_done + 1)

    def keep(self, case: int, step: int, frames: np.ndarray) -> None:
        """Stores the frames from which a step starts."""
        with whole_file(self._state) as partial:
            np.savez(partial, case=case, step=step, frames=frames)

    def kept(self) -> tuple[int, int, np.ndarray] | None:
        """Returns case, step and frames that were stored last."""
        if not self._state.exists():
            return None
        with np.load(self._state) as stored:
            return int(stored["case"]), int(stored["step"]), stored["frames"]

    def finish(self) -> None:
        """Moves the store to its place when all blocks are done."""
        os.replace(self._store, self.path)
        shutil.rmtree(self.folder)

    def _count(self, num_done: int) -> None:
        self.num_done = num_done
        write_text(
            self._progress, json.dumps({"num_done": num_done, "settings": self._settings}) + "\n"
        )

    def _resumed(self) -> int:
        """Returns how many blocks an earlier process has done; refuses one of other settings."""
        stored = json.loads(self._progress.read_text(encoding="utf-8"))
        before, now = stored["settings"], self._settings
        different = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if different:
            raise ValueError(
                f"{self.folder} holds an unfinished forecast of another {', '.join(different)}. "
                "Give the command it was begun with, choose another --output, or delete it."
            )
        # What a kill left of files that were being written.
        for partial in [*self._store.rglob("*.partial"), *self.folder.glob(".partial-*")]:
            partial.unlink()
        return int(stored["num_done"])

    def _create(self, block: Sequence[int]) -> int:
        if self.folder.exists():
            shutil.rmtree(self.folder)
        try:
            self._store.mkdir(parents=True)
            self._create_arrays(block)
            self._count(0)
        except BaseException:
            # There is nothing to resume yet.
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return 0

    def _create_arrays(self, block: Sequence[int]) -> None:
        layout = self._layout
        group = self._zarr.create_group(self._store, zarr_format=2, attributes=dict(ATTRIBUTES))
        for name, dims, numbers, attributes in layout.coordinates():
            chunk = block_shape(numbers.shape, COORDINATES_AT_ONCE)
            array = group.create_array(
                name, shape=numbers.shape, chunks=chunk, dtype=numbers.dtype, fill_value=None,
                attributes={AXES: list(dims), **attributes},
            )  # fmt: skip
            for part in blocks(numbers.shape, chunk):
                array[part] = np.ascontiguousarray(numbers[part])
        for name, dims, numbers, attributes in layout.auxiliaries():
            array = group.create_array(
                name, shape=numbers.shape, chunks=numbers.shape, dtype=numbers.dtype,
                fill_value=None, attributes={AXES: list(dims), **attributes},
            )  # fmt: skip
            array[...] = numbers
        before = (1,) * (len(layout.shape) - len(block))
        for variable in layout.variables:
            group.create_array(
                variable.name, shape=layout.shape, chunks=(*before, *block),
                dtype=layout.number_type, fill_value=np.nan, attributes={AXES: list(layout.dims), **layout.attributes(variable)},
            )  # fmt: skip
        self._zarr.consolidate_metadata(self._store)
