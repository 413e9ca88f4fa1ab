"""Two runs on the same examples: what must agree, and what the second one answers."""

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
    """Puts a second run beside the first; raises a `ValueError` where their tasks differ.

    They must predict the same variables of the same data, as far ahead, at the same sites; models,
    settings and what is given may differ. Examples count that are in the test split of both.
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
                f"{other.name} has {second}. Train another model with the flags of "
                f"{session.name}, then compare."
            )
    numbers = {_place(member): number for number, member in enumerate(other.members)}
    found = {
        number: numbers[_place(member)]
        for number, member in enumerate(session.members)
        if _place(member) in numbers
    }
    if not found or not _is_same(session, other, found):
        raise ValueError(
            f"--compare must name a run of the same data: no test example of {session.name} "
            f"({session.data.source.name}) is one of {other.name} ({other.data.source.name})."
        )
    session.other, session.other_numbers = other, found
    # One thread at a time reads the data of both.
    other.lock = session.lock


def compared(session: Session) -> dict[str, Any] | None:
    """Returns the second run for the metadata of the first; None where there is none."""
    if session.other is None:
        return None
    return {
        "name": session.other.name,
        "model": session.other.model_name,
        "num_parameters": session.other.forecaster.num_parameters,
    }


def prediction(session: Session, request: ExampleRequest) -> Packet:
    """Returns the prediction of the second run and its errors."""
    other, number = _there(session, request)
    return answers.prediction(other, answers.AblationRequest(example=number))


def rollout(
    session: Session, request: RolloutRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns the rollout of the second run."""
    other, number = _there(session, request)
    return answers.rollout(other, replace(request, example=number), is_abandoned)


def _there(session: Session, request: ExampleRequest) -> tuple[Session, int]:
    """Returns the second run and its number of an example."""
    if session.other is None:
        raise ValueError("There is no second run: gpo explore RUN --compare OTHER opens two.")
    session.check_example(request.example)
    if request.example not in session.other_numbers:
        raise ValueError(f"This example is not in the test split of {session.other.name}.")
    return session.other, session.other_numbers[request.example]


def _place(member: TimeSlice | int) -> tuple[int, ...]:
    """Returns what is predicted from which last frame: histories may differ."""
    if isinstance(member, TimeSlice):
        return member.trajectory, member.last, member.target
    return (member,)


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


def _is_same(session: Session, other: Session, found: dict[int, int]) -> bool:
    """Returns whether sites and truth of the first example in common are the same."""
    here, there = next(iter(found.items()))
    pair = session.example(here), other.example(there)
    return all(
        first.shape == second.shape and np.allclose(first, second, rtol=1e-6, atol=0)
        for first, second in (
            [example.coords.numpy() for example in pair],
            [example.target.numpy() for example in pair],
        )
    )
