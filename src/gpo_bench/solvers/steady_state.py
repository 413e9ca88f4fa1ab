r"""Steady flow around airfoils by implicit steps with local time steps.

A step solves
$(1+\frac{\Delta t}{A}\,\partial_\eta B)(1+\frac{\Delta t}{A}\,\partial_\xi A)\,\delta= -\frac{\Delta t}{A}R$
for the change $\delta$ of density, velocity and pressure, where $R$ is the net flux out of a cell
of area $A$. It treats one mesh direction after the other, diagonalised into four characteristic
fields with one tridiagonal system each (Pulliam & Chaussee, 1981). The steady state $R=0$ does not
depend on the steps.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gpo_bench.solvers.body_fitted_flow import BodyFittedFlow, Cells

RAMP_STEPS = 50
"""Number of steps over which the Courant number grows to its full value."""
MAX_RELATIVE_CHANGE = 0.3
"""Largest relative change of density or pressure in a step."""
MIN_WAVE_SPEED = 0.05
"""Smallest wave speed in either direction, as a fraction of the fastest wave's; stationary waves
would not be damped at all."""


def steady_state(
    flow: BodyFittedFlow,
    state: Cells,
    *,
    courant: float = 30.0,
    drop: float = 1e-4,
    max_steps: int = 2000,
) -> tuple[Cells, Float[Tensor, " batch"]]:
    """Returns the converged flow and its mass residual, relative to that of the uniform far field.

    Samples are independent, and a converged sample no longer changes. Samples that leave the range
    of physical states, or do not converge within `max_steps`, are NaN.

    Args:
        flow: Meshes and far field.
        state: Initial guess.
        courant: Cells that the fastest wave crosses in a step.
        drop: Relative mass residual at which a sample has converged.
        max_steps: Maximum number of steps.
    """
    first = _mass_residual(flow.residual(flow.uniform()))
    state = state.clone()
    relative = torch.ones_like(first)
    active = torch.arange(len(first), device=state.device)
    part, current = flow, state
    for step in range(max_steps):
        residual = part.residual(current)
        relative[active] = _mass_residual(residual) / first[active]
        is_unconverged = (relative[active] > drop) & relative[active].isfinite()
        if not bool(is_unconverged.all()):
            state[:, active] = current
            active = active[is_unconverged]
            if not len(active):
                break
            part = part.with_mesh(part.nodes[is_unconverged], part.num_wake)
            current, residual = current[:, is_unconverged], residual[:, is_unconverged]
        growth = min(1.0, 0.1 + step / RAMP_STEPS)
        current = _implicit_step(part, current, residual, courant * growth)
    state[:, relative > drop] = torch.nan
    return state, relative


def _mass_residual(residual: Cells) -> Float[Tensor, " batch"]:
    """Returns the root mean square of the mass flux over cells; infinite where it is NaN."""
    return residual[0].square().mean((1, 2)).sqrt().nan_to_num(torch.inf, torch.inf)


def _implicit_step(flow: BodyFittedFlow, state: Cells, residual: Cells, courant: float) -> Cells:
    ratio = courant / flow.wave_rates(state).sum(0)
    change = _primitive_change(state, residual, flow.gamma) * -ratio
    for faces, dim in ((flow.mean_outward, 3), (flow.mean_around, 2)):
        change = _solve_direction(flow.gamma, state, change, faces * ratio, dim)
    largest = torch.maximum((change[0] / state[0]).abs(), (change[3] / state[3]).abs())
    return change.div_((largest / MAX_RELATIVE_CHANGE).clamp_(min=1)).add_(state)


def _primitive_change(state: Cells, change: Cells, gamma: float) -> Cells:
    """Returns a small change of mass, momenta and energy as a change of primitive variables."""
    density, u, v, _ = state
    mass, x, y, energy = change
    pressure = (gamma - 1) * (energy - u * x - v * y + mass * (u * u + v * v) / 2)
    return torch.stack([mass, (x - u * mass) / density, (y - v * mass) / density, pressure])


def _solve_direction(gamma: float, state: Cells, change: Cells, faces: Tensor, dim: int) -> Cells:
    """Returns the change of the state after the implicit solve along one mesh direction.

    Args:
        gamma: Ratio of specific heats.
        state: Primitive variables.
        change: Right-hand side.
        faces: Mean face normal of each cell times its time step over its area.
        dim: Tensor dimension of the mesh direction.
    """
    lengths = torch.linalg.vector_norm(faces, dim=0)
    x, y = faces / lengths
    density, u, v, pressure = state
    sound = (gamma * pressure / density).sqrt()
    impedance, squared = density * sound, sound.square()
    change_across, change_along = change[1] * x + change[2] * y, change[2] * x - change[1] * y
    fields = torch.stack(
        [
            change[0] - change[3] / squared,
            change_along,
            change[3] + impedance * change_across,
            change[3] - impedance * change_across,
        ]
    )
    across = u * x + v * y
    speeds = torch.stack([across, across, across + sound, across - sound]) * lengths
    least = (across.abs() + sound).mul_(lengths).mul_(MIN_WAVE_SPEED)
    forward, backward = speeds.clamp(min=0).add_(least), speeds.clamp(max=0).sub_(least)
    entropy, shear, right, left = _solve_tridiagonal(
        -forward, 1 + forward - backward, backward, fields, dim
    )
    change_pressure = (right + left) / 2
    change_across = (right - left) / (2 * impedance)
    return torch.stack(
        [
            entropy + change_pressure / squared,
            change_across * x - shear * y,
            change_across * y + shear * x,
            change_pressure,
        ]
    )


def _solve_tridiagonal(
    before: Tensor, middle: Tensor, after: Tensor, right: Tensor, dim: int
) -> Tensor:
    """Returns the solutions of tridiagonal systems by the Thomas algorithm, all lines at once."""
    before, middle, after, right = (
        part.movedim(dim, 0).contiguous() for part in (before, middle, after, right)
    )
    for row in range(1, len(middle)):
        factor = before[row] / middle[row - 1]
        middle[row].addcmul_(factor, after[row - 1], value=-1)
        right[row].addcmul_(factor, right[row - 1], value=-1)
    right[-1].div_(middle[-1])
    for row in range(len(middle) - 2, -1, -1):
        right[row].addcmul_(after[row], right[row + 1], value=-1).div_(middle[row])
    return right.movedim(0, dim)
