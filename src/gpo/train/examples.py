"""Examples for training: windows of time series or static maps, read and padded to one size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from gpo.data.geometry import Geometry
from gpo.data.split import Window
from gpo.data.trajectories import Pairs, Trajectories
from gpo.numerics.normalize import Normalizer

MAX_BYTES = 2**30
"""A data set up to this size is kept in memory."""


@dataclass(frozen=True)
class Example:
    """Some examples of one size; missing values are zero and have weight zero."""

    frames: Float[Tensor, "batch history points inputs"]
    """What is given; a static map has a history of one."""
    target: Float[Tensor, "batch points outputs"]
    coords: Float[Tensor, "batch points dim"]
    weights: Float[Tensor, "batch points"]

    def to(self, device: torch.device | str) -> "Example":
        """Returns the same on another device."""
        parts = (self.frames, self.target, self.coords, self.weights)
        return Example(*(part.to(device) for part in parts))


class WindowExamples(Dataset[Example]):
    """Windows of time series."""

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
        return _example(frames, target, geometry)

    def _frames(self, trajectory: int, times: slice) -> np.ndarray:
        if not self._keeps:
            return self.data.frames(trajectory, times)
        if trajectory not in self._kept:
            self._kept[trajectory] = self.data.frames(trajectory).astype(np.float32)
        return self._kept[trajectory][times]


class MapExamples(Dataset[Example]):
    """Samples of static maps."""

    def __init__(self, data: Pairs, numbers: Sequence[int]) -> None:
        self.data, self.numbers = data, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Example:
        number = self.numbers[index]
        given, wanted = self.data.sample(number)
        return _example(given[None], wanted, self.data.geometry(number))


def make_examples(data: Trajectories | Pairs, members: Sequence[Any]) -> Dataset[Example]:
    """Returns the examples of one split of either kind of data."""
    if isinstance(data, Pairs):
        return MapExamples(data, members)
    return WindowExamples(data, members)


def _example(frames: np.ndarray, target: np.ndarray, geometry: Geometry) -> Example:
    is_known = np.asarray(np.isfinite(frames).all((0, 2)) & np.isfinite(target).all(1))
    weights = np.where(is_known, geometry.weights, 0.0)
    zeroed = (np.where(is_known[:, None], part, 0.0) for part in (frames, target))
    parts = (*zeroed, geometry.coords, weights)
    return Example(*(torch.from_numpy(part.astype(np.float32))[None] for part in parts))


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
    data: Trajectories | Pairs, members: Sequence[Any]
) -> tuple[Normalizer, Normalizer, np.ndarray]:
    """Returns the normalisers of inputs and outputs, and the size of changes in units of the latter.

    Args:
        data: The data set.
        members: Its training split; nothing else is looked at.
    """
    if isinstance(data, Pairs):
        samples = [(data.sample(number), data.geometry(number).weights) for number in members]
        inputs = Normalizer.fit((given[None], weights) for (given, _), weights in samples)
        outputs = Normalizer.fit((wanted[None], weights) for (_, wanted), weights in samples)
        return inputs, outputs, np.ones(len(data.outputs))
    normalizer = Normalizer.fit(_used_frames(data, members))
    changes = Normalizer.fit(_changes(data, members))
    size = np.sqrt(changes.std**2 + changes.mean**2) / normalizer.std
    return normalizer, normalizer, np.maximum(size, 1e-6)


def _used_frames(
    data: Trajectories, windows: Sequence[Window]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    used: dict[int, set[int]] = {}
    for window in windows:
        used.setdefault(window.trajectory, set()).update((*window.inputs, window.target))
    for number, frames in used.items():
        yield data.frames(number)[sorted(frames)], data.geometry(number).weights


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
