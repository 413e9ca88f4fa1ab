r"""Legendre multiwavelet filters: how scaling coefficients on a grid become those on a coarser one.

With $\phi_i(x)=\sqrt{2i+1}\,P_i(2x-1)$ on $[0,1]$ and $i<k$, the coefficients of a cell are
$s_i=\sum_j H^0_{ij}\,s^{\mathrm{left}}_j+H^1_{ij}\,s^{\mathrm{right}}_j$ of those of its halves.
"""

import numpy as np
from numpy.polynomial import legendre


def low_pass_filters(order: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns $H^0$ and $H^1$, $H^s_{ij}=2^{-1/2}\int_0^1\phi_i((x+s)/2)\,\phi_j(x)\,dx$.

    Args:
        order: $k$, the number of polynomials per cell.
    """
    # Exact: the integrand has degree 2k - 2.
    nodes, weights = legendre.leggauss(order)
    nodes, weights = (nodes + 1) / 2, weights / 2
    fine = _scaling_functions(nodes, order) * weights[:, None]
    left, right = (_scaling_functions((nodes + side) / 2, order).T @ fine for side in (0, 1))
    return left / np.sqrt(2), right / np.sqrt(2)


def transfer_matrix(order: int) -> np.ndarray:
    r"""Returns $[H^0\otimes H^0\,|\,H^0\otimes H^1\,|\,H^1\otimes H^0\,|\,H^1\otimes H^1]$.

    The rows, $k^2$ of them, are orthonormal: the transpose prolongs, and restricts to the identity.
    """
    filters = low_pass_filters(order)
    return np.hstack([np.kron(row, column) for row in filters for column in filters])


def _scaling_functions(points: np.ndarray, order: int) -> np.ndarray:
    """Returns the scaling functions, one per column, at points of the unit interval."""
    return legendre.legvander(2 * points - 1, order - 1) * np.sqrt(2 * np.arange(order) + 1)
