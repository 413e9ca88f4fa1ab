"""Training examples from time slices of series, or from static maps, padded to equal size.

Batches are in double precision and not normalised.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from gpo.data.dataset import DataError, FieldData
from gpo.data.frame_cache import is_large
from gpo.data.frame_chunks import frame_chunks
from gpo.data.gaps import fill_gaps, fill_in_time
from gpo.data.geometry import Geometry
from gpo.data.seasons import seasons_of
from gpo.data.splits import TimeSlice, used_frames
from gpo.parallel.partition import SitePartition


@dataclass(frozen=True)
class Example:
    """A batch of examples of equal size; missing inputs are filled, missing targets not scored."""

    frames: Float[Tensor, "batch history points inputs"]
    """Input frames, oldest first; a static map has one."""
    targets: Float[Tensor, "batch steps points outputs"]
    """Target frames, `lead` steps apart; several only for rollout training."""
    coords: Float[Tensor, "batch points dim"]
    weights: Float[Tensor, "batch points"]
    """Quadrature weights for scores; zero at points with a missing value."""
    site_weights: Float[Tensor, "batch points"]
    """Quadrature weights for the model; zero at masked points only, because gaps are filled."""
    num_sites: tuple[int, ...]
    """Number of points of every example, over all processes."""
    num_forcings: int = 0
    """Number of forcings, the first channels of a frame."""
    forcings: Float[Tensor, "batch later points forcings"] | None = None
    """Forcings of the targets after the first, for rollout training."""
    seasons: Float[Tensor, "batch times 2"] | None = None
    """Time of day and month of the input frames and the targets; None for static maps."""

    @property
    def fields(self) -> Float[Tensor, "batch history points fields"]:
        """Input frames without forcings."""
        return self.frames[..., self.num_forcings :]

    @property
    def target(self) -> Float[Tensor, "batch points outputs"]:
        """The first target frame."""
        return self.targets[:, 0]

    def seasons_of_step(self, step: int) -> Float[Tensor, "batch times 2"] | None:
        """Returns time of day and month of the input frames and the target of a rollout step."""
        return (
            None
            if self.seasons is None
            else self.seasons[:, step : step + self.frames.shape[1] + 1]
        )

    def to(self, device: torch.device | str) -> "Example":
        """Returns a copy on another device."""
        names = ("frames", "targets", "coords", "weights", "site_weights", "forcings", "seasons")
        parts = {name: getattr(self, name) for name in names}
        moved = {name: part.to(device) for name, part in parts.items() if part is not None}
        return replace(self, **moved)


class TimeSliceExamples(Dataset[Example]):
    """Examples from time slices.

    Args:
        data: The data set.
        windows: Time slices of a split.
        num_steps: Number of targets per example; slices too close to the end of the split are
            dropped.
        reconstructs: Whether the target is the last input frame.
        partition: The points to read; weights remain those of the whole geometry.
    """

    def __init__(
        self,
        data: FieldData,
        windows: Sequence[TimeSlice],
        *,
        num_steps: int = 1,
        reconstructs: bool = False,
        partition: SitePartition = SitePartition(),
    ) -> None:
        self.data, self.num_steps, self.reconstructs = data, num_steps, reconstructs
        self.partition = partition
        self.windows = followed(windows, num_steps)
        # Whether frames are read from the file at every access.
        self.is_lazy = is_large(data, partition.count)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> Example:
        window = self.windows[index]
        geometry = self.data.geometry(window.sample)
        inputs, sites = window.inputs, self.partition.among(geometry.num_points)
        times = slice(inputs.start, inputs.stop, inputs.step)
        frames = self._frames(window.sample, times)
        if self.reconstructs:
            targets, targeted = frames[-1:], [window.last]
        else:
            stop = window.target + (self.num_steps - 1) * window.lead + 1
            targeted = range(window.target, stop, max(window.lead, 1))
            targets = self._frames(window.sample, slice(window.target, stop, max(window.lead, 1)))
        num_inputs = self.data.num_inputs
        fields = frames[..., : num_inputs or None]
        example = _example(fields, targets[..., num_inputs:], geometry, sites)
        example = replace(example, seasons=self._seasons[None, [*inputs, *targeted]])
        if self.reconstructs:
            return example
        return self._with_forcings(example, window, sites) if self.data.known else example

    @cached_property
    def _seasons(self) -> Float[Tensor, "times 2"]:
        return torch.from_numpy(seasons_of(self.data, range(len(self.data.time))))

    def _with_forcings(self, example: Example, window: TimeSlice, sites: slice) -> Example:
        """Prepends to each frame the forcings of the time that it predicts."""
        history, lead = example.frames.shape[1], window.lead
        times = window.first + lead * np.arange(1, history + self.num_steps)
        values = self.data.forcing_frames(window.sample, times, sites)
        forcings = torch.from_numpy(values)[None].double()
        return replace(
            example,
            frames=torch.cat([forcings[:, :history], example.frames], -1),
            num_forcings=forcings.shape[-1],
            forcings=forcings[:, history:],
        )

    def _frames(self, sample: int, times: slice) -> np.ndarray:
        sites = self.partition.among(self.data.geometry(sample).num_points)
        frames = self.data.frames(sample, times, sites)
        return frames.astype(self.data.number_type, copy=False)


def with_values(
    data: FieldData, samples: Sequence[TimeSlice], name: str
) -> tuple[tuple[TimeSlice, ...], str]:
    """Returns the examples of a split that can be learned, and a note if some cannot.

    A time slice is left out if no site has a value of all variables in one of its frames.

    Args:
        data: The data set.
        samples: Time slices of the split.
        name: Name of the split, for the note.
    """
    missing: set[tuple[int, int]] = set()
    for chunk in frame_chunks(data, used_frames(samples)):
        is_known = np.isfinite(chunk.read(data)).all(-1)
        is_known &= ~data.geometry(chunk.sample).is_masked
        empty = np.flatnonzero(~is_known.any(1)) + chunk.frames.start
        missing |= {(chunk.sample, frame) for frame in empty.tolist()}
    kept = tuple(
        part for part in samples
        if not any((part.sample, frame) in missing for frame in (*part.inputs, part.target))
    )  # fmt: skip
    if not kept:
        problem = f"are missing at all sites in {len(missing)} frames: no {name} example is left."
        raise DataError(data.source, "values", problem)
    if len(kept) == len(samples):
        return kept, ""
    left_out = f"{len(samples) - len(kept)} of {len(samples)} {name} examples are left out"
    return kept, f"{left_out}: {len(missing)} of their frames have no values"


def prefetch_settings(examples: TimeSliceExamples) -> dict[str, Any]:
    """Returns `DataLoader` settings: a worker prefetches batches if data are not in memory."""
    if not examples.is_lazy:
        return {}
    return {"num_workers": 1, "prefetch_factor": 2, "persistent_workers": True}


def rollout_starts(windows: Sequence[TimeSlice], num_steps: int) -> Sequence[TimeSlice]:
    """Returns the time slices with `num_steps` targets inside the same split; there may be none."""
    if num_steps == 1:
        return windows
    present = {(window.sample, window.first) for window in windows}
    return [
        window for window in windows
        if all((window.sample, window.first + ahead * window.lead) in present
               for ahead in range(num_steps))
    ]  # fmt: skip


def followed(windows: Sequence[TimeSlice], num_steps: int) -> Sequence[TimeSlice]:
    """Returns the time slices with `num_steps` targets; raises an error if there are none."""
    kept = rollout_starts(windows, num_steps)
    if not kept:
        raise ValueError(
            f"`rollout` must fit into the training series, got {num_steps} steps, more than any "
            "time slice has after it. Choose a smaller number."
        )
    return kept


def _example(frames: np.ndarray, targets: np.ndarray, geometry: Geometry, sites: slice) -> Example:
    is_known = np.asarray(np.isfinite(frames).all((0, 2)) & np.isfinite(targets).all((0, 2)))
    weights = geometry.weights[sites]
    inputs = np.where(weights[:, None] > 0, fill_gaps(fill_in_time(frames), geometry, sites), 0.0)
    scored = np.where(is_known, weights, 0.0)
    parts = (
        inputs, np.where(is_known[:, None], targets, 0.0), geometry.coords[sites], scored, weights
    )  # fmt: skip
    tensors = (torch.from_numpy(part.astype(np.float64))[None] for part in parts)
    return Example(*tensors, num_sites=(geometry.num_points,))


class EpochShuffle(Sampler[int]):
    """A random order of examples that depends only on seed and epoch, so that runs can resume."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed, self.epoch = count, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch; Lightning calls this."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        yield from torch.randperm(self.count, generator=generator).tolist()


class Batches(Sampler[list[int]]):
    """Batches in a fixed order, distributed over processes.

    The parts of all processes form the batch of a single process. If a batch does not divide
    evenly, its first examples are repeated.
    """

    def __init__(
        self, order: EpochShuffle, batch_size: int, *, rank: int = 0, world: int = 1
    ) -> None:
        if batch_size % world:
            raise ValueError(
                f"`batch_size` must be a multiple of the {world} processes, got {batch_size}."
            )
        # Lightning calls `set_epoch` of an attribute of this name.
        self.sampler, self.batch_size, self.rank, self.world = order, batch_size, rank, world
        # First batch of the next pass: non-zero after resuming within an epoch.
        self.first = 0

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order, first = list(self.sampler), self.first
        self.first = 0
        for start in range(first * self.batch_size, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            while len(batch) % self.world:
                batch += batch[: self.world - len(batch) % self.world]
            yield batch[self.rank :: self.world]


def collate(examples: Sequence[Example]) -> Example:
    """Returns a batch; smaller sets of points are padded with weight zero."""
    size = max(example.weights.shape[1] for example in examples)

    def padded(part: Tensor, axis: int) -> Tensor:
        missing = size - part.shape[axis]
        if missing == 0:
            return part
        shape = list(part.shape)
        shape[axis] = missing
        return torch.cat([part, part.new_zeros(shape)], axis)

    later = [example.forcings for example in examples]
    seasons = [example.seasons for example in examples if example.seasons is not None]
    return Example(
        torch.cat([padded(example.frames, 2) for example in examples]),
        torch.cat([padded(example.targets, 2) for example in examples]),
        torch.cat([padded(example.coords, 1) for example in examples]),
        torch.cat([padded(example.weights, 1) for example in examples]),
        torch.cat([padded(example.site_weights, 1) for example in examples]),
        tuple(number for example in examples for number in example.num_sites),
        examples[0].num_forcings,
        None
        if None in later
        else torch.cat([padded(part, 2) for part in later if part is not None]),
        torch.cat(seasons) if seasons else None,
    )
