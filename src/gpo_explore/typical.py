"""How typical an example is: the errors of all test examples, of the model and of persistence."""

import copy
from collections.abc import Callable

import numpy as np
import torch

from gpo.data.dataset import Trajectories
from gpo.data.splits import evenly
from gpo.numerics.norms import channel_errors
from gpo_explore.arrays import Packet
from gpo_explore.requests import ExampleRequest
from gpo_explore.session import AbandonedError, Session

MAX_SCORED = 256
"""Test examples whose errors are compared; of more, evenly spaced ones."""


def typical(
    session: Session, request: ExampleRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns the RMS error of every variable in every test example, in the units of the data.

    Where a second run is compared, its errors are NaN in examples that are not of its test split.

    Args:
        session: The run.
        request: Any of its examples: the answer is the same for all.
        is_abandoned: Whether nobody waits any more; it then ends after the example under way.
    """
    numbers = evenly(range(len(session.members)), MAX_SCORED)
    arrays = {"numbers": np.array(numbers, dtype=np.int32)}
    arrays["model"] = _scored(session, dict(zip(numbers, numbers, strict=True)), is_abandoned)
    other = session.other
    if other is not None:
        pairs = {n: session.other_numbers[n] for n in numbers if n in session.other_numbers}
        rows = np.full_like(arrays["model"], np.nan)
        rows[np.isin(numbers, list(pairs))] = _scored(other, pairs, is_abandoned)
        arrays["other"] = rows
    if isinstance(session.data, Trajectories) and session.forecaster.task.lead > 0:
        arrays["persistence"] = _persistence(session, numbers, is_abandoned)
    return Packet(arrays, {"num_examples": len(session.members)})


def _scored(
    session: Session, numbers: dict[int, int], is_abandoned: Callable[[], bool]
) -> np.ndarray:
    """Returns the errors of a model, examples by variables; they are kept once they are whole."""
    if session.scores is not None:
        return session.scores
    with session.lock:
        forecaster = copy.deepcopy(session.forecaster)
    rows = []
    for done, number in enumerate(numbers.values()):
        if is_abandoned():
            raise AbandonedError
        session.progress["typical"] = (done, len(numbers), "errors of test examples")
        with session.lock:
            example = session.example_anew(number)
        with torch.no_grad():
            guess = forecaster(example.frames, example.coords, weights=example.site_weights)
        rows.append(channel_errors(guess, example.target, example.weights)[0].numpy())
    session.scores = np.array(rows).reshape(len(rows), -1)
    return session.scores


def _persistence(
    session: Session, numbers: list[int], is_abandoned: Callable[[], bool]
) -> np.ndarray:
    """Returns the errors of the last frame given, examples by variables."""
    rows = []
    for number in numbers:
        if is_abandoned():
            raise AbandonedError
        with session.lock:
            example = session.example_anew(number)
        rows.append(channel_errors(example.fields[:, -1], example.target, example.weights)[0])
    return torch.stack(rows).numpy()
