"""Errors of the model and of persistence in all test examples, to rank one example among them."""

import copy
from collections.abc import Callable

import numpy as np
import torch

from gpo.data.splits import evenly
from gpo.numerics.norms import channel_errors
from gpo_explore.arrays import Packet
from gpo_explore.requests import ExampleRequest
from gpo_explore.session import AbandonedError, Session

MAX_SCORED = 256
"""Largest number of test examples whose errors are compared; larger splits are subsampled evenly."""


def typical(
    session: Session, request: ExampleRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns the RMS error of every variable in every test example, in the units of the data.

    The errors of a second run are NaN in examples that are not in its test split.

    Args:
        session: The run.
        request: Any example: the answer is the same for all.
        is_abandoned: Checked before every example; the computation is aborted if it returns True.
    """
    numbers = evenly(range(len(session.samples)), MAX_SCORED)
    arrays = {"numbers": np.array(numbers, dtype=np.int32)}
    arrays["model"] = _model_errors(session, dict(zip(numbers, numbers, strict=True)), is_abandoned)
    other = session.other
    if other is not None:
        pairs = {n: session.other_numbers[n] for n in numbers if n in session.other_numbers}
        rows = np.full_like(arrays["model"], np.nan)
        rows[np.isin(numbers, list(pairs))] = _model_errors(other, pairs, is_abandoned)
        arrays["other"] = rows
    if session.forecaster.task.lead > 0:
        arrays["persistence"] = _persistence_errors(session, numbers, is_abandoned)
    return Packet(arrays, {"num_examples": len(session.samples)})


def _model_errors(
    session: Session, numbers: dict[int, int], is_abandoned: Callable[[], bool]
) -> np.ndarray:
    """Returns the errors of a model, examples by variables; cached once they are complete."""
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
            example = session.uncached_example(number)
        with torch.no_grad():
            predicted = forecaster(
                example.frames,
                example.coords,
                weights=example.site_weights,
                seasons=example.seasons,
            )
        rows.append(channel_errors(predicted, example.target, example.weights)[0].numpy())
    session.scores = np.array(rows).reshape(len(rows), -1)
    return session.scores


def _persistence_errors(
    session: Session, numbers: list[int], is_abandoned: Callable[[], bool]
) -> np.ndarray:
    """Returns the errors of the last input frame, examples by variables."""
    rows = []
    for number in numbers:
        if is_abandoned():
            raise AbandonedError
        with session.lock:
            example = session.uncached_example(number)
        rows.append(channel_errors(example.fields[:, -1], example.target, example.weights)[0])
    return torch.stack(rows).numpy()
