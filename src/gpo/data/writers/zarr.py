"""Writes forecasts as Zarr block by block; an interrupted process can be resumed.

An incomplete store is in the folder `NAME.zarr.unfinished`, together with `progress.json`, which has
its settings and the number of finished blocks. A block is one chunk of each variable, so only the
chunk that an interruption cut short is written twice.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpo.atomic_files import atomic_file, write_text
from gpo.data.query_points import block_shape, blocks
from gpo.data.writers.layout import ATTRIBUTES, AbstractForecastWriter, ForecastLayout
from gpo.optional import require

AXES = "_ARRAY_DIMENSIONS"
"""Attribute with the names of dimensions in Zarr format 2, as xarray expects it."""
COORDINATES_AT_ONCE = 2**22


class ForecastStore(AbstractForecastWriter):
    """Writes forecasts, or resumes an interrupted process.

    Args:
        path: The store, which must not exist yet.
        layout: Variables, points and times of the forecasts.
        block: Shape of the blocks of points.
        settings: All settings that determine the forecasts; resuming with other settings fails.
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
            self._zarr.open_array(self._store / name, mode="r+") for name in layout.names
        ]

    def write(self, index: tuple[int | slice, ...], values: np.ndarray) -> None:
        """Writes a block and records it as finished."""
        for channel, array in enumerate(self._arrays):
            array[index] = values[..., channel]
        self._count(self.num_done + 1)

    def keep(self, case: int, step: int, frames: np.ndarray) -> None:
        """Saves the input frames of a step."""
        with atomic_file(self._state) as partial:
            np.savez(partial, case=case, step=step, frames=frames)

    def kept(self) -> tuple[int, int, np.ndarray] | None:
        """Returns case, step and frames that were saved last."""
        if not self._state.exists():
            return None
        with np.load(self._state) as stored:
            return int(stored["case"]), int(stored["step"]), stored["frames"]

    def finish(self) -> None:
        """Moves the completed store to its path."""
        os.replace(self._store, self.path)
        shutil.rmtree(self.folder)

    def _count(self, num_done: int) -> None:
        self.num_done = num_done
        write_text(
            self._progress, json.dumps({"num_done": num_done, "settings": self._settings}) + "\n"
        )

    def _resumed(self) -> int:
        """Returns the number of finished blocks; raises a `ValueError` for other settings."""
        stored = json.loads(self._progress.read_text(encoding="utf-8"))
        before, now = stored["settings"], self._settings
        different = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if different:
            raise ValueError(
                f"{self.folder} holds an unfinished forecast of another {', '.join(different)}. "
                "Repeat the original command, choose another --output, or delete the folder."
            )
        # Partial files of a killed process.
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
        for name, dims, values, attributes in layout.coordinates():
            chunk = block_shape(values.shape, COORDINATES_AT_ONCE)
            array = group.create_array(
                name, shape=values.shape, chunks=chunk, dtype=values.dtype, fill_value=None,
                attributes={AXES: list(dims), **attributes},
            )  # fmt: skip
            for part in blocks(values.shape, chunk):
                array[part] = np.ascontiguousarray(values[part])
        for name, dims, values, attributes in layout.auxiliaries():
            array = group.create_array(
                name, shape=values.shape, chunks=values.shape, dtype=values.dtype,
                fill_value=None, attributes={AXES: list(dims), **attributes},
            )  # fmt: skip
            array[...] = values
        before = (1,) * (len(layout.shape) - len(block))
        for name, variable in zip(layout.names, layout.variables, strict=True):
            group.create_array(
                name, shape=layout.shape, chunks=(*before, *block),
                dtype=layout.number_type, fill_value=np.nan, attributes={AXES: list(layout.dims), **layout.attributes(variable)},
            )  # fmt: skip
        self._zarr.consolidate_metadata(self._store)
