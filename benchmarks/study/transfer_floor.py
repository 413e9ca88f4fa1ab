"""What an exact solver makes of ns2d where the input is known on fewer sites than in training.

    python benchmarks/study/transfer_floor.py

The solver starts from the input on the sites that a model is given: all of the 32 x 32, every second
along each axis (interpolated by its Fourier series), or a random 70 % (interpolated by the linear map of
least error under the spectrum of the training data). Its error after a step at these sites, on validation
data, is what waves that the sites do not hold cost any method: a floor for `gpo bench transfer`.
"""

import numpy as np
import torch
from jaxtyping import Float

from gpo.data.coarsen import sampled
from gpo.data.solvers.navier_stokes_2d import advance, fno_forcing
from gpo.data.splits import TimeSlice
from gpo.evaluation.transfer import FRACTION
from gpo.runs import read_data
from gpo.training.config import RunConfig
from gpo.training.setup import split_of

SIZE, COARSE = 128, 32
"""Nodes along an axis of the solver and of the data."""

Frame = Float[np.ndarray, "rows columns"]


def refined(frame: Frame) -> Frame:
    """Returns a periodic field on the grid of the solver."""
    count = len(frame)
    spectrum = np.zeros((SIZE, SIZE), dtype=complex)
    own = slice(SIZE // 2 - count // 2, SIZE // 2 - count // 2 + count)
    spectrum[own, own] = np.fft.fftshift(np.fft.fft2(frame))
    return np.real(np.fft.ifft2(np.fft.ifftshift(spectrum))) * (SIZE / count) ** 2


def after_a_step(frame: Frame) -> Frame:
    """Returns the solution a time unit later, at the nodes of the data."""
    spectrum = torch.fft.rfft2(torch.from_numpy(refined(frame)))
    forcing = fno_forcing(SIZE, torch.double, "cpu")
    spectrum = advance(spectrum, 1.0, viscosity=1e-4, forcing=forcing, courant=0.5)
    stride = SIZE // COARSE
    return torch.fft.irfft2(spectrum, s=(SIZE, SIZE)).numpy()[::stride, ::stride]


def wiener(frames: list[Frame], known: np.ndarray) -> Float[np.ndarray, "nodes known"]:
    """Returns the linear map of least error from known nodes to all, for fields like some frames."""
    power = np.mean([np.abs(np.fft.fft2(frame)) ** 2 for frame in frames], 0)
    covariance = np.real(np.fft.ifft2(power))
    nodes = np.stack(np.unravel_index(np.arange(COARSE**2), (COARSE, COARSE)), 1)
    offsets = (nodes[:, None] - nodes[None, known]) % COARSE
    matrix = covariance[offsets[..., 0], offsets[..., 1]]
    noise = 1e-10 * covariance[0, 0] * np.eye(len(known))
    return matrix @ np.linalg.inv(matrix[known] + noise)


def error(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Returns the relative L2 error."""
    return float(np.linalg.norm(prediction - truth) / np.linalg.norm(truth))


def main() -> None:
    """Prints the three errors."""
    config = RunConfig.of(benchmark="ns2d", preset="quick", coarsen=2)
    data = read_data(config)
    split = split_of(data, config)

    def frames(sample: TimeSlice, count: int) -> np.ndarray:
        times = slice(sample.last, sample.last + count)
        return data.frames(sample.sample, times).reshape(count, COARSE, COARSE)

    part = sampled(data, FRACTION).geometry().coords
    distances = np.abs(data.geometry().coords[:, None] - part[None]).max(-1)
    known = np.sort(distances.argmin(0))
    fill = wiener([frames(sample, 1)[0] for sample in split.training[::5]], known)
    errors: dict[str, list[float]] = {"all sites": [], "every second": [], "random 70 %": []}
    for sample in split.validation[::6]:
        now, later = frames(sample, 2)
        errors["all sites"].append(error(after_a_step(now), later))
        coarse = after_a_step(now[::2, ::2])
        errors["every second"].append(error(coarse[::2, ::2], later[::2, ::2]))
        filled = (fill @ now.reshape(-1)[known]).reshape(COARSE, COARSE)
        pair = (frame.reshape(-1)[known] for frame in (after_a_step(filled), later))
        errors["random 70 %"].append(error(*pair))
    for name, values in errors.items():
        print(f"{name}: {np.mean(values):.4f}")


if __name__ == "__main__":
    main()
