"""The exact solution of a shock tube, by Newton's method on the pressure between the waves."""

import math

import numpy as np


def exact_tube(left, right, speeds, gamma):
    """Density, velocity and pressure on rays x/t from the place of the membrane."""
    p_star, u_star = _between(left, right, gamma)
    out = np.empty((3, len(speeds)))
    for index, speed in enumerate(speeds):
        if speed < u_star:
            out[:, index] = _behind(left, p_star, u_star, speed, gamma)
        else:
            mirrored = _behind((right[0], -right[1], right[2]), p_star, -u_star, -speed, gamma)
            out[:, index] = mirrored[0], -mirrored[1], mirrored[2]
    return out


def _between(left, right, gamma):
    p_star = (left[2] + right[2]) / 2
    for _ in range(60):
        (low, low_slope), (high, high_slope) = (
            _jump(side, p_star, gamma) for side in (left, right)
        )
        residual = low + high + right[1] - left[1]
        p_star = max(p_star - residual / (low_slope + high_slope), 1e-12)
    low, high = (_jump(side, p_star, gamma)[0] for side in (left, right))
    return p_star, (left[1] + right[1]) / 2 + (high - low) / 2


def _jump(side, p_star, gamma):
    """Change of velocity across the wave on one side, and its derivative."""
    density, _, pressure = side
    sound = math.sqrt(gamma * pressure / density)
    if p_star > pressure:
        a = 2 / ((gamma + 1) * density)
        b = (gamma - 1) / (gamma + 1) * pressure
        root = math.sqrt(a / (p_star + b))
        return (p_star - pressure) * root, root * (1 - (p_star - pressure) / (2 * (p_star + b)))
    power = (gamma - 1) / (2 * gamma)
    ratio = p_star / pressure
    value = 2 * sound / (gamma - 1) * (ratio**power - 1)
    return value, ratio ** (-(gamma + 1) / (2 * gamma)) / (density * sound)


def _behind(side, p_star, u_star, speed, gamma):
    """State on a ray left of the contact wave."""
    density, u, pressure = side
    sound = math.sqrt(gamma * pressure / density)
    if p_star > pressure:
        ratio = p_star / pressure
        share = (gamma - 1) / (gamma + 1)
        shock = u - sound * math.sqrt((gamma + 1) / (2 * gamma) * ratio + (gamma - 1) / (2 * gamma))
        if speed < shock:
            return side
        return density * (ratio + share) / (share * ratio + 1), u_star, p_star
    sound_star = sound * (p_star / pressure) ** ((gamma - 1) / (2 * gamma))
    if speed < u - sound:
        return side
    if speed > u_star - sound_star:
        return density * (p_star / pressure) ** (1 / gamma), u_star, p_star
    inside = 2 / (gamma + 1) + (gamma - 1) / ((gamma + 1) * sound) * (u - speed)
    velocity = 2 / (gamma + 1) * (sound + (gamma - 1) / 2 * u + speed)
    return (
        density * inside ** (2 / (gamma - 1)),
        velocity,
        pressure * inside ** (2 * gamma / (gamma - 1)),
    )
