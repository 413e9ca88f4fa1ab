"""The test example that the report shows: its prediction and the activity of the layers.

`gpo evaluate` writes it as `example.npz` beside `results.json`, so that figures of the prediction and
of the layers need no model.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.atomic_files import file_problem, whole_file
from gpo.data.dataset import StaticMaps, Trajectories
from gpo.forecast.examples import Example, make_examples
from gpo.forecast.forecaster import Forecaster
from gpo.limits import size_problem
from gpo.settings_files import CheckpointError

FILE_NAME = "example.npz"


@dataclass(frozen=True)
class ShownExample:
    """What a model makes of the last test example, at its sites."""

    predicted: Float[np.ndarray, "points outputs"]
    """In the units of the data."""
    activations: Float[np.ndarray, "states points"]
    r"""$\sum z^2$ (paper) or $\sum h^2$ (geometric) before the first layer and after every one; empty
    for baselines."""
    windows: Float[np.ndarray, "layers points"]
    """The content window of every layer that varies most over the sites; empty for waves."""

    @classmethod
    @torch.no_grad()
    def of(cls, forecaster: Forecaster, example: Example) -> "ShownExample":
        """Predicts an example; its first sample is kept."""
        coords, weights = example.coords, example.site_weights
        predicted = forecaster(example.frames, coords, weights=weights)[0].numpy()
        nothing = np.zeros((0, len(predicted)), dtype=np.float32)
        operator = forecaster.model.operator
        if operator is None or forecaster.reconstructs:
            return cls(predicted, nothing, nothing)
        values = forecaster.normalised_input(example.frames)
        trace = operator.trace(values, coords, weights=weights)
        activations = [state[0].square().sum(-1).numpy() for state in trace.states]
        windows = [_most_local(windows[0]).numpy() for windows in trace.windows]
        return cls(predicted, np.stack(activations), np.stack(windows) if windows else nothing)

    def save(self, folder: Path) -> None:
        """Writes `example.npz`."""
        with whole_file(folder / FILE_NAME) as partial:
            np.savez(partial, **asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "ShownExample":
        """Reads a file that `save` wrote."""
        path = folder / FILE_NAME
        problem = file_problem(path)
        if problem is not None:
            raise CheckpointError(f"{path} {problem}")
        try:
            # An open file rather than a path: numpy leaves a broken file open.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                needed = sum(member.file_size for member in stored.zip.infolist())
                problem = size_problem(needed, path.stat().st_size)
                if problem is not None:
                    raise ValueError(f"what {problem}")
                return cls(**stored)
        except FileNotFoundError:
            raise
        except Exception as error:
            # Of a zip file, of its members, of arrays, of names: every library has its own errors.
            again = f"Make it again: gpo evaluate {folder}"
            raise CheckpointError(
                f"{path}: must be what gpo wrote, got {error}. {again}"
            ) from error


def last_example(
    forecaster: Forecaster, data: Trajectories | StaticMaps, members: Sequence[Any]
) -> Example:
    """Returns the last example of a split."""
    reconstructs = isinstance(data, Trajectories) and forecaster.task.lead == 0
    return make_examples(data, members[-1:], reconstructs=reconstructs)[0]


def _most_local(windows: Float[Tensor, "heads points modes"]) -> Float[Tensor, " points"]:
    flat = windows.permute(0, 2, 1).flatten(0, 1)
    return flat[flat.std(-1).argmax()]
