"""Examples for training: frames of a time series, read, checked and padded to one size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from gpo.data.split import Window
from gpo.data.trajectories import Trajectories
from gpo.numerics.normalize import Normalizer

MAX_BYTES = 2**30
"""A data set up to this size is kept in memory."""


@dataclass(frozen=True)
class Example:
    """Some windows of one size; missing values are zero and have weight zero."""

    frames: Float[Tensor, "batch history points variables"]
    target: Float[Tensor, "batch points variables"]
    coords: Float[Tensor, "batch points dim"]
    weights: Float[Tensor, "batch points"]

    def to(self, device: torch.device | str) -> "Example":
        """Returns the same on another device."""
        parts = (self.frames, self.target, self.coords, self.weights)
        return Example(*(part.to(device) for part in parts))


class Examples(Dataset[Example]):
    """The windows of one split."""

    def __init__(self, data: Trajectories, windows: Sequence[Window]) -> None:
        self.data, self.windows = data, windows
        size = 4 * data.num_trajectories * len(data.time) * len(data.variables)
        self._keeps = size * data.geometry().num_points <= MAX_BYTES
        self._kept: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> Example:
        window = self.windows[index]
        geometry = self.data.geometry(window.trajectory)
        inputs = window.inputs
        frames = self._frames(window.trajectory, slice(inputs.start, inputs.stop, inputs.step))
        target = self._frames(window.trajectory, slice(window.target, window.target + 1))[0]
        is_known = np.isfinite(frames).all((0, 2)) & np.isfinite(target).all(1)
        weights = np.where(is_known, geometry.weights, 0.0)
        zeroed = (np.where(is_known[:, None], part, 0.0) for part in (frames, target))
        values, wanted = (torch.from_numpy(part.astype(np.float32)) for part in zeroed)
        coords = torch.from_numpy(geometry.coords.astype(np.float32))
        q = torch.from_numpy(weights.astype(np.float32))
        return Example(values[None], wanted[None], coords[None], q[None])

    def _frames(self, trajectory: int, times: slice) -> np.ndarray:
        if not self._keeps:
            return self.data.frames(trajectory, times)
        if trajectory not in self._kept:
            self._kept[trajectory] = self.data.frames(trajectory).astype(np.float32)
        return self._kept[trajectory][times]


class EpochShuffle(Sampler[int]):
    """An order of examples that depends on the seed and the epoch alone.

    A run that was killed meets the same examples in the same order when it goes on.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed, self.epoch = count, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Takes the number of the epoch, which Lightning tells."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        yield from torch.randperm(self.count, generator=generator).tolist()


def collate(examples: Sequence[Example]) -> Example:
    """Returns one batch; smaller sets of sites are padded with weight zero."""
    size = max(example.weights.shape[1] for example in examples)

    def padded(part: Tensor, axis: int) -> Tensor:
        missing = size - part.shape[axis]
        if missing == 0:
            return part
        shape = list(part.shape)
        shape[axis] = missing
        return torch.cat([part, part.new_zeros(shape)], axis)

    return Example(
        torch.cat([padded(example.frames, 2) for example in examples]),
        torch.cat([padded(example.target, 1) for example in examples]),
        torch.cat([padded(example.coords, 1) for example in examples]),
        torch.cat([padded(example.weights, 1) for example in examples]),
    )


def training_statistics(
    data: Trajectories, windows: Sequence[Window]
) -> tuple[Normalizer, np.ndarray]:
    """Returns the normaliser of training frames and the size of changes, in its units."""
    used: dict[int, set[int]] = {}
    for window in windows:
        frames = (*window.inputs, window.target)
        used.setdefault(window.trajectory, set()).update(frames)
    normalizer = Normalizer.fit(
        (data.frames(number)[sorted(frames)], data.geometry(number).weights)
        for number, frames in used.items()
    )
    changes = Normalizer.fit(_changes(data, windows))
    size = np.sqrt(changes.std**2 + changes.mean**2) / normalizer.std
    return normalizer, np.maximum(size, 1e-6)


def _changes(
    data: Trajectories, windows: Sequence[Window]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    by_trajectory: dict[int, list[Window]] = {}
    for window in windows:
        by_trajectory.setdefault(window.trajectory, []).append(window)
    for number, mine in by_trajectory.items():
        frames = data.frames(number)
        steps = [frames[window.target] - frames[window.last] for window in mine]
        yield np.stack(steps), data.geometry(number).weights
