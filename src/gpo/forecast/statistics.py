"""Statistics of the training split: per variable, and pointwise for static maps.

They are computed in one pass, without keeping the data in memory. Samples such as flows around
similar shapes differ little from their pointwise mean; normalising by one mean per variable would
hide these differences.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from rich.progress import track
from safetensors.torch import load, save
from torch import Tensor

from gpo.atomic_files import atomic_file
from gpo.data.dataset import FieldData
from gpo.data.frame_chunks import frame_chunks
from gpo.data.splits import TimeSlice, used_frames
from gpo.model.checkpoint import check_numbers, sha256
from gpo.settings_files import CheckpointError

MIN_SQUARE = 1e-300
"""Smallest mean square that double precision holds in full."""
MAX_NUMBERS = 2**21
"""Maximum number of values processed at once."""


@dataclass(frozen=True)
class Normalizer:
    """Scales every variable to zero mean and unit variance."""

    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def fit(
        cls, portions: Iterable[tuple[np.ndarray, np.ndarray]], names: Sequence[str] = ()
    ) -> "Normalizer":
        """Returns the statistics of a stream of fields in one pass.

        Args:
            portions: Pairs of values (times, points, variables) and quadrature weights
                (points); NaN and points of weight zero are ignored.
            names: Names of the variables in error messages.
        """
        moments = Moments(names)
        for values, weights in portions:
            moments.add(values, weights)
        return moments.normalizer()

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Returns normalised values, variables last."""
        return (values - self.mean) / self.std


class Moments:
    """Weighted sums over a stream of fields, for mean and variance."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = names
        self._shift: np.ndarray | None = None
        self._mass = self._total = self._squares = np.zeros(0)
        self._varies: np.ndarray | bool = False

    def add(self, values: np.ndarray, weights: np.ndarray) -> None:
        """Adds fields, in chunks of points.

        Args:
            values: Times by points by variables; NaN is ignored.
            weights: Quadrature weights; points of weight 0 are ignored.
        """
        numbers = max(1, values.shape[0] * values.shape[2])
        size = max(1, MAX_NUMBERS // numbers)
        parts = [slice(start, start + size) for start in range(0, values.shape[1], size)]
        if self._shift is None:
            # Subtracting a typical value avoids cancellation.
            self._shift = _plain_mean([(values[:, part], weights[part]) for part in parts])
            self._mass = self._total = self._squares = np.zeros(values.shape[2])
        for part in parts:
            fields, is_known = _known(values[:, part], weights[part])
            centered = np.where(is_known, fields - self._shift, 0.0)
            self._mass = self._mass + weights[part] @ is_known.sum(0)
            self._total = self._total + weights[part] @ centered.sum(0)
            with np.errstate(over="ignore", under="ignore"):
                self._squares = self._squares + weights[part] @ np.square(centered).sum(0)
            self._varies = self._varies | (centered != 0).any((0, 1))

    def normalizer(self) -> Normalizer:
        """Returns the statistics of all added fields."""
        if self._shift is None or not np.all(self._mass > 0):
            raise ValueError("Every variable must have at least one value.")
        mean = self._total / self._mass
        is_lost = ~np.isfinite(self._squares) | (
            (self._squares < MIN_SQUARE * self._mass) & self._varies
        )
        if is_lost.any():
            number = int(np.flatnonzero(is_lost)[0])
            name = self._names[number] if self._names else f"variable {number + 1}"
            raise ValueError(
                f"{name} must be between 1e-150 and 1e150 in magnitude, to be squared in double "
                "precision: change its units."
            )
        std = np.sqrt(np.maximum(self._squares / self._mass - mean**2, 0))
        # A constant variable is only shifted.
        return Normalizer(mean + self._shift, np.where(std > 0, std, 1.0))


def _known(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns values in double precision and the mask of valid ones."""
    values = np.asarray(values, dtype=np.float64)
    return values, np.isfinite(values) & (weights > 0)[:, None]


def _plain_mean(parts: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    total = count = np.zeros(1)
    for values, weights in parts:
        values, is_known = _known(values, weights)
        total = total + np.where(is_known, values, 0.0).sum((0, 1))
        count = count + is_known.sum((0, 1))
    return total / np.maximum(count, 1)


FILE_NAME = "site_means.safetensors"
MIN_SCALE = 1e-3
"""Smallest pointwise standard deviation, as a fraction of that over all points."""


@dataclass(frozen=True)
class SiteMeans:
    """Pointwise means over samples whose points correspond, such as nodes of a structured mesh."""

    inputs: Float[Tensor, "points inputs"]
    outputs: Float[Tensor, "points outputs"]
    input_scale: Float[Tensor, "points inputs"] | None = None
    """Standard deviation at every point; None for one per variable."""
    output_scale: Float[Tensor, "points outputs"] | None = None

    @classmethod
    def of_series(
        cls, data: FieldData, windows: Sequence[TimeSlice], forcings: Normalizer
    ) -> "SiteMeans":
        """Returns mean and standard deviation over all frames of a split, at every point.

        Where a variable hardly varies, as at a wall, it has its standard deviation over all points.

        Args:
            data: Time series with the same points in all trajectories.
            windows: The split.
            forcings: Statistics of the forcings, which have no pointwise ones.
        """
        if len(data.geometries) > 1:
            raise ValueError(
                "`normalise` must be variables where points differ by trajectory, got points."
            )
        count = total = squares = np.zeros(1)
        # Subtracting a typical value avoids cancellation.
        first = np.nan_to_num(data.frames(windows[0].sample, slice(0, 1))[0].astype(np.float64))
        for part in frame_chunks(data, used_frames(windows)):
            values = part.read(data).astype(np.float64)
            is_known = np.isfinite(values)
            centered = np.where(is_known, values - first, 0.0)
            count = count + is_known.sum(0)
            total = total + centered.sum(0)
            squares = squares + np.square(centered).sum(0)
        mean = total / np.maximum(count, 1)
        variance = np.maximum(squares / np.maximum(count, 1) - mean**2, 0.0)
        usual = np.sqrt(variance.mean(0))
        scale = np.sqrt(variance)
        scale = np.where(scale > MIN_SCALE * usual, scale, np.where(usual > 0, usual, 1.0))
        outputs = torch.from_numpy(mean + first), torch.from_numpy(scale)
        shape = (len(scale), -1)
        inputs = (
            torch.cat([torch.from_numpy(known).expand(*shape), own], -1)
            for known, own in zip((forcings.mean, forcings.std), outputs, strict=True)
        )
        means, scales = inputs
        return cls(means, outputs[0], scales, outputs[1])

    @classmethod
    def of(cls, data: FieldData, samples: Sequence[TimeSlice]) -> "SiteMeans | None":
        """Returns the means of static maps; None if they differ in their number of points."""
        counts = {data.geometry(number).num_points for number in range(data.num_samples)}
        if len(counts) > 1:
            return None
        sums = [_Mean(), _Mean()]
        for part in frame_chunks(data, used_frames(samples)):
            values = part.read(data)[0]
            sums[0].add(values[:, : data.num_inputs])
            sums[1].add(values[:, data.num_inputs :])
        return cls(*(total.mean() for total in sums))

    def save(self, folder: Path) -> None:
        """Writes the means into the folder of a model."""
        with atomic_file(folder / FILE_NAME) as partial:
            partial.write_bytes(self._packed())

    def sha256(self) -> str:
        """Returns the checksum of the file."""
        return sha256(self._packed())

    def _packed(self) -> bytes:
        return save({name: part for name, part in vars(self).items() if part is not None})

    @classmethod
    def load(cls, folder: Path, checksum: str) -> "SiteMeans":
        """Returns what `save` wrote.

        Args:
            folder: Folder of the model.
            checksum: Expected result of `sha256`.
        """
        path = folder / FILE_NAME
        try:
            packed = path.read_bytes()
            means = cls(**load(packed))
        except Exception as error:
            raise CheckpointError(f"{path}: cannot be read: {error}") from error
        for name, values in vars(means).items():
            if values is not None:
                check_numbers(values, values.dtype, path, name)
        if sha256(packed) != checksum:
            raise CheckpointError(f"{path}: has changed since it was saved: its SHA-256 differs.")
        return means


class _Mean:
    """Pointwise mean of the valid values of a stream of samples."""

    def __init__(self) -> None:
        self._total = self._count = np.zeros(1)

    def add(self, values: np.ndarray) -> None:
        is_known = np.isfinite(values)
        self._total = self._total + np.where(is_known, values, 0.0)
        self._count = self._count + is_known

    def mean(self) -> Tensor:
        mean = self._total / np.maximum(self._count, 1)
        return torch.from_numpy(mean)


MIN_CHANGE = 1e-6
"""Smallest change, in standard deviations, that single precision resolves."""
MIN_CHUNKS_SHOWN = 8
"""Minimum number of chunks for a progress bar."""


def training_statistics(
    data: FieldData,
    samples: Sequence[TimeSlice],
    means: SiteMeans | None = None,
    *,
    is_quiet: bool = True,
) -> tuple[Normalizer, Normalizer, np.ndarray]:
    """Returns the normalisers of inputs and outputs, and the size of changes.

    The size is the root mean square change from the last frame to the target, in standard deviations
    of each variable; one for static maps.

    Args:
        data: The data set.
        samples: Its training split; other data are not read.
        means: Pointwise means of static maps, subtracted before the statistics.
        is_quiet: Whether to hide the progress bar.
    """
    if samples[0].lead == 0:
        inputs, outputs = _of_maps(data, samples, means)
        return inputs, outputs, np.ones(len(data.outputs))
    states, squares = _of_series(data, samples, is_quiet)
    return states, states, np.maximum(np.sqrt(squares) / states.std, MIN_CHANGE)


def _of_maps(
    data: FieldData, samples: Sequence[TimeSlice], means: SiteMeans | None
) -> tuple[Normalizer, Normalizer]:
    names = [variable.name for variable in data.variables]
    inputs, outputs = Moments(names[: data.num_inputs]), Moments(names[data.num_inputs :])
    common = (means.inputs.numpy(), means.outputs.numpy()) if means else (0.0, 0.0)
    for part in frame_chunks(data, used_frames(samples)):
        values, weights = part.read(data), data.geometry(part.sample).weights
        inputs.add(values[..., : data.num_inputs] - common[0], weights)
        outputs.add(values[..., data.num_inputs :] - common[1], weights)
    return inputs.normalizer(), outputs.normalizer()


def _of_series(
    data: FieldData, windows: Sequence[TimeSlice], is_quiet: bool
) -> tuple[Normalizer, np.ndarray]:
    """Returns statistics of all frames, and the mean square change from the last input to the target."""
    inputs = {(window.sample, window.target): window.last for window in windows}
    states = Moments([variable.name for variable in data.variables])
    mass, squares = np.zeros(1), np.zeros(1)
    parts = frame_chunks(data, used_frames(windows))
    trajectory, recent = -1, dict[int, np.ndarray]()
    lead = max(window.lead for window in windows)
    shown = track(
        parts, "statistics", transient=True, disable=is_quiet or len(parts) < MIN_CHUNKS_SHOWN
    )
    for part in shown:
        if part.sample != trajectory:
            trajectory, recent = part.sample, dict[int, np.ndarray]()
        values, weights = part.read(data), data.geometry(trajectory).weights
        states.add(values, weights)
        recent |= zip(part.frames, values, strict=True)
        for number in part.frames:
            last = inputs.get((trajectory, number))
            if last is not None:
                change, is_known = _known(recent[number] - recent[last], weights)
                # `Moments` raises an error for values that cannot be squared.
                with np.errstate(over="ignore", under="ignore"):
                    mass = mass + weights @ is_known
                    squares = squares + weights @ np.where(is_known, change, 0.0) ** 2
        # Keep only the frames that later changes need.
        recent = {n: frame for n, frame in recent.items() if n >= part.frames.stop - lead}
    return states.normalizer(), np.divide(squares, mass, out=0 * squares, where=mass > 0)


def forcing_statistics(data: FieldData, windows: Sequence[TimeSlice]) -> Normalizer:
    """Returns the normaliser of forcings over the frames of the training split."""
    parts: list[Normalizer] = []
    for forcing in data.known:
        count = len(forcing.variables)
        if forcing.is_scaled:
            alone = replace(data, known=(forcing,))
            frames = _forcing_frames(alone, windows, forcing.is_constant)
            parts.append(Normalizer.fit(frames, [part.name for part in forcing.variables]))
        else:
            parts.append(Normalizer(np.zeros(count), np.ones(count)))
    return Normalizer(
        *(np.concatenate([getattr(p, name) for p in parts]) for name in ("mean", "std"))
    )


def _forcing_frames(
    data: FieldData, windows: Sequence[TimeSlice], is_constant: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for trajectory, numbers in used_frames(windows).items():
        weights = data.geometry(trajectory).weights
        for number in numbers[:1] if is_constant else numbers:
            yield data.forcing_frames(trajectory, np.array([number])), weights
