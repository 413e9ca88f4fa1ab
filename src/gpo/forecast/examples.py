"""Examples for training: windows of time series or static maps, read and padded to one size.

A batch is in double precision, whose means and origin are not subtracted yet. What is kept in memory
has the precision of the file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from gpo.data.dataset import StaticMaps, Trajectories, frame_chunks
from gpo.data.gaps import carry_known, fill_gaps
from gpo.data.geometry import Geometry
from gpo.data.splits import TimeSlice
from gpo.parallel.partition import SitePartition

MAX_BYTES = 2**30
"""A data set up to this size is kept in memory."""


@dataclass(frozen=True)
class Example:
    """Some examples of one size; what is missing is filled in where it is given, and never scored."""

    frames: Float[Tensor, "batch history points inputs"]
    """What is given; a static map has a history of one."""
    targets: Float[Tensor, "batch steps points outputs"]
    """What follows, `lead` steps apart; one frame unless a rollout is trained."""
    coords: Float[Tensor, "batch points dim"]
    weights: Float[Tensor, "batch points"]
    """Quadrature weights of what is scored; zero wherever a value of the example is missing."""
    site_weights: Float[Tensor, "batch points"]
    """Those that a model is given; zero at masked sites alone, because gaps in time are filled."""
    num_sites: tuple[int, ...]
    """Sites of every example, those that other processes hold included."""
    num_forcings: int = 0
    """Forcings that a frame begins with: known in advance, such as the time of day."""
    forcings: Float[Tensor, "batch later points forcings"] | None = None
    """Those of the targets after the first, where a rollout is trained."""

    @property
    def fields(self) -> Float[Tensor, "batch history points fields"]:
        """What is given without what is known of any time."""
        return self.frames[..., self.num_forcings :]

    @property
    def target(self) -> Float[Tensor, "batch points outputs"]:
        """What follows next."""
        return self.targets[:, 0]

    def to(self, device: torch.device | str) -> "Example":
        """Returns the same on another device."""
        names = ("frames", "targets", "coords", "weights", "site_weights", "forcings")
        parts = {name: getattr(self, name) for name in names}
        moved = {name: part.to(device) for name, part in parts.items() if part is not None}
        return replace(self, **moved)


class WindowExamples(Dataset[Example]):
    """Windows of time series.

    Args:
        data: The time series.
        windows: Those of one split.
        num_steps: Frames that follow in an example; a window whose split ends before is left out.
        reconstructs: Whether the last frame given is itself the target.
        partition: Which sites; weights stay those of the whole geometry.
    """

    def __init__(
        self,
        data: Trajectories,
        windows: Sequence[TimeSlice],
        *,
        num_steps: int = 1,
        reconstructs: bool = False,
        partition: SitePartition = SitePartition(),
    ) -> None:
        self.data, self.num_steps, self.reconstructs = data, num_steps, reconstructs
        self.partition = partition
        self.windows = followed(windows, num_steps)
        num_frames = data.num_trajectories * len(data.time)
        num_points = data.geometry().num_points / partition.count
        size = data.number_type.itemsize
        # Whether a window is read from the file whenever it is asked for.
        self.is_lazy = size * num_frames * num_points * len(data.variables) > MAX_BYTES
        self._kept: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> Example:
        window = self.windows[index]
        geometry = self.data.geometry(window.trajectory)
        inputs, sites = window.inputs, self.partition.among(geometry.num_points)
        times = slice(inputs.start, inputs.stop, inputs.step)
        frames = self._frames(window.trajectory, times)
        if self.reconstructs:
            return _example(frames, frames[-1:], geometry, sites)
        stop = window.target + (self.num_steps - 1) * window.lead + 1
        targets = self._frames(window.trajectory, slice(window.target, stop, window.lead))
        example = _example(frames, targets, geometry, sites)
        return self._with_forcings(example, window, sites) if self.data.known else example

    def _with_forcings(self, example: Example, window: TimeSlice, sites: slice) -> Example:
        """Puts the forcings of the time that a frame predicts before it."""
        history, lead = example.frames.shape[1], window.lead
        times = window.first + lead * np.arange(1, history + self.num_steps)
        known = self.data.forcing_frames(window.trajectory, times, sites)
        known = torch.from_numpy(known)[None].double()
        return replace(
            example,
            frames=torch.cat([known[:, :history], example.frames], -1),
            num_forcings=known.shape[-1],
            forcings=known[:, history:],
        )

    def _frames(self, trajectory: int, times: slice) -> np.ndarray:
        if self.is_lazy:
            sites = self.partition.among(self.data.geometry(trajectory).num_points)
            return self.data.frames(trajectory, times, sites)
        if trajectory not in self._kept:
            self._kept[trajectory] = self._whole(trajectory)
        return self._kept[trajectory][times]

    def _whole(self, trajectory: int) -> np.ndarray:
        num_times, num_variables = len(self.data.time), len(self.data.variables)
        sites = self.partition.among(self.data.geometry(trajectory).num_points)
        shape = num_times, sites.stop - sites.start, num_variables
        whole = np.empty(shape, self.data.number_type)
        for part in frame_chunks(self.data, {trajectory: range(num_times)}):
            whole[part.frames.start : part.frames.stop] = part.read(self.data, sites)
        return whole


class MapExamples(Dataset[Example]):
    """Samples of static maps, at all sites or at those of one partition."""

    def __init__(
        self, data: StaticMaps, numbers: Sequence[int], partition: SitePartition = SitePartition()
    ) -> None:
        self.data, self.numbers, self.partition = data, numbers, partition
        per_site = len(data.inputs) + len(data.outputs)
        # Samples are always read anew; whether there are too many for the cache of the system.
        self.is_lazy = 4 * len(numbers) * data.geometry().num_points * per_site > MAX_BYTES

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Example:
        number = self.numbers[index]
        given, wanted = self.data.sample(number)
        sites = self.partition.among(len(given))
        return _example(given[None, sites], wanted[None, sites], self.data.geometry(number), sites)


def make_examples(
    data: Trajectories | StaticMaps,
    members: Sequence[Any],
    *,
    num_steps: int = 1,
    reconstructs: bool = False,
    partition: SitePartition = SitePartition(),
) -> WindowExamples | MapExamples:
    """Returns the examples of one split of either kind of data.

    Args:
        data: The data set.
        members: Windows of time series, or numbers of static maps.
        num_steps: Frames that follow in an example.
        reconstructs: Whether the last frame given is itself the target.
        partition: Which sites; weights stay those of the whole geometry.
    """
    if not isinstance(data, StaticMaps):
        return WindowExamples(
            data, members, num_steps=num_steps, reconstructs=reconstructs, partition=partition
        )
    if num_steps > 1 or reconstructs:
        what = "rollout" if num_steps > 1 else "stage field"
        raise ValueError(f"{data.source} holds static maps: {what} needs a time series.")
    return MapExamples(data, members, partition)


def reading_ahead(examples: WindowExamples | MapExamples) -> dict[str, Any]:
    """Returns settings of a `DataLoader`: a process reads the next batches where data is lazy."""
    if not examples.is_lazy:
        return {}
    return {"num_workers": 1, "prefetch_factor": 2, "persistent_workers": True}


def followed(windows: Sequence[TimeSlice], num_steps: int) -> Sequence[TimeSlice]:
    """Returns the windows that are followed by others of the same split, `num_steps` in all."""
    if num_steps == 1:
        return windows
    present = {(window.trajectory, window.first) for window in windows}
    kept = [
        window for window in windows
        if all((window.trajectory, window.first + ahead * window.lead) in present
               for ahead in range(num_steps))
    ]  # fmt: skip
    if not kept:
        raise ValueError(
            f"`rollout` must fit into the training series, got {num_steps} steps: no window is "
            "followed by so many others. Choose a smaller one."
        )
    return kept


def _example(frames: np.ndarray, targets: np.ndarray, geometry: Geometry, sites: slice) -> Example:
    is_known = np.asarray(np.isfinite(frames).all((0, 2)) & np.isfinite(targets).all((0, 2)))
    weights = geometry.weights[sites]
    given = np.where(weights[:, None] > 0, fill_gaps(carry_known(frames), geometry, sites), 0.0)
    scored = np.where(is_known, weights, 0.0)
    parts = (
        given, np.where(is_known[:, None], targets, 0.0), geometry.coords[sites], scored, weights
    )  # fmt: skip
    tensors = (torch.from_numpy(part.astype(np.float64))[None] for part in parts)
    return Example(*tensors, num_sites=(geometry.num_points,))


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


class Batches(Sampler[list[int]]):
    """Batches in a given order, of which every process takes its share.

    All shares together are the batch that one process alone would take. Where a batch does
    not divide evenly, its first examples count twice.
    """

    def __init__(
        self, order: EpochShuffle, batch_size: int, *, rank: int = 0, world: int = 1
    ) -> None:
        if batch_size % world:
            raise ValueError(
                f"`batch_size` must be a multiple of the {world} processes, got {batch_size}."
            )
        # Lightning tells the epoch to a sampler of this name.
        self.sampler, self.batch_size, self.rank, self.world = order, batch_size, rank, world
        # Where the next pass begins: a run that was killed within one goes on in its middle.
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
    """Returns one batch; smaller sets of sites are padded with weight zero."""
    size = max(example.weights.shape[1] for example in examples)

    def padded(part: Tensor, axis: int) -> Tensor:
        missing = size - part.shape[axis]
        if missing == 0:
            return part
        shape = list(part.shape)
        shape[axis] = missing
        return torch.cat([part, part.new_zeros(shape)], axis)

    later = [example.forcings for example in examples]
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
    )
