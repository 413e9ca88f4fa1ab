r"""Spherical harmonics of fields on latitude-longitude grids: power per degree.

Coefficients come from `ducc0`, whose transforms on these grids are exact for every degree
they hold; it works on arrays, on the CPU and without derivatives, and so does this file. It
is an extra, because its licence (GPL) is not ours: pip install 'gpo[sphere]'.
"""

import math
from typing import Literal

import numpy as np
from jaxtyping import Float

TOLERANCE = 1e-3
"""How far a latitude may be off, as a part of the spacing."""


def degree_spectrum(
    values: Float[np.ndarray, "*batch latitudes longitudes"],
    latitude: Float[np.ndarray, " latitudes"],
) -> Float[np.ndarray, "*batch degrees"]:
    r"""Returns the power per degree, $P_l=\frac{1}{4\pi}\sum_{m=-l}^{l}|a_{lm}|^2$, with orthonormal $Y_{lm}$.

    The sum over degrees is the area-weighted mean square over the sphere (Parseval), and
    $P_0$ the squared mean, of a field that has no more degrees than are returned: as many as
    the latitudes resolve (all but two of them with both poles, else all but one), and none
    whose orders the longitudes do not resolve ($2l<$ their number).

    The power does not know where longitudes start nor which way they and latitudes run: a
    turn about the axis changes the phase of $a_{lm}$, a reflection its sign.

    Args:
        values: A field; its longitudes are evenly spaced, once around, without a repeated one.
        latitude: Evenly spaced degrees: with both poles (Clenshaw and Curtis' rule), or the
            centres of cells from pole to pole (Fejér's first rule).
    """
    import ducc0

    rule = latitude_rule(latitude)
    if rule is None:
        raise ValueError(
            "`latitude` must be evenly spaced degrees with both poles, or centres of cells from "
            f"pole to pole, got {len(latitude)} from {latitude[0]:g} to {latitude[-1]:g}."
        )
    num_latitudes, num_longitudes = values.shape[-2:]
    max_degree = num_latitudes - (2 if rule == "CC" else 1)
    max_order = min(max_degree, (num_longitudes - 1) // 2)
    # Coefficients are listed order by order from 0; a positive order stands for its negative.
    orders = range(max_order + 1)
    degree = np.concatenate([np.arange(order, max_degree + 1) for order in orders])
    share = np.where(np.arange(len(degree)) <= max_degree, 1, 2) / (4 * math.pi)
    maps = np.ascontiguousarray(values, dtype=np.float64).reshape(-1, 1, *values.shape[-2:])
    power = np.empty((len(maps), max_order + 1))
    for number, field in enumerate(maps):
        coefficients = ducc0.sht.analysis_2d(
            map=field, spin=0, lmax=max_degree, mmax=max_order, geometry=rule, nthreads=1
        )[0]
        squared = coefficients.real**2 + coefficients.imag**2
        power[number] = np.bincount(degree, share * squared)[: max_order + 1]
    return power.reshape(*values.shape[:-2], max_order + 1)


def latitude_rule(latitude: Float[np.ndarray, " latitudes"]) -> Literal["CC", "F1"] | None:
    """Returns what `ducc0` calls the grid: CC with both poles, F1 for centres of cells, else None."""
    size = len(latitude)
    if size < 3:
        return None
    ascending = latitude if latitude[0] < latitude[-1] else latitude[::-1]
    if _are_close(ascending, np.linspace(-90, 90, size)):
        return "CC"
    if _are_close(ascending, (np.arange(size) + 0.5) * (180 / size) - 90):
        return "F1"
    return None


def _are_close(latitude: np.ndarray, nodes: np.ndarray) -> bool:
    return bool(np.abs(latitude - nodes).max() <= TOLERANCE * (nodes[1] - nodes[0]))
