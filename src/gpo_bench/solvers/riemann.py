r"""Ideal-gas variables, and face fluxes by an approximate Riemann solver.

Conserved variables are density, momentum along each axis and energy; primitive variables are
density, velocity and pressure (`to_primitive`, `to_conserved`). Fluxes come from a limited
reconstruction of the states on both sides of a face (`reconstruct`) and the HLLC solver (`hllc`).
Arrays of these two have the axes channels, cells along one direction, and any others; the channels
are density, normal velocity, tangential velocities and pressure, or the fluxes of mass, momentum
(in the order of velocities) and energy. Operations are in place where possible, because their
number determines the cost of a step.
"""

import torch
from jaxtyping import Float
from torch import Tensor

TINY = 1e-30
"""Added to a denominator to avoid 0/0 in uniform regions; far below any relevant slope."""


def to_primitive(
    conserved: Float[Tensor, "channels batch *grid"], gamma: float
) -> Float[Tensor, "channels batch *grid"]:
    """Returns density, velocity and pressure."""
    out = torch.empty_like(conserved)
    out[0] = conserved[0]
    torch.div(conserved[1:-1], conserved[0], out=out[1:-1])
    kinetic = torch.mul(out[1:-1], conserved[1:-1]).sum(0)
    torch.sub(conserved[-1], kinetic, alpha=0.5, out=out[-1]).mul_(gamma - 1)
    return out


def to_conserved(
    primitive: Float[Tensor, "channels batch *grid"], gamma: float
) -> Float[Tensor, "channels batch *grid"]:
    """Returns density, momentum and energy per volume."""
    density, velocity, pressure = primitive[0], primitive[1:-1], primitive[-1]
    kinetic = density * velocity.square().sum(0) / 2
    energy = pressure / (gamma - 1) + kinetic
    return torch.cat([density[None], density * velocity, energy[None]])


def reconstruct(
    padded: Float[Tensor, "channels cells *rest"],
    is_first_order: Float[Tensor, " cells *rest"] | None = None,
) -> Float[Tensor, "2 channels faces *rest"]:
    r"""Returns the states on both sides of each face between inner cells, left states first.

    Primitive variables are linear inside a cell. The half slope uses van Leer's limiter: with the
    jumps $a$ and $b$ to both neighbours it is $ab/(a+b)$ where both have the same sign and zero
    elsewhere, so that a face value lies between those of the two adjacent cells.

    Args:
        padded: Primitive variables with two ghost cells at either end.
        is_first_order: One in cells whose slope is set to zero, zero elsewhere.
    """
    jumps = padded[:, 1:] - padded[:, :-1]
    before, after = jumps[:, :-1], jumps[:, 1:]
    half = (before * after).clamp_(min=0).div_((before + after).add_(TINY))
    if is_first_order is not None:
        half *= 1 - is_first_order[1:-1]
    channels, cells, *rest = padded.shape
    faces = padded.new_empty(2, channels, cells - 3, *rest)
    torch.add(padded[:, 1:-2], half[:, :-1], out=faces[0])
    torch.sub(padded[:, 2:-1], half[:, 1:], out=faces[1])
    return faces


def hllc(
    faces: Float[Tensor, "2 channels faces *rest"], gamma: float
) -> Float[Tensor, "channels faces *rest"]:
    r"""Returns the HLLC flux (Harten, Lax, van Leer, with the contact wave restored).

    The outer waves move at $u_L-Z_L/\rho_L$ and $u_R+Z_R/\rho_R$ with
    $Z^2=\rho(\gamma p+\frac{\gamma+1}2\max(p_*-p,0))$, which is exact for a shock to the pressure
    $p_*$; linear acoustics provide the estimate of $p_*$. Contact and shear waves stay sharp.

    Args:
        faces: Primitive variables on both sides of each face.
        gamma: Ratio of specific heats.
    """
    density, pressure = faces[:, 0], faces[:, -1]
    (u_left, u_right), (p_left, p_right) = faces[:, 1], pressure
    squared = (density * pressure).mul_(gamma)
    z_left, z_right = squared.sqrt()
    p_star = (u_left - u_right).mul_(z_left).add_(p_left).mul_(z_right)
    p_star.addcmul_(z_left, p_right).div_(z_left + z_right)
    excess = (p_star - pressure).clamp_(min=0).mul_(density)
    z_left, z_right = squared.add_(excess, alpha=(gamma + 1) / 2).sqrt_()
    contact = (p_left - p_right).addcmul_(z_left, u_left).addcmul_(z_right, u_right)
    contact.div_(z_left + z_right)
    # Selecting by interpolation with weights 0 and 1 is exact, and faster than `where`.
    is_left = contact.sign().clamp_(min=0)
    upwind = torch.lerp(faces[1], faces[0], is_left)
    impedance = torch.lerp(z_right, z_left.neg_(), is_left)
    return _flux_of_fan(upwind, impedance, contact, gamma)


def _flux_of_fan(
    upwind: Float[Tensor, "channels faces *rest"],
    impedance: Float[Tensor, " faces *rest"],
    contact: Float[Tensor, " faces *rest"],
    gamma: float,
) -> Float[Tensor, "channels faces *rest"]:
    r"""Returns the flux of the state at the face, inside or outside the wave fan.

    Args:
        upwind: The state $\rho,u,\ldots,p$ on the side that the contact wave moves away from.
        impedance: $\rho(S-u)$, where $S$ is the speed of the outer wave on that side.
        contact: Speed of the contact wave.
        gamma: Ratio of specific heats.
    """
    density, u, *others, pressure = upwind
    momentum = density * u
    is_inside = (momentum + impedance).mul_(impedance).sign_().clamp_(min=0)
    speed = torch.lerp(u, contact, is_inside)
    p_star = torch.addcmul(pressure, impedance, speed - u)
    # v / (rho (S - v)) scales mass, energy and work behind the outer wave.
    ratio = speed / torch.addcmul(momentum.add_(impedance), density, speed, value=-1)
    flux = torch.empty_like(upwind)
    carried = ratio * impedance
    mass = torch.mul(carried, density, out=flux[0])
    torch.addcmul(p_star, mass, speed, out=flux[1])
    kinetic = u.square()
    for row, other in enumerate(others, start=2):
        torch.mul(mass, other, out=flux[row])
        kinetic.addcmul_(other, other)
    work = torch.mul(p_star, speed, out=flux[-1])
    heat = torch.addcmul(work, pressure, u, value=-1).mul_(density).mul_(ratio)
    work += heat
    work.addcmul_(carried, pressure, value=1 / (gamma - 1)).addcmul_(mass, kinetic, value=0.5)
    return flux
