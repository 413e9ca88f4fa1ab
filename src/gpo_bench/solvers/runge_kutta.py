"""Steps in time for flows of `finite_volume.py`: strong-stability preserving, of second order.

Every trajectory of a batch takes steps of its own length, so that none depends on those
beside it. A step that would leave a cell without mass or pressure is taken again with
fluxes of first order around that cell; if that does not help, the trajectory is given up.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpo.data.solvers.base import BlownUpError
from gpo_bench.solvers.finite_volume import Flow, Losses

SHORTEST = 1e-6
"""A trajectory that needs steps shorter than this part of the duration is given up."""
ATTEMPTS = 4
"""How often a trajectory is tried, each time with half the step."""
HEAP = 7 * 2**20
"""Numbers in the largest block whose release teaches the C library to keep memory."""


def advance(
    flow: Flow,
    state: Float[Tensor, "channels batch *grid"],
    duration: float,
    courant: float = 0.8,
) -> tuple[Float[Tensor, "channels batch *grid"], Losses]:
    """Returns conserved variables after `duration`, and what has left meanwhile.

    Trajectories that could not be continued are returned as not-a-number.

    Args:
        flow: The gas and its box.
        state: Conserved variables now.
        duration: How long to go on.
        courant: Cells that the fastest wave may cross in a step, summed over axes.
    """
    # Freed at once and never touched. Without it every temporary array would be handed back
    # to the system and faulted in again, which takes several times as long as the arithmetic.
    torch.empty(HEAP, dtype=torch.float32, device="cpu")
    batch = state.shape[1]
    remaining = torch.full((batch,), duration, dtype=torch.float64, device=state.device)
    is_alive = torch.ones(batch, dtype=torch.bool, device=state.device)
    nothing = state.new_zeros(len(state), batch, dtype=torch.float64)
    losses = Losses(nothing, nothing[0])
    primitive = flow.primitive(state)
    while bool((remaining > 0).any()):
        longest = courant / flow.fastest(primitive)
        is_alive &= longest > SHORTEST * duration
        num_steps = (remaining / longest).ceil().clamp(min=1)
        step = torch.where(is_alive, remaining / num_steps, 0.0)
        remaining = torch.where(is_alive, remaining - step, 0.0)
        before = state, primitive
        used = step.to(state.dtype)
        state, primitive, lost = runge_kutta_step(flow, state, primitive, used)
        losses = losses.add(lost, used.double())
        if not is_possible(primitive):
            is_whole = _is_positive(primitive).flatten(1).all(1)
            is_alive &= is_whole
            chosen = is_whole.view(-1, *[1] * (state.ndim - 2))
            state, primitive = (
                torch.where(chosen, new, old)
                for new, old in zip((state, primitive), before, strict=True)
            )
    state[:, ~is_alive] = torch.nan
    return state, losses


def runge_kutta_step(
    flow: Flow,
    state: Float[Tensor, "channels batch *grid"],
    primitive: Float[Tensor, "channels batch *grid"],
    step: Float[Tensor, " batch"],
) -> tuple[Float[Tensor, "channels batch *grid"], Float[Tensor, "channels batch *grid"], Losses]:
    """Returns conserved and primitive variables after a step, and what leaves per time."""
    first, first_primitive, lost = _euler_step(flow, state, primitive, step)
    after, after_primitive, lost_later = _euler_step(flow, first, first_primitive, step, state)
    return after, after_primitive, lost.mean(lost_later)


def is_possible(primitive: Float[Tensor, "channels batch *grid"]) -> bool:
    """Returns whether density and pressure are positive in every cell."""
    return bool(torch.minimum(primitive[0].amin(), primitive[-1].amin()) > 0)


def _euler_step(
    flow: Flow, state: Tensor, primitive: Tensor, step: Tensor, mean_with: Tensor | None = None
) -> tuple[Tensor, Tensor, Losses]:
    """Takes one step of first order, and the mean of its end and another state if given."""
    lengths = step.view(-1, *[1] * (state.ndim - 2))

    def attempt(is_troubled: Tensor | None) -> tuple[Tensor, Tensor, Losses]:
        rate, lost = flow.tendency(primitive, is_troubled)
        after = rate.mul_(lengths).add_(state)
        if mean_with is not None:
            after.add_(mean_with).mul_(0.5)
        return after, flow.primitive(after), lost

    result = attempt(None)
    return result if is_possible(result[1]) else attempt(~_is_positive(result[1]))


def _is_positive(primitive: Tensor) -> Bool[Tensor, " batch *grid"]:
    return (primitive[0] > 0) & (primitive[-1] > 0)


def solve_with_retries(
    solve: Callable[[Sequence[int], float], Tensor], numbers: Sequence[int], courant: float
) -> Float[Tensor, "batch ..."]:
    """Returns all trajectories; those that blow up are solved again with smaller steps.

    Args:
        solve: Returns the trajectories of these numbers, solved with this Courant number;
            not-a-number where one blew up.
        numbers: Which trajectories.
        courant: Where to begin.
    """
    solved = solve(numbers, courant)
    lost = _not_finite(solved)
    for _ in range(ATTEMPTS - 1):
        if not lost:
            break
        courant /= 2
        solved[lost] = solve([numbers[row] for row in lost], courant)
        lost = _not_finite(solved)
    if not lost:
        return solved
    names = ", ".join(str(numbers[row]) for row in lost)
    raise BlownUpError(
        f"Trajectories {names} blew up even with courant={courant:g}. "
        "Raise the viscosity or choose a calmer start."
    )


def _not_finite(solved: Tensor) -> list[int]:
    is_whole = solved.flatten(1).isfinite().all(1).tolist()
    return [row for row, whole in enumerate(is_whole) if not whole]
