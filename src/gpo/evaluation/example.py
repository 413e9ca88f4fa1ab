"""The test example that the report shows: its prediction and the activations of the layers.

`gpo evaluate` writes it as `example.npz` beside `results.json`, so that figures of the prediction and
of the layers do not need the model.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.atomic_files import atomic_file, file_problem
from gpo.data.dataset import FieldData
from gpo.data.splits import TimeSlice
from gpo.forecast.examples import Example, TimeSliceExamples
from gpo.forecast.forecaster import Forecaster
from gpo.limits import size_problem
from gpo.settings_files import CheckpointError

FILE_NAME = "example.npz"


@dataclass(frozen=True)
class ReportExample:
    """Prediction and layer activations of the last test example, at its sites."""

    predicted: Float[np.ndarray, "points outputs"]
    """In the units of the data."""
    activations: Float[np.ndarray, "states points"]
    r"""$\sum z^2$ (paper) or $\sum h^2$ (geometric) before the first layer and after each layer; empty
    for baselines."""
    windows: Float[np.ndarray, "layers points"]
    """The window of each layer that varies most over the sites; empty for layers of waves."""

    @classmethod
    @torch.no_grad()
    def of(cls, forecaster: Forecaster, example: Example) -> "ReportExample":
        """Returns prediction and activations of the first sample of an example."""
        coords, weights = example.coords, example.site_weights
        predicted = forecaster(example.frames, coords, weights=weights, seasons=example.seasons)[
            0
        ].numpy()
        empty = np.zeros((0, len(predicted)), dtype=np.float32)
        operator = forecaster.model.operator
        if operator is None or forecaster.reconstructs:
            return cls(predicted, empty, empty)
        values = forecaster.normalised_input(example.frames)
        trace = operator.trace(values, coords, weights=weights)
        activations = [state[0].square().sum(-1).numpy() for state in trace.states]
        windows = [_most_local(windows[0]).numpy() for windows in trace.windows]
        return cls(predicted, np.stack(activations), np.stack(windows) if windows else empty)

    def save(self, folder: Path) -> None:
        """Writes `example.npz`."""
        with atomic_file(folder / FILE_NAME) as partial:
            np.savez(partial, **asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "ReportExample":
        """Reads a file that `save` wrote."""
        path = folder / FILE_NAME
        problem = file_problem(path)
        if problem is not None:
            raise CheckpointError(f"{path} {problem}")
        try:
            # Opened here, because numpy does not close a corrupt file.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                num_bytes = sum(entry.file_size for entry in stored.zip.infolist())
                problem = size_problem(num_bytes, path.stat().st_size)
                if problem is not None:
                    raise ValueError(f"what {problem}")
                return cls(**stored)
        except FileNotFoundError:
            raise
        except Exception as error:
            # Corrupt zip files, arrays and names raise errors of several libraries.
            raise CheckpointError(
                f"{path}: must be a file that gpo evaluate wrote, got {error}. "
                f"Write it again: gpo evaluate {folder}"
            ) from error


def last_example(forecaster: Forecaster, data: FieldData, samples: Sequence[TimeSlice]) -> Example:
    """Returns the last example of a split."""
    reconstructs = forecaster.task.lead == 0
    return TimeSliceExamples(data, samples[-1:], reconstructs=reconstructs)[0]


def _most_local(windows: Float[Tensor, "heads points modes"]) -> Float[Tensor, " points"]:
    """Returns the window with the largest standard deviation over the points."""
    flat = windows.permute(0, 2, 1).flatten(0, 1)
    return flat[flat.std(-1).argmax()]
