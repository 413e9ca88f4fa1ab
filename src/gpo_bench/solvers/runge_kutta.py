"""Strong-stability-preserving Runge-Kutta steps of second order for `finite_volume.py`.

Each trajectory of a batch has its own time step, so that its result does not depend on the others.
A step that makes density or pressure of a cell negative is repeated with fluxes of first order
around that cell; if that fails as well, the trajectory becomes NaN.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpo.data.solvers.base import BlowUpError
from gpo_bench.solvers.finite_volume import Flow, Losses

MIN_STEP_FRACTION = 1e-6
"""Shortest time step as a fraction of the duration; trajectories that need shorter ones are NaN."""
MAX_ATTEMPTS = 4
"""Attempts to solve a trajectory, each with half the time step of the previous one."""
WARM_UP_BLOCK = 7 * 2**20
"""Size in numbers of a block whose release raises the threshold below which malloc keeps memory."""


def advance(
    flow: Flow,
    state: Float[Tensor, "channels batch *grid"],
    duration: float,
    courant: float = 0.8,
) -> tuple[Float[Tensor, "channels batch *grid"], Losses]:
    """Returns conserved variables after `duration`, and the losses until then.

    Trajectories that cannot be continued are NaN.

    Args:
        flow: The spatial discretisation.
        state: Conserved variables at the start.
        duration: Time to integrate.
        courant: Cells that the fastest wave may cross in a step, summed over axes.
    """
    # Freed at once and never accessed. Without it malloc would return each temporary array to the
    # system, and page faults would take several times as long as the arithmetic.
    torch.empty(WARM_UP_BLOCK, dtype=torch.float32, device="cpu")
    batch = state.shape[1]
    remaining = torch.full((batch,), duration, dtype=torch.float64, device=state.device)
    is_alive = torch.ones(batch, dtype=torch.bool, device=state.device)
    nothing = state.new_zeros(len(state), batch, dtype=torch.float64)
    losses = Losses(nothing, nothing[0])
    primitive = flow.primitive(state)
    while bool((remaining > 0).any()):
        longest = courant / flow.max_rate(primitive)
        is_alive &= longest > MIN_STEP_FRACTION * duration
        num_steps = (remaining / longest).ceil().clamp(min=1)
        step = torch.where(is_alive, remaining / num_steps, 0.0)
        remaining = torch.where(is_alive, remaining - step, 0.0)
        before = state, primitive
        step = step.to(state.dtype)
        state, primitive, rates = runge_kutta_step(flow, state, primitive, step)
        losses = losses.add(rates, step.double())
        if not is_physical(primitive):
            is_valid = _is_positive(primitive).flatten(1).all(1)
            is_alive &= is_valid
            mask = is_valid.view(-1, *[1] * (state.ndim - 2))
            state, primitive = (
                torch.where(mask, new, old)
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
    """Returns conserved and primitive variables after a step, and the mean rates of loss."""
    first, first_primitive, losses = _euler_step(flow, state, primitive, step)
    after, after_primitive, later_losses = _euler_step(flow, first, first_primitive, step, state)
    return after, after_primitive, losses.mean(later_losses)


def is_physical(primitive: Float[Tensor, "channels batch *grid"]) -> bool:
    """Returns whether density and pressure are positive in all cells."""
    return bool(torch.minimum(primitive[0].amin(), primitive[-1].amin()) > 0)


def _euler_step(
    flow: Flow, state: Tensor, primitive: Tensor, step: Tensor, mean_with: Tensor | None = None
) -> tuple[Tensor, Tensor, Losses]:
    """Returns the state after an Euler step, averaged with `mean_with` if there is one."""
    lengths = step.view(-1, *[1] * (state.ndim - 2))

    def attempt(is_troubled: Tensor | None) -> tuple[Tensor, Tensor, Losses]:
        rate, losses = flow.tendency(primitive, is_troubled)
        after = rate.mul_(lengths).add_(state)
        if mean_with is not None:
            after.add_(mean_with).mul_(0.5)
        return after, flow.primitive(after), losses

    result = attempt(None)
    return result if is_physical(result[1]) else attempt(~_is_positive(result[1]))


def _is_positive(primitive: Tensor) -> Bool[Tensor, " batch *grid"]:
    return (primitive[0] > 0) & (primitive[-1] > 0)


def record_frames(
    flow: Flow,
    initial: Float[Tensor, "channels batch *grid"],
    num_frames: int,
    frame_step: float,
    courant: float,
) -> Float[Tensor, "batch times channels *grid"]:
    """Returns frames of primitive variables in single precision, the first at the start.

    Args:
        flow: The spatial discretisation.
        initial: Primitive variables at the start.
        num_frames: Number of frames.
        frame_step: Time between frames.
        courant: Cells that the fastest wave may cross in a step, summed over axes.
    """
    state = flow.conserved(initial.float().to(torch.get_default_device()))
    frames = [flow.primitive(state)]
    for _ in range(num_frames - 1):
        state, _ = advance(flow, state, frame_step, courant)
        frames.append(flow.primitive(state))
    return torch.stack(frames).movedim(2, 0)


def check_recording(
    num_trajectories: int, num_frames: int, frame_step: float, courant: float
) -> None:
    """Raises an error unless a solver can record this many frames with these steps."""
    if num_trajectories < 1 or num_frames < 1:
        raise ValueError(
            "`num_trajectories` and `num_frames` must be at least 1, "
            f"got {num_trajectories} and {num_frames}."
        )
    if frame_step <= 0 or not 0 < courant <= 1:
        raise ValueError(
            "`frame_step` must be positive and `courant` between 0 and 1, "
            f"got frame_step={frame_step}, courant={courant}."
        )


def solve_with_retries(
    solve: Callable[[Sequence[int], float], Tensor], numbers: Sequence[int], courant: float
) -> Float[Tensor, "batch ..."]:
    """Returns all trajectories; those that blow up are solved again with half the Courant number.

    Args:
        solve: Returns trajectories from their numbers and a Courant number, NaN where one blew up.
        numbers: Numbers of the trajectories.
        courant: Courant number of the first attempt.
    """
    solution = solve(numbers, courant)
    failed = _non_finite_rows(solution)
    for _ in range(MAX_ATTEMPTS - 1):
        if not failed:
            break
        courant /= 2
        solution[failed] = solve([numbers[row] for row in failed], courant)
        failed = _non_finite_rows(solution)
    if not failed:
        return solution
    names = ", ".join(str(numbers[row]) for row in failed)
    raise BlowUpError(
        f"Trajectories {names} blew up even with courant={courant:g}. "
        "Raise the viscosity or choose a weaker initial flow."
    )


def _non_finite_rows(solution: Tensor) -> list[int]:
    is_finite = solution.flatten(1).isfinite().all(1).tolist()
    return [row for row, finite in enumerate(is_finite) if not finite]
