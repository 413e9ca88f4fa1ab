"""Comparison of two runs on the same test examples: compatibility checks, and answers of the second."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gpo.data.splits import TimeSlice
from gpo.data.units import readable
from gpo_explore import answers
from gpo_explore.arrays import Packet
from gpo_explore.requests import ExampleRequest, RolloutRequest
from gpo_explore.session import Session


def compare(session: Session, other: Session) -> None:
    """Attaches a second run to the first; raises a `ValueError` if their tasks differ.

    Both must predict the same variables of the same data at the same sites with the same lead; models,
    settings and inputs may differ. Only examples in both test splits are compared.
    """
    pairs = {
        "variables": (_variables(session), _variables(other)),
        "lead": (_lead(session), _lead(other)),
        "sites": (_sites(session), _sites(other)),
    }
    for name, (first, second) in pairs.items():
        if first != second:
            raise ValueError(
                f"--compare must name a run of the same task: {session.name} has {name} {first}, "
                f"{other.name} has {second}. Train the other model with the data flags of "
                f"{session.name}."
            )
    other_numbers = {_key(sample): number for number, sample in enumerate(other.samples)}
    numbers = {
        number: other_numbers[_key(sample)]
        for number, sample in enumerate(session.samples)
        if _key(sample) in other_numbers
    }
    if not numbers or not _is_same_data(session, other, numbers):
        raise ValueError(
            f"--compare must name a run of the same data: {session.name} "
            f"({session.data.source.name}) and {other.name} ({other.data.source.name}) have no "
            f"test example in common. Train the other model with the data flags of {session.name}."
        )
    session.other, session.other_numbers = other, numbers
    # Both may read the same files, which is not thread-safe.
    other.lock = session.lock


def other_run_metadata(session: Session) -> dict[str, Any] | None:
    """Returns name, model and size of the second run; None if there is none."""
    if session.other is None:
        return None
    return {
        "name": session.other.name,
        "model": session.other.model_name,
        "num_parameters": session.other.forecaster.num_parameters,
    }


def prediction(session: Session, request: ExampleRequest) -> Packet:
    """Returns the prediction of the second run and its errors."""
    other, number = _other_example(session, request)
    return answers.prediction(other, answers.AblationRequest(example=number))


def rollout(
    session: Session, request: RolloutRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns the rollout of the second run."""
    other, number = _other_example(session, request)
    return answers.rollout(other, replace(request, example=number), is_abandoned)


def _other_example(session: Session, request: ExampleRequest) -> tuple[Session, int]:
    """Returns the second run, and the index of the example in it."""
    if session.other is None:
        raise ValueError("There is no second run. Start gpo explore RUN --compare OTHER.")
    session.check_example(request.example)
    if request.example not in session.other_numbers:
        raise ValueError(f"This example is not in the test split of {session.other.name}.")
    return session.other, session.other_numbers[request.example]


def _key(example: TimeSlice) -> tuple[int, int, int]:
    """Returns the sample and its last input and target frames; histories may differ."""
    return example.sample, example.last, example.target


def _variables(session: Session) -> str:
    task = session.forecaster.task
    pairs = zip(task.outputs, task.units, strict=True)
    return ", ".join(f"{name} ({readable(units)})" if units else name for name, units in pairs)


def _lead(session: Session) -> str:
    lead = session.forecaster.task.lead
    return "none" if lead == 0 else f"{lead} step{'s' if lead > 1 else ''}"


def _sites(session: Session) -> str:
    geometries = session.data.geometries
    counts = sorted({geometry.num_points for geometry in geometries})
    return " to ".join(f"{count:,}" for count in counts[:1] + counts[1:][-1:])


def _is_same_data(session: Session, other: Session, numbers: dict[int, int]) -> bool:
    """Returns whether sites and targets of the first common example agree."""
    number, other_number = next(iter(numbers.items()))
    pair = session.example(number), other.example(other_number)
    return all(
        first.shape == second.shape and np.allclose(first, second, rtol=1e-6, atol=0)
        for first, second in (
            [example.coords.numpy() for example in pair],
            [example.target.numpy() for example in pair],
        )
    )
