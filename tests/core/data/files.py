"""Real files for tests that need them."""

from pathlib import Path

import numpy as np
import pytest

from gpo.data.dataset import FieldData

SHARED = Path(__file__).parents[4] / "shared" / "data"


def real_file(*parts: str) -> Path:
    """Returns a real file, or skips the test and names the missing collection."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs shared/data/{parts[0]} beside the project")
    return path


def frames_of(data: FieldData) -> np.ndarray:
    """Returns all frames of all samples."""
    return np.stack([data.frames(number) for number in range(data.num_samples)])


def pair(data: FieldData, sample: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the input and the output of a static map."""
    frame = data.frames(sample)[0]
    return frame[:, : data.num_inputs], frame[:, data.num_inputs :]
