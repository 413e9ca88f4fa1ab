r"""From a guess to the steady flow around airfoils, by implicit steps of local length.

A step solves $(1+\frac{\Delta t}{A}\,\partial_\eta B)(1+\frac{\Delta t}{A}\,\partial_\xi A)\,\delta=
-\frac{\Delta t}{A}R$ for the change $\delta$ of density, velocity and pressure, where $R$ leaves a
cell of area $A$ per time: one direction of the mesh after the other (Pulliam & Chaussee, 1981).
Along each, waves that go one way at one speed are four separate fields, and a field is one
tridiagonal system. What the steps are does not change where they end, at $R=0$.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gpo_bench.solvers.body_fitted_flow import BodyFittedFlow, Cells

WARM_UP = 50
"""Steps over which their length grows to the full one."""
LARGEST_CHANGE = 0.3
"""Parts of its density or pressure that a cell may gain or lose in a step."""
DAMPING = 0.05
"""Speed that every wave has in both directions, as a part of the fastest one's: waves that
stand still would not be damped at all."""


def steady_state(
    flow: BodyFittedFlow,
    state: Cells,
    *,
    courant: float = 30.0,
    drop: float = 1e-4,
    max_steps: int = 2000,
) -> tuple[Cells, Float[Tensor, " batch"]]:
    """Returns the flow when its imbalance has dropped, and how far it has.

    Samples do not see each other, and one that has arrived stays as it is. One that leaves the
    physical states, or takes too many steps, is returned as not-a-number.

    Args:
        flow: Meshes and far field.
        state: Where to begin.
        courant: Cells that the fastest wave crosses in a step.
        drop: What is left of the imbalance of mass that the uniform far field has.
        max_steps: Steps after which a sample is given up.
    """
    first = _imbalance_of_mass(flow.imbalance(flow.uniform()))
    state = state.clone()
    left = torch.ones_like(first)
    active = torch.arange(len(first), device=state.device)
    part, current = flow, state
    for step in range(max_steps):
        imbalance = part.imbalance(current)
        left[active] = _imbalance_of_mass(imbalance) / first[active]
        is_on = (left[active] > drop) & left[active].isfinite()
        if not bool(is_on.all()):
            state[:, active] = current
            active = active[is_on]
            if not len(active):
                break
            part = part.on(part.nodes[is_on], part.num_wake)
            current, imbalance = current[:, is_on], imbalance[:, is_on]
        growth = min(1.0, 0.1 + step / WARM_UP)
        current = _implicit_step(part, current, imbalance, courant * growth)
    state[:, left > drop] = torch.nan
    return state, left


def _imbalance_of_mass(imbalance: Cells) -> Float[Tensor, " batch"]:
    """Returns the root mean square over cells; infinite where it is not a number."""
    return imbalance[0].square().mean((1, 2)).sqrt().nan_to_num(torch.inf, torch.inf)


def _implicit_step(flow: BodyFittedFlow, state: Cells, imbalance: Cells, courant: float) -> Cells:
    ratio = courant / flow.wave_rates(state).sum(0)
    change = _primitive_change(state, imbalance, flow.gamma) * -ratio
    for faces, dim in ((flow.mean_outward, 3), (flow.mean_around, 2)):
        change = _along(flow.gamma, state, change, faces * ratio, dim)
    largest = torch.maximum((change[0] / state[0]).abs(), (change[3] / state[3]).abs())
    return change.div_((largest / LARGEST_CHANGE).clamp_(min=1)).add_(state)


def _primitive_change(state: Cells, change: Cells, gamma: float) -> Cells:
    """Returns what a small change of mass, momenta and energy is in the channels of a state."""
    density, u, v, _ = state
    mass, x, y, energy = change
    pressure = (gamma - 1) * (energy - u * x - v * y + mass * (u * u + v * v) / 2)
    return torch.stack([mass, (x - u * mass) / density, (y - v * mass) / density, pressure])


def _along(gamma: float, state: Cells, change: Cells, faces: Tensor, dim: int) -> Cells:
    """Solves for the change along one direction of the mesh.

    Args:
        gamma: Ratio of specific heats.
        state: The flow.
        change: Right-hand side.
        faces: Vectors of the mean face of every cell times the length of its step over its area.
        dim: Dimension of the arrays along which neighbours lie.
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
    least = (across.abs() + sound).mul_(lengths).mul_(DAMPING)
    forward, backward = speeds.clamp(min=0).add_(least), speeds.clamp(max=0).sub_(least)
    entropy, shear, right, left = _solve_lines(
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


def _solve_lines(before: Tensor, middle: Tensor, after: Tensor, right: Tensor, dim: int) -> Tensor:
    """Solves tridiagonal systems, all lines at once, by elimination and substitution."""
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
